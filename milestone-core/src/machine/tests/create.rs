//! New milestones.

use super::*;

#[test]
fn forks_at_the_front_are_complete_from_the_start() {
    let fork = |name: &str, after: &[usize]| PlannedAction {
        method: None,
        ..action(name, Mode::Plain, after)
    };
    let bench = Bench::new(vec![
        fork("f", &[]),
        fork("g", &[0]),
        action("a", Mode::Plain, &[1]),
        action("b", Mode::Plain, &[1]),
    ]);
    assert_eq!(
        (bench.state("f"), bench.state("g")),
        (ActionState::Completed, ActionState::Completed)
    );
    assert_eq!(
        (bench.status(), bench.due()),
        (Status::Pending, vec!["a".to_owned(), "b".to_owned()])
    );
    assert!(bench.record.report.is_empty());
}

#[test]
fn a_fork_in_the_middle_opens_its_way_in_the_same_write() {
    let fork = PlannedAction {
        method: None,
        ..action("f", Mode::Plain, &[0])
    };
    let mut bench = Bench::new(vec![
        action("a", Mode::Plain, &[]),
        fork,
        action("b", Mode::Plain, &[1]),
    ]);
    bench.run(&["a"]);
    assert_eq!(
        (bench.state("f"), bench.due()),
        (ActionState::Completed, vec!["b".to_owned()])
    );
    bench.run(&["b"]);
    assert_eq!(bench.record.outputs(), bson::doc! { "a": "a", "b": "b" });
}

/// Each event costs what is in the graph, not the square of it.
#[test]
fn the_widest_graph_runs() {
    let count = crate::graph::MAX_ACTIONS;
    let first = action("first", Mode::Plain, &[]);
    let wide = (1..count - 1).map(|index| action(&index.to_string(), Mode::Plain, &[0]));
    let last = PlannedAction::new("last", Mode::Plain).after(1..count - 1);
    let plan = Plan::new([first].into_iter().chain(wide).chain([last]).collect()).unwrap();
    let (now, limits) = (DateTime::from_millis(0), Limits::new());
    let mut record = MilestoneRecord::new(NewMilestone::new("Wide", plan), now, &limits).unwrap();
    record.born_leased(Lease {
        owner: "w".to_owned(),
        token: "t".to_owned(),
        since: now,
        until: now,
    });
    let mut run = |tasks: Vec<Task>| {
        let begin = Event::Begin {
            tasks: tasks.clone(),
            worker: "w".to_owned(),
        };
        let mut patch = advance(&mut record, begin, now, &limits).unwrap();
        for task in tasks.iter().take(200) {
            patch.merge(
                advance(
                    &mut record,
                    Event::Succeeded {
                        task: *task,
                        number: 1,
                        output: 1.into(),
                    },
                    now,
                    &limits,
                )
                .unwrap(),
            );
        }
        patch
    };
    let _ = run(vec![Task::to_do(0)]);
    let patch = run((1..count - 1).map(Task::to_do).collect());
    assert_eq!(check(&record), []);
    assert_eq!(record.outputs().len(), 201);
    assert!(patch.size() > 4000 * 50);
}

/// F36: a chain of 1,000, from its first action to its last.
#[test]
fn f36_a_chain_of_1000_runs() {
    const LENGTH: usize = 1_000;
    let before = |index: usize| index.checked_sub(1);
    let actions = (0..LENGTH).map(|index| {
        let name = format!("a{index}");
        PlannedAction::new(name, Mode::Plain).after(before(index))
    });
    let mut bench = Bench::new(actions.collect());
    for index in 0..LENGTH {
        let task = Task::to_do(index);
        assert_ne!(bench.status(), Status::Completed);
        let begin = Event::Begin {
            tasks: vec![task],
            worker: "w".to_owned(),
        };
        let succeeded = Event::Succeeded {
            task,
            number: 1,
            output: Bson::Null,
        };
        for event in [begin, succeeded] {
            let _ = advance(&mut bench.record, event, bench.now, &bench.limits).unwrap();
        }
    }
    assert_eq!(bench.status(), Status::Completed);
    assert_eq!(check(&bench.record), []);
    let attempts = bench.record.actions.iter().map(|action| action.attempts);
    assert_eq!(attempts.sum::<i64>(), i64::try_from(LENGTH).unwrap());
}
