//! A worker that hangs in one action until it is killed: `mortal <uri> <action> [lease ms] [grace ms]`. It says on its output what it runs,
//! a line each. SIGTERM shuts it down; a second one ends the grace period.

use std::time::Duration;

use milestone_runtime::{Method, action::ActionError};
use milestone_tests::{ledger::quick, place::bare, saga};

/// The actions that it has besides those of the saga.
const ACTIONS: [&str; 5] = ["root", "left", "deep", "right", "done"];

/// How long its leases are, where nothing else is said.
const LEASE: Duration = Duration::from_millis(500);

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let uri = arguments.next().ok_or("a URI is missing")?;
    let hangs_in = arguments.next().ok_or("an action is missing")?;
    let millis = |text: Option<String>| text.map(|text| text.parse().map(Duration::from_millis));
    let lease = millis(arguments.next()).transpose()?.unwrap_or(LEASE);
    let grace = millis(arguments.next()).transpose()?;
    let mut builder = bare(uri)
        .lease(lease)
        .grace(grace.unwrap_or(Duration::from_secs(30)));
    for name in ACTIONS {
        let hangs = name == hangs_in;
        let method = Method::new(name, move |_| async move {
            if hangs {
                println!("hangs in {name}");
                std::future::pending::<()>().await;
            }
            println!("ran {name}");
            Ok::<_, ActionError>(name)
        });
        builder = builder.register(method.options(quick()));
    }
    let hangs = hangs_in.clone();
    let tell = move |name: &str, attempt| {
        println!("begins {name} {attempt}");
        if name == hangs {
            println!("hangs in {name}");
        }
    };
    for method in saga::methods(tell, Some(&hangs_in)) {
        builder = builder.register(method);
    }
    let ends = Method::new("slow", |_| async {
        println!("begins slow");
        tokio::time::sleep(4 * LEASE).await;
        println!("ends slow");
        Ok::<_, ActionError>("slow")
    });
    let runtime = builder.register(ends.options(quick())).build().await?;
    runtime.run_until(milestone_runtime::stop_signal).await;
    println!("has shut down");
    Ok(())
}
