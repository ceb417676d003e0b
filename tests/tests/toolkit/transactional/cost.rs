//! What a transactional action costs: commands, counted by the driver's command events.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use milestone_runtime::store::mongodb::{DEFAULT_COLLECTION, MongoStore};
use milestone_tests::{
    payments::{self, from_a_to_b, witnesses},
    place::bare,
};
use mongodb::event::{EventHandler, command::CommandEvent};

use super::on_bench;

/// The commands of a client, with their collections.
#[derive(Clone, Default)]
struct Commands(Arc<Mutex<Vec<String>>>);

impl Commands {
    fn handler(&self) -> EventHandler<CommandEvent> {
        let commands = self.clone();
        EventHandler::callback(move |event| {
            let CommandEvent::Started(started) = event else {
                return;
            };
            let target = started.command.get_str(&started.command_name);
            let mut name = format!("{} {}", started.command_name, target.unwrap_or_default());
            name.truncate(name.trim_end().len());
            if started.command.contains_key("autocommit") {
                name.push_str(", in the transaction");
            }
            commands.0.lock().unwrap().push(name);
        })
    }

    /// Those since the last time, how often each.
    fn take(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for name in std::mem::take(&mut *self.0.lock().unwrap()) {
            *counts.entry(name).or_default() += 1;
        }
        counts
    }
}

#[test]
fn commands_and_writes_of_a_transactional_action() {
    on_bench(|bench| async move {
        let commands = Commands::default();
        let mut options = bench.scratch().options().await;
        options.command_event_handler = Some(commands.handler());
        let store = MongoStore::new(options, bench.scratch().name(), DEFAULT_COLLECTION);
        let builder = bare("").store(Arc::new(store)).poll(Duration::from_mins(1));
        let runtime = bench.worker_of(builder, [payments::pay()]).await;
        // The first one makes the client and the collection of the witnesses.
        bench.pays(&runtime, "first").await;
        commands.take();
        let handle = bench.start(&runtime, "t", from_a_to_b(10)).await;
        handle.outcome().await.unwrap();
        let counts = commands.take();
        let expected = [
            (
                "insert _milestones_",
                1,
                "the milestone, with its action begun",
            ),
            (
                "find _milestones_, in the transaction",
                1,
                "is the lease held?",
            ),
            ("update accounts, in the transaction", 2, "the body"),
            ("insert ledger, in the transaction", 1, "the body"),
            ("find accounts, in the transaction", 1, "the body"),
            (
                "insert _milestones_.witnesses, in the transaction",
                1,
                "what it gave",
            ),
            ("commitTransaction, in the transaction", 1, "the commit"),
            (
                "update _milestones_",
                1,
                "action and milestone are complete",
            ),
        ];
        println!("| command | times | what for |\n|---|---|---|");
        for (name, times, what) in expected {
            println!("| {name} | {times} | {what} |");
        }
        // Reads of the milestone outside of the transaction are this test's, which waits for the outcome.
        let is_own = |name: &str| {
            name.ends_with("transaction") || (name.ends_with('_') && !name.starts_with("find"))
        };
        let counts: BTreeMap<_, _> = counts
            .into_iter()
            .filter(|(name, _)| is_own(name))
            .collect();
        let expected = expected.map(|(name, times, _)| (name.to_owned(), times));
        assert_eq!(counts, BTreeMap::from(expected));
        assert_eq!(witnesses(&bench.database()).await.len(), 2);
    });
}

/// The witness goes when it is of no more use: one look at the milestones and one removal, for all that are due.
#[test]
fn witnesses_go_when_their_milestones_are_over() {
    on_bench(|bench| async move {
        let skew = Duration::from_millis(200);
        let builder = bench.place.builder().clock_skew(skew);
        let runtime = bench.worker_of(builder, [payments::pay()]).await;
        for id in ["one", "two"] {
            bench.pays(&runtime, id).await;
        }
        let began = std::time::Instant::now();
        while !witnesses(&bench.database()).await.is_empty() {
            assert!(began.elapsed() < Duration::from_secs(20), "they stay");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
}
