//! A milestone that is to have ended by a time.

#![expect(clippy::unwrap_used, reason = "a test ends where something fails")]

use std::time::Duration;

use milestone_runtime::{
    Method, Milestone as _, OutcomeError, Status,
    action::{ActionError, Options},
    core::machine::check,
    dynamic::Action,
    prelude::*,
};
use milestone_tests::{
    ledger::{Ledger, quick},
    on_stores,
    place::Place,
};

on_stores!(memory, sqlite, mongodb:
    what_runs_is_told_to_stop_and_nothing_follows,
    in_time_it_changes_nothing,
);

mod before_it {
    use super::*;

    on_stores!(steadily DEADLINE, memory, sqlite, mongodb:
        what_was_done_is_undone,
        it_ends_where_it_waits_for_a_retry,
    );
}

/// Long enough for an action that takes no time.
const DEADLINE: Duration = Duration::from_millis(400);

/// An action that fails for ever, each time after a long wait.
fn struggles(name: &'static str) -> Method {
    Method::new(name, |_| async {
        Err::<(), _>(ActionError::retry_after(Duration::from_hours(1), "busy"))
    })
    .options(quick())
}

async fn what_runs_is_told_to_stop_and_nothing_follows(place: Place) {
    let ledger = Ledger::new();
    let patient = Method::new("patient", |call| async move {
        call.context().cancelled().await;
        Err::<(), _>(ActionError::new("told to stop"))
    });
    let worker = place
        .builder()
        .register(patient.options(quick()))
        .register(ledger.gives("next", 1))
        .build()
        .await
        .unwrap();
    worker.spawn();
    let graph = Action::new("patient").next(["next"]);
    let start = worker
        .start("It", graph, ())
        .deadline(Duration::from_millis(300));
    let it = start.await.unwrap();
    assert!(matches!(
        it.outcome().await,
        Err(OutcomeError::Overdue { .. })
    ));
    let record = it.record().await.unwrap();
    assert_eq!(check(&record), []);
    assert!(record.unwind.unwrap().reason.starts_with("its deadline"));
    assert_eq!(ledger.count("next"), 0);
    assert!(record.end_date.unwrap() >= record.deadline.unwrap());
}

async fn what_was_done_is_undone(place: Place) {
    let ledger = Ledger::new();
    let worker = place
        .builder()
        .register(ledger.gives("reserve", 1).options(quick().undo("free")))
        .register(ledger.gives("free", 1))
        .register(struggles("charge"))
        .build()
        .await
        .unwrap();
    worker.spawn();
    let graph = Action::new("reserve").next(["charge"]);
    let start = worker.start("It", graph, ()).deadline(DEADLINE);
    let it = start.await.unwrap();
    assert!(matches!(
        it.outcome().await,
        Err(OutcomeError::Overdue { .. })
    ));
    assert_eq!(ledger.entries(), ["reserve", "free"]);
}

async fn it_ends_where_it_waits_for_a_retry(place: Place) {
    let worker = place
        .builder()
        .register(struggles("charge"))
        .build()
        .await
        .unwrap();
    worker.spawn();
    let start = worker.start("It", "charge", ()).deadline(DEADLINE);
    let it = start.await.unwrap();
    assert!(matches!(
        it.outcome().await,
        Err(OutcomeError::Overdue { .. })
    ));
    let failed = it.record().await.unwrap();
    assert_eq!((failed.state, failed.report.len()), (Status::Failed, 1));
    // An operator gives it all the time that it takes.
    let ledger = Ledger::new();
    worker.register(ledger.gives("charge", 3)).unwrap();
    it.retry().await.unwrap();
    assert_eq!(it.outcome().await.unwrap(), bson::doc! { "charge": 3 });
}

#[derive(Serialize, Deserialize, Milestone)]
#[milestone(greet, name = "hurried", deadline = "2h")]
struct Hurried {}

#[action(idempotent)]
async fn greet() -> Result<(), ActionError> {
    Ok(())
}

async fn in_time_it_changes_nothing(place: Place) {
    assert_eq!(Hurried::DEADLINE, Some(Duration::from_hours(2)));
    let greet = Method::new("greet", |_| async { Ok::<_, ActionError>(()) });
    let worker = place
        .builder()
        .register(greet.options(Options::idempotent()))
        .build()
        .await
        .unwrap();
    worker.spawn();
    let it = Hurried {}.start(&worker).await.unwrap();
    it.outcome().await.unwrap();
    let record = it.record().await.unwrap();
    let given = record.deadline.unwrap().timestamp_millis() - record.created_at.timestamp_millis();
    assert_eq!((record.state, given), (Status::Completed, 7_200_000));
}
