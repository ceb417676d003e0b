//! Commands from outside.

use std::sync::Arc;

use bson::doc;
use milestone_core::{
    limits::MAX_INBOX,
    record::{Answer, Order, Status},
};

use super::bench::{Bench, LEASE, pause};
use crate::store::Sent;

pub(super) async fn delivers_once(bench: Bench) {
    let mut record = bench.record("one");
    record.answers.push(Answer {
        order: "pause".to_owned(),
        by: "me".to_owned(),
        id: "old".to_owned(),
        done: true,
        message: "done".to_owned(),
        at: bench.now,
    });
    record.mail = 1;
    bench.insert(vec![record.clone()]).await;
    let commands = [
        bench.command("c1", pause(), 1),
        bench.command("c2", Order::Resume, 2),
    ];
    for command in [
        &commands[0],
        &commands[1],
        &commands[0],
        &bench.command("old", pause(), 3),
    ] {
        assert_eq!(bench.send("one", command.clone()).await, Sent::Delivered);
    }
    let after = bench.get("one").await;
    assert_eq!(after.inbox, commands);
    assert_eq!(
        (after.mail, after.rev),
        (3, record.rev),
        "each counts once, and no patch is counted"
    );
    assert_eq!(after.answers, record.answers);
}

pub(super) async fn delivers_once_to_many_senders(bench: Bench) {
    bench.held("one", "w1", "t1").await;
    let stores = [bench.store.clone(), bench.subject.store().await];
    let tasks: Vec<_> = (0..16_usize)
        .map(|number| {
            let store = Arc::clone(&stores[number % 2]);
            let command = bench.command(&format!("c{}", number / 4), pause(), 0);
            tokio::spawn(async move { store.send("one".into(), command).await })
        })
        .collect();
    for task in tasks {
        assert_eq!(
            task.await
                .expect("the task ends")
                .expect("a command is answered"),
            Sent::Delivered
        );
    }
    let after = bench.get("one").await;
    let mut ids: Vec<&str> = after
        .inbox
        .iter()
        .map(|command| command.id.as_str())
        .collect();
    ids.sort_unstable();
    assert_eq!((ids, after.mail), (vec!["c0", "c1", "c2", "c3"], 4));
}

pub(super) async fn tells_what_is_not_there(bench: Bench) {
    assert_eq!(
        bench.send("missing", bench.command("c1", pause(), 0)).await,
        Sent::NotFound
    );
    assert!(bench.subject.raw("missing".into()).await.is_none());
}

pub(super) async fn asks_for_the_state(bench: Bench) {
    for state in Status::ALL {
        let id = state.as_str();
        let mut record = bench.record(id);
        record.state = state;
        if state.is_terminal() {
            (record.due, record.next) = (Vec::new(), None);
        }
        bench.insert(vec![record]).await;
        for (command, order) in [
            ("c1", Order::Retry),
            (
                "c2",
                Order::Cancel {
                    reason: "check".to_owned(),
                },
            ),
        ] {
            let before = bench.raw(id).await;
            let accepted = order.accepted_in().contains(&state);
            let sent = bench.send(id, bench.command(command, order, 0)).await;
            if accepted {
                assert_eq!(sent, Sent::Delivered, "{command} to {state}");
            } else {
                assert_eq!(sent, Sent::Refused(state), "{command}");
                bench.assert_unchanged(&before).await;
            }
        }
    }
    // What was delivered once is so for ever, in whatever state.
    let mut ended = bench.record("ended");
    ended.state = Status::Completed;
    ended.answers.push(Answer {
        order: "pause".to_owned(),
        by: "me".to_owned(),
        id: "c1".to_owned(),
        done: true,
        message: String::new(),
        at: bench.now,
    });
    bench.insert(vec![ended]).await;
    assert_eq!(
        bench.send("ended", bench.command("c1", pause(), 0)).await,
        Sent::Delivered
    );
}

pub(super) async fn stops_at_a_full_inbox(bench: Bench) {
    let mut record = bench.record("full");
    record.inbox = (0..MAX_INBOX)
        .map(|number| bench.command(&format!("c{number}"), pause(), 0))
        .collect();
    let last = record.inbox.pop().expect("a command");
    record.mail = i64::try_from(record.inbox.len()).unwrap_or_default();
    bench.insert(vec![record.clone()]).await;
    assert_eq!(bench.send("full", last.clone()).await, Sent::Delivered);
    let before = bench.raw("full").await;
    assert_eq!(
        bench
            .send("full", bench.command("one more", pause(), 0))
            .await,
        Sent::Full
    );
    assert_eq!(
        bench.send("full", last).await,
        Sent::Delivered,
        "it is there"
    );
    bench.assert_unchanged(&before).await;
    assert_eq!(
        before.get_array("inbox").map(Vec::len).ok(),
        Some(MAX_INBOX)
    );
}

