//! The report stays small, whatever fails however often.

use super::*;
use crate::record::Attempt;

fn large(number: i64, causes: usize) -> Failed {
    let text = |size| format!("{number} ").repeat(size);
    Failed {
        error: AttemptError {
            kind: text(1000),
            message: text(4096),
            chain: vec![text(4096); causes],
            backtrace: Some(text(16 * 1024)),
            location: Some(text(1000)),
        },
        retry_after: Some(Duration::ZERO),
        ..error()
    }
}

fn numbers(report: &[Attempt]) -> Vec<i64> {
    report.iter().map(|attempt| attempt.number).collect()
}

fn size(bench: &Bench) -> usize {
    bson::serialize_to_vec(&bench.record.to_document().unwrap())
        .unwrap()
        .len()
}

/// Fails so often, without the checks of the bench, which would take long.
fn fail_often(bench: &mut Bench, times: i64, failed: impl Fn(i64) -> Failed) -> usize {
    let mut largest = 0;
    for number in 1..=times {
        let begin = Event::Begin {
            tasks: vec![Task::to_do(0)],
            worker: "w".to_owned(),
        };
        let _ = advance(&mut bench.record, begin, bench.now, &bench.limits).unwrap();
        let event = Event::Failed {
            task: Task::to_do(0),
            number,
            failed: failed(number),
        };
        let patch = advance(&mut bench.record, event, bench.now, &bench.limits).unwrap();
        bench.wait(1);
        assert!(
            patch.size() < 64 * 1024,
            "the write of failure {number} has {}",
            patch.size()
        );
        if number % 100 == 0 || number < 100 {
            largest = largest.max(size(bench));
        }
    }
    assert_eq!(check(&bench.record), []);
    largest
}

#[test]
fn f33_ten_thousand_failures_of_one_action() {
    for causes in [0, 20] {
        let mut bench = Bench::new(vec![action("a", Mode::Idempotent, &[])]);
        let largest = fail_often(&mut bench, 10_000, |number| large(number, causes));
        assert!(largest < 40 * 1024, "{largest}");
        let report = &bench.record.report;
        let (first, newest) = (report.last().unwrap(), &report[0]);
        assert_eq!((first.number, newest.number), (1, 10_000));
        assert!(first.error.as_ref().unwrap().message.starts_with("1 1 "));
        assert!(
            newest
                .error
                .as_ref()
                .unwrap()
                .backtrace
                .as_ref()
                .unwrap()
                .len()
                >= 16 * 1024,
            "the newest has its backtrace"
        );
        assert_eq!(
            i64::try_from(report.len()).unwrap() + bench.record.report_dropped,
            10_000
        );
        assert_eq!(bench.record.actions[0].attempts, 10_000);
    }
}

#[test]
fn small_failures_keep_the_first_and_the_newest_and_are_seldom_rewritten() {
    let mut bench = Bench::new(vec![action("a", Mode::Idempotent, &[])]);
    let mut rewritten = 0;
    for number in 1..=500 {
        let begin = Event::Begin {
            tasks: vec![Task::to_do(0)],
            worker: "w".to_owned(),
        };
        let _ = advance(&mut bench.record, begin, bench.now, &bench.limits).unwrap();
        let failed = Failed {
            retry_after: Some(Duration::ZERO),
            ..error()
        };
        let event = Event::Failed {
            task: Task::to_do(0),
            number,
            failed,
        };
        let patch = advance(&mut bench.record, event, bench.now, &bench.limits).unwrap();
        rewritten += usize::from(patch.to_update(1).get("$push").is_none());
        bench.wait(1);
    }
    let numbers = numbers(&bench.record.report);
    assert!(
        numbers.len() >= 16 && numbers[..16] == (485..=500).rev().collect::<Vec<_>>()[..],
        "{numbers:?}"
    );
    assert_eq!(numbers.last(), Some(&1));
    assert!(rewritten < 40, "{rewritten}");
}

