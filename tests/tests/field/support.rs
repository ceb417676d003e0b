//! What the tests of the field have in common.

use std::time::Duration;

use milestone_runtime::{
    Method,
    action::{ActionError, Options},
};
use milestone_tests::ledger::Ledger;
use tokio::sync::watch;

/// A lease that ends soon.
pub(crate) const LEASE: Duration = Duration::from_millis(500);

/// How often the workers of these tests look for work, see `place::bare`.
pub(crate) const POLL: Duration = Duration::from_millis(50);

/// An action that notes the worker that runs it and then never ends.
pub(crate) fn hangs(ledger: &Ledger, name: &str, options: Options) -> Method {
    let ledger = ledger.clone();
    Method::new(name, move |call| {
        ledger.note(call.context().worker());
        std::future::pending::<Result<(), ActionError>>()
    })
    .options(options)
}

/// An action that notes the worker that runs it, and ends when it is told to.
pub(crate) fn gate(
    ledger: &Ledger,
    name: &str,
    open: &watch::Receiver<bool>,
    options: Options,
) -> Method {
    let (ledger, open) = (ledger.clone(), open.clone());
    Method::new(name, move |call| {
        ledger.note(call.context().worker());
        let mut open = open.clone();
        async move {
            // A sender that is gone opens it as well.
            let _ = open.wait_for(|open| *open).await;
            Ok::<_, ActionError>("open")
        }
    })
    .options(options)
}
