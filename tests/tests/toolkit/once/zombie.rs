//! A write of a worker that has lost its milestone comes late.

use std::{
    process::{Child, Command, Stdio},
    time::Duration,
};

use bson::doc;
use milestone_runtime::Status;

use milestone_tests::{
    look::{until, until_true},
    place::{Kind, mongodb_uri, run_within},
    proxy::Proxy,
    transfer::{self, until_clean},
};
use rustix::process::{Pid, Signal, kill_process};

/// The worker is frozen after it has sent its write, which is still on its way. Another one takes over, writes, completes, and cleans the
/// markers. Then the write arrives, and the worker wakes.
#[test]
fn a_frozen_workers_late_write_is_refused_by_the_server() {
    run_within(Duration::from_mins(2), Kind::MongoDb, |place| async move {
        let scratch = place.scratch().unwrap();
        let accounts = scratch.database().collection("accounts");
        transfer::open(&accounts, &["ann", "bob"]).await;
        let mut options = scratch.options().await;
        let proxy = Proxy::before(&mut options).await;
        let through = mongodb_uri(
            &format!("mongodb://{}/?directConnection=true", proxy.address()),
            scratch.name(),
        );
        let mut frozen = Worker::start(&place.uri(), &through);
        proxy.hold("update");
        let client = transfer::builder(place.uri())
            .client()
            .build()
            .await
            .unwrap();
        let parameters = transfer::parameters("ann", "bob", 30);
        let start = client.start("transfer", transfer::graph(), parameters);
        let handle = start.id("t-1").await.unwrap();
        until_true("its write is on its way", || proxy.held() > 0).await;
        frozen.signal(Signal::STOP);
        let builder = transfer::builder(place.uri());
        let other = transfer::with_actions(builder, &accounts)
            .build()
            .await
            .unwrap();
        other.spawn();
        let record = until(&client, handle.id(), |record| {
            record.state == Status::Completed
        })
        .await;
        let both = || async { transfer::balances(&accounts).await };
        let expected = [("ann".to_owned(), 70), ("bob".to_owned(), 130)];
        assert_eq!(both().await, expected);
        until_clean(&accounts).await;
        // The write arrives, with nothing on the document that tells of it.
        proxy.let_pass();
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(both().await, expected, "the server takes a late write");
        frozen.signal(Signal::CONT);
        tokio::time::sleep(3 * transfer::LEASE).await;
        assert_eq!(
            both().await,
            expected,
            "the worker writes after it has lost the milestone"
        );
        assert_eq!(transfer::marked(&accounts).await, 0);
        assert_eq!(
            client.get("t-1").await.unwrap().unwrap(),
            record,
            "it is as the other one left it"
        );
        assert!(frozen.child.try_wait().unwrap().is_none(), "it works on");
        // The same write without its bound in time would have been taken.
        let late = accounts.update_one(
            doc! { "_id": "ann", "balance": { "$gte": 30 } },
            doc! { "$inc": { "balance": -30 } },
        );
        assert_eq!(late.await.unwrap().matched_count, 1);
    });
}

struct Worker {
    child: Child,
}

impl Worker {
    fn start(uri: &str, accounts: &str) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_once_worker"))
            .args([uri, accounts, "0", "after"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self { child }
    }

    fn signal(&mut self, signal: Signal) {
        let id = Pid::from_child(&self.child);
        kill_process(id, signal).unwrap();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may be over.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
