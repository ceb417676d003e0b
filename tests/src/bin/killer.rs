//! A worker with an action that kills it: `killer <uri>`. The action `dies` aborts the process, `lives` takes a while and succeeds.

use std::time::Duration;

use milestone_runtime::{Method, action::ActionError};
use milestone_tests::{ledger::quick, place::bare};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let uri = std::env::args().nth(1).ok_or("a URI is missing")?;
    let dies = Method::new("dies", |_| async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        std::process::abort();
        #[expect(unreachable_code, reason = "it says what an action gives")]
        Ok::<_, ActionError>(())
    });
    let lives = Method::new("lives", |_| async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        Ok::<_, ActionError>(())
    });
    let runtime = bare(uri)
        .lease(Duration::from_millis(500))
        .register(dies.options(quick()))
        .register(lives.options(quick()))
        .build()
        .await?;
    runtime.run_until(milestone_runtime::stop_signal).await;
    Ok(())
}
