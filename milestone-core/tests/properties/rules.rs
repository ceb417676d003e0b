//! What must hold from one state to the next.

use milestone_core::record::{
    ActionRecord, ActionState, MilestoneRecord, Phase, Status, UndoRecord, UndoState, Unwind,
};

pub(crate) fn check_step(before: &MilestoneRecord, after: &MilestoneRecord) {
    assert!(
        after.epoch >= before.epoch && after.rev > before.rev && after.mail >= before.mail,
        "epoch, rev and mail only grow"
    );
    assert_eq!(
        (&before.id, &before.kind, &before.parameters),
        (&after.id, &after.kind, &after.parameters)
    );
    assert!(after.report_dropped >= before.report_dropped);
    assert!(
        before.begin_date.is_none() || before.begin_date == after.begin_date,
        "beginDate never changes"
    );
    assert!(
        before.unwind.is_none()
            || before.unwind == after.unwind
            || (before.state == Status::Failed && after.unwind.is_none())
            || (after.state == Status::Completed
                && before.unwind.as_ref().is_some_and(Unwind::is_overdue)),
        "what is undone stays so"
    );
    assert!(
        !before.state.is_terminal() || before.state == Status::Failed,
        "{} is final",
        before.state
    );
    let changed = before.lease.as_ref().map(|lease| &lease.token)
        != after.lease.as_ref().map(|lease| &lease.token);
    assert!(
        !changed || after.lease.is_none() || after.epoch == before.epoch + 1,
        "each lease has an epoch of its own"
    );
    for (old, new) in before.actions.iter().zip(&after.actions) {
        check_action(old, new);
        if new.state == ActionState::Running && old.state != ActionState::Running {
            let mut waits = new
                .after
                .iter()
                .map(|index| &before.actions[*index as usize]);
            assert!(
                waits.all(|other| other.state == ActionState::Completed),
                "`{}` begins too early",
                new.name
            );
            assert!(
                before.hold.is_none() && before.unwind.is_none() && before.lease.is_some(),
                "`{}` must not begin",
                new.name
            );
        }
    }
    check_order_of_undoing(before, after);
    check_report(before, after);
}

fn check_action(old: &ActionRecord, new: &ActionRecord) {
    let name = &new.name;
    assert_eq!(
        (&old.name, old.kind, &old.method, old.mode, &old.after),
        (&new.name, new.kind, &new.method, new.mode, &new.after)
    );
    assert!(
        new.attempts >= old.attempts && new.attempts <= old.attempts + 1,
        "`{name}`: attempts are counted one by one"
    );
    if old.state == ActionState::Completed {
        assert_eq!(
            (new.state, &new.output, new.attempts),
            (old.state, &old.output, old.attempts),
            "`{name}` was complete"
        );
    }
    assert!(
        old.output.is_none() || old.output == new.output,
        "the output of `{name}` is stored once"
    );
    let begins = new.attempts > old.attempts;
    assert_eq!(
        begins,
        new.state == ActionState::Running && old.state != ActionState::Running
    );
    if begins {
        assert!(
            matches!(old.state, ActionState::Ready | ActionState::Backoff),
            "`{name}` begins, and was {:?}",
            old.state
        );
    }
    // At most once: what may have taken effect is run again only after its own error or after somebody's word.
    if !old.mode.repeatable() {
        assert!(
            !matches!(
                (old.state, new.state),
                (ActionState::Running, ActionState::Ready)
                    | (ActionState::InDoubt, ActionState::Running)
            ),
            "`{name}` is plain and is run again by itself"
        );
    }
    if let (Some(old_verify), Some(verify)) = (&old.verify, &new.verify) {
        let begins = verify.attempts - old_verify.attempts;
        assert!(begins == 0 || (begins == 1 && old.state == ActionState::InDoubt));
    }
    let (Some(old), Some(new)) = (&old.undo, &new.undo) else {
        return;
    };
    assert!(new.attempts >= old.attempts && new.attempts <= old.attempts + 1);
    assert!(
        !is_over(old) || is_over(new),
        "the undo of `{name}` was over"
    );
}

fn is_over(undo: &UndoRecord) -> bool {
    matches!(undo.state, UndoState::Done | UndoState::Waived)
}

/// Nothing is undone while something that came after it is not.
fn check_order_of_undoing(before: &MilestoneRecord, after: &MilestoneRecord) {
    for (index, (old, new)) in before.actions.iter().zip(&after.actions).enumerate() {
        let attempts = |action: &ActionRecord| action.undo.as_ref().map_or(0, |undo| undo.attempts);
        if attempts(new) <= attempts(old) {
            continue;
        }
        assert!(before.hold.is_none() && before.unwind.is_some());
        for (later, action) in before.actions.iter().enumerate() {
            if before.ancestors(later)[index] && action.attempts > 0 {
                let settled = match &action.undo {
                    Some(undo) => is_over(undo),
                    None => !matches!(action.state, ActionState::Running | ActionState::InDoubt),
                };
                assert!(settled, "`{}` is undone before `{}`", new.name, action.name);
            }
        }
    }
}

/// Attempts come in front, those that stay are as they were but for what makes them smaller, and none is lost uncounted.
fn check_report(before: &MilestoneRecord, after: &MilestoneRecord) {
    let total = |record: &MilestoneRecord| {
        i64::try_from(record.report.len()).expect("few") + record.report_dropped
    };
    let ended = |record: &MilestoneRecord| -> i64 {
        let phases = Phase::ALL.into_iter();
        let of_phase = |phase| {
            let tries = record
                .actions
                .iter()
                .filter_map(move |action| action.tries(phase));
            tries
                .map(|tries| tries.attempts - i64::from(tries.running.is_some()))
                .sum::<i64>()
        };
        phases.map(of_phase).sum()
    };
    assert_eq!(
        total(after),
        ended(after),
        "every attempt is in the report or counted"
    );
    assert!(total(after) >= total(before));
    for action in after
        .actions
        .iter()
        .filter(|action| action.attempts > i64::from(action.running.is_some()))
    {
        let newest = after
            .report
            .iter()
            .find(|attempt| attempt.action == action.name && attempt.phase == Phase::Do);
        let newest = newest.map_or(0, |attempt| attempt.number);
        assert!(
            newest == action.attempts - i64::from(action.running.is_some())
                || after.report_dropped > 0
        );
    }
}