#[test]
fn many_actions_share_one_limit() {
    let count = 200;
    let actions = (0..count)
        .map(|index| action(&format!("a{index}"), Mode::Plain, &[]))
        .collect();
    let mut bench = Bench::new(actions);
    let mut largest = 0;
    for index in 0..count {
        let task = Task::to_do(index);
        let begin = Event::Begin {
            tasks: vec![task],
            worker: "w".to_owned(),
        };
        let _ = advance(&mut bench.record, begin, bench.now, &bench.limits).unwrap();
        let failed = Failed {
            fatal: true,
            ..large(1, 3)
        };
        let _ = advance(
            &mut bench.record,
            Event::Failed {
                task,
                number: 1,
                failed,
            },
            bench.now,
            &bench.limits,
        )
        .unwrap();
        let report = bson::serialize_to_vec(
            &bson::doc! { "r": bench.record.to_document().unwrap().get("report") },
        )
        .unwrap();
        largest = largest.max(report.len());
    }
    assert!(largest <= bench.limits.report, "{largest}");
    assert_eq!(check(&bench.record), []);
    let names: Vec<&str> = bench
        .record
        .report
        .iter()
        .map(|attempt| attempt.action.as_str())
        .collect();
    assert_eq!((names[0], names.last()), ("a199", Some(&"a0")));
    assert_eq!(
        names.len() + usize::try_from(bench.record.report_dropped).unwrap(),
        count
    );
}

#[test]
fn texts_are_cut_at_a_character_and_say_so() {
    let mut bench = Bench::new(vec![action("a", Mode::Idempotent, &[])]);
    bench.begin(&["a"]);
    let message = "ü".repeat(4096);
    bench.fail(
        "a",
        Failed {
            error: AttemptError {
                message,
                ..AttemptError::default()
            },
            ..error()
        },
    );
    let message = &bench.record.report[0].error.as_ref().unwrap().message;
    assert!(
        message.ends_with("üü [4096 bytes cut]"),
        "{}",
        &message[message.len() - 40..]
    );
}

#[test]
fn all_causes_together_take_no_more_than_a_message() {
    let mut bench = Bench::new(vec![action("a", Mode::Idempotent, &[])]);
    bench.begin(&["a"]);
    bench.fail("a", large(1, 100));
    let error = bench.record.report[0].error.as_ref().unwrap();
    let bytes: usize = error.chain.iter().map(String::len).sum();
    assert!(error.chain.len() == 16 && bytes < 4096 + 16 * 40, "{bytes}");
    assert!(error.kind.len() < 600 && error.location.as_ref().unwrap().len() < 600);
}

#[test]
fn of_a_long_chain_the_first_and_the_newest_successes_stay_and_every_failure() {
    let count = 1000_usize;
    let actions = (0..count).map(|index| {
        let after: Vec<usize> = index.checked_sub(1).into_iter().collect();
        action(&format!("a{index}"), Mode::Idempotent, &after)
    });
    let mut bench = Bench::new(actions.collect());
    let (mut rewritten, mut largest) = (0, 0);
    for index in 0..count {
        let task = Task::to_do(index);
        for number in 1..=2 {
            let begin = Event::Begin {
                tasks: vec![task],
                worker: "w".to_owned(),
            };
            let _ = advance(&mut bench.record, begin, bench.now, &bench.limits).unwrap();
            if index % 100 != 50 || number == 2 {
                let output = 1.into();
                let event = Event::Succeeded {
                    task,
                    number,
                    output,
                };
                let patch = advance(&mut bench.record, event, bench.now, &bench.limits).unwrap();
                rewritten += usize::from(patch.to_update(1).get("$push").is_none());
                break;
            }
            let failed = Failed {
                retry_after: Some(Duration::ZERO),
                ..error()
            };
            let event = Event::Failed {
                task,
                number,
                failed,
            };
            let _ = advance(&mut bench.record, event, bench.now, &bench.limits).unwrap();
            bench.wait(1);
        }
        largest = largest.max(bench.record.report.len());
    }
    let report = &bench.record.report;
    let failed = report
        .iter()
        .filter(|attempt| attempt.success != Some(true));
    assert_eq!(failed.count(), 10);
    assert!(largest < 80, "{largest}");
    assert!(rewritten < 40, "{rewritten}");
    let names: Vec<&str> = report.iter().map(|attempt| &*attempt.action).collect();
    assert_eq!((names[0], names.last()), ("a999", Some(&"a0")));
    assert_eq!(
        i64::try_from(report.len()).unwrap() + bench.record.report_dropped,
        1010
    );
    assert_eq!(check(&bench.record), []);
}
