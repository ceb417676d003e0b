//! A saga of five actions whose fourth fails for good, and whose third undo fails three times first.

use milestone_runtime::{Method, action::ActionError, dynamic::Action};

use crate::ledger::quick;

/// Its graph: five actions, one after the other, each with an undo.
pub fn graph() -> Action {
    let step = |n: usize| {
        Action::new(format!("do-{n}"))
            .idempotent()
            .undo(format!("undo-{n}"))
    };
    let mut graph = step(5);
    for n in (1..5).rev() {
        graph = step(n).next([graph]);
    }
    graph
}

/// Its methods. Each tells its name and the number of its attempt as it begins; the one of that name never ends.
pub fn methods(
    tell: impl Fn(&str, i64) + Clone + Send + Sync + 'static,
    hangs_in: Option<&str>,
) -> Vec<Method> {
    let mut methods = Vec::new();
    for n in 1..=5_usize {
        for (name, is_undo) in [(format!("do-{n}"), false), (format!("undo-{n}"), true)] {
            let hangs = hangs_in == Some(&*name);
            let (tell, told) = (tell.clone(), name.clone());
            let method = Method::new(name, move |call| {
                let attempt = call.context().attempt();
                tell(&told, attempt);
                async move {
                    if hangs {
                        std::future::pending::<()>().await;
                    }
                    match (n, is_undo, attempt) {
                        (4, false, _) => Err(ActionError::fatal("the fourth one cannot be")),
                        (3, true, 1..=3) => Err(ActionError::new("it cannot be undone yet")),
                        _ => Ok(attempt),
                    }
                }
            });
            let options = if is_undo {
                quick()
            } else {
                quick().undo(UNDOS[n - 1])
            };
            methods.push(method.options(options));
        }
    }
    methods
}

const UNDOS: [&str; 5] = ["undo-1", "undo-2", "undo-3", "undo-4", "undo-5"];