pub(super) async fn wakes_what_nobody_holds(bench: Bench) {
    let mut on_hold = bench.record("on-hold");
    (on_hold.due, on_hold.next) = (Vec::new(), None);
    let waiting = bench.record_due("waiting", 60_000);
    let mut failed = bench.record("failed");
    (failed.due, failed.next, failed.state) = (Vec::new(), None, Status::Failed);
    bench.insert(vec![on_hold, waiting, failed]).await;
    let mut request = bench.request("w1", 5);
    request.now = bench.at(1_000);
    request.methods.clear();
    assert_eq!(bench.claimed_ids(&request).await, [""; 0]);
    for (id, order) in [
        ("on-hold", Order::Resume),
        ("waiting", pause()),
        ("failed", Order::Retry),
    ] {
        assert_eq!(
            bench.send(id, bench.command("c1", order, 1_000)).await,
            Sent::Delivered
        );
        let next = bench.get(id).await.next;
        assert_eq!(
            next.map(|next| (next.queue, next.at)),
            Some(("default".to_owned(), bench.at(1_000))),
            "{id}"
        );
    }
    request.now = bench.at(999);
    assert_eq!(bench.claimed_ids(&request).await, [""; 0]);
    request.now = bench.at(1_000);
    assert_eq!(
        bench.claimed_ids(&request).await,
        ["failed", "on-hold", "waiting"],
        "whatever methods the worker has"
    );
}

pub(super) async fn wakes_in_a_queue_of_the_milestone(bench: Bench) {
    let mut on_hold = bench.record_of("on-hold", 0, &[("work", Some("slow"))]);
    (on_hold.due, on_hold.next) = (Vec::new(), None);
    let waiting = bench.record_of("waiting", 60_000, &[("work", Some("slow"))]);
    bench.insert(vec![on_hold, waiting]).await;
    for id in ["on-hold", "waiting"] {
        assert_eq!(
            bench.send(id, bench.command("c1", Order::Resume, 0)).await,
            Sent::Delivered
        );
    }
    let mut request = bench.request("w1", 5);
    request.queues = vec!["slow".to_owned()];
    assert_eq!(
        bench.claimed_ids(&request).await,
        ["on-hold", "waiting"],
        "its workers may serve no other queue"
    );
}

pub(super) async fn leaves_a_live_lease_alone(bench: Bench) {
    bench.held("held", "w1", "t1").await;
    let before = bench.raw("held").await;
    assert_eq!(
        bench
            .send("held", bench.command("c1", pause(), LEASE - 1))
            .await,
        Sent::Delivered
    );
    let mut after = bench.raw("held").await;
    assert_eq!(after.get_array("inbox").map(Vec::len).ok(), Some(1));
    after.remove("inbox");
    after.insert("mail", 0_i64);
    super::bench::assert_same(&after, &before);
    let mut request = bench.request("w2", 1);
    request.now = bench.at(LEASE - 1);
    assert_eq!(bench.claimed_ids(&request).await, [""; 0]);
}

pub(super) async fn wakes_behind_a_dead_lease(bench: Bench) {
    bench.held("held", "w1", "t1").await;
    bench
        .renew("w1", &[("held", "t1")], bench.at(LEASE + 5))
        .await;
    assert_eq!(
        bench
            .send("held", bench.command("c1", pause(), LEASE + 10))
            .await,
        Sent::Delivered
    );
    let mut request = bench.request("w2", 1);
    (request.now, request.until) = (bench.at(LEASE + 10), bench.at(2 * LEASE));
    assert_eq!(
        bench.claimed_ids(&request).await,
        [""; 0],
        "its owner may still come back"
    );
    assert!(
        bench
            .renew("w1", &[("held", "t1")], bench.at(LEASE + 20))
            .await
            .lost
            .is_empty(),
        "and does"
    );
    request.now = bench.at(LEASE + 30);
    request.expired_before = Some(bench.at(LEASE + 25));
    let claimed = bench.claim_all(&request).await;
    assert_eq!(claimed.records.len(), 1);
    assert_eq!(
        (claimed.records[0].mail, claimed.records[0].inbox.len()),
        (1, 1)
    );
    let raw = bench.raw("held").await;
    assert_eq!(
        raw.get_array("due").map(Vec::len).ok(),
        Some(1),
        "a held milestone has one entry: {}",
        doc! { "due": raw.get("due") }
    );
}

pub(super) async fn keeps_the_value_in_a_command(bench: Bench) {
    bench.held("one", "w1", "t1").await;
    for (number, output) in [
        doc! { "$oid": "no hex" },
        doc! { "a.b": { "": 1, "$c": null } },
    ]
    .into_iter()
    .enumerate()
    {
        let order = Order::Resolve {
            action: "work".to_owned(),
            attempt: Some(1),
            applied: true,
            output: output.into(),
        };
        let command = bench.command(&format!("c{number}"), order, 0);
        assert_eq!(bench.send("one", command.clone()).await, Sent::Delivered);
        assert_eq!(bench.get("one").await.inbox[number], command);
    }
}
