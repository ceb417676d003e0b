//! Random graphs: any DAG of up to eight actions, with forks, undos, modes and queues.

use milestone_core::{
    graph::{Plan, PlannedAction},
    options::Mode,
};
use proptest::{collection::vec, prelude::*};

#[derive(Clone, Debug)]
struct Sketch {
    fork: bool,
    mode: Mode,
    undo: bool,
    verify: bool,
    queue: Option<&'static str>,
    /// One bit for each action before it.
    after: u8,
    /// Which method: some actions share one.
    method: u8,
}

fn sketch() -> impl Strategy<Value = Sketch> {
    let mode = prop_oneof![
        Just(Mode::Plain),
        Just(Mode::Idempotent),
        Just(Mode::Transactional)
    ];
    let queue = prop_oneof![3 => Just(None), 1 => Just(Some("slow")), 1 => Just(Some("fast"))];
    let parts = (
        prop::bool::weighted(0.15),
        mode,
        any::<(bool, bool)>(),
        queue,
        any::<u8>(),
        0..4_u8,
    );
    parts.prop_map(
        |(fork, mode, (undo, verify), queue, after, method)| Sketch {
            fork,
            mode,
            undo,
            verify,
            queue,
            after,
            method,
        },
    )
}

/// Half of the graphs have no undo at all, since those fail in another way.
pub(crate) fn plans() -> impl Strategy<Value = Plan> {
    (vec(sketch(), 1..8), any::<bool>()).prop_map(|(sketches, undo)| plan(&sketches, undo))
}

fn plan(sketches: &[Sketch], undo: bool) -> Plan {
    let count = sketches.len();
    let after =
        |index: usize| (0..index).filter(move |before| sketches[index].after & (1 << before) != 0);
    let followed =
        |index: usize| (index + 1..count).any(|later| after(later).any(|before| before == index));
    let actions = sketches.iter().enumerate().map(|(index, sketch)| {
        let mut action =
            PlannedAction::new(format!("action-{index}"), sketch.mode).after(after(index));
        action.method = Some(format!("method-{}", sketch.method));
        if sketch.fork && followed(index) {
            action.method = None;
        } else if undo && sketch.undo {
            action.undo = Some(format!("undo-{}", sketch.method));
        }
        if sketch.verify && sketch.mode == Mode::Plain && action.method.is_some() {
            action.verify = Some(format!("verify-{}", sketch.method));
        }
        action.queue = sketch.queue.map(str::to_owned);
        action
    });
    Plan::new(actions.collect()).expect("a valid graph")
}
