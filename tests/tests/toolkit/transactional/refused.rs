//! Where there are no transactions, transactional actions are refused before anything runs.

use milestone_runtime::{Method, action::Options, prelude::*};
use milestone_tests::{
    payments::pay,
    place::{Kind, Place, run},
};

fn on(kind: Kind) {
    run(kind, |place: Place| async move {
        let error = place.builder().register(pay()).build().await.unwrap_err();
        assert_eq!(error.code(), "no_transactions");
        let text = error.to_string();
        for part in [
            "`pay`",
            "SQLite",
            "replica set",
            "`cx.once(..)`",
            "idempotent",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        // A client owes nothing, and neither does a worker that leaves the action out.
        place
            .builder()
            .client()
            .register(pay())
            .build()
            .await
            .unwrap();
        let runtime = place.builder().build().await.unwrap();
        let error = runtime.register(pay()).unwrap_err();
        assert_eq!(error.code(), "no_transactions");
    });
}

#[test]
fn on_sqlite() {
    on(Kind::Sqlite);
}

#[test]
fn in_memory() {
    on(Kind::Memory);
}

#[test]
fn options_that_do_not_fit_the_function() {
    run(Kind::MongoDb, |place| async move {
        let none = Method::new("none", |_| async { Ok::<_, ActionError>(()) });
        let none = none.options(Options::transactional());
        let error = place.builder().register(none).build().await.unwrap_err();
        assert_eq!(error.code(), "no_transaction");
        assert!(
            error
                .to_string()
                .contains("`Method::transactional(\"none\", |call, tx| ..)`"),
            "{error}"
        );
        let other = pay().options(Options::idempotent());
        let error = place.builder().register(other).build().await.unwrap_err();
        assert_eq!(error.code(), "transaction_for_nothing");
        assert!(
            error.to_string().contains("`Options::transactional()`"),
            "{error}"
        );
    });
}
