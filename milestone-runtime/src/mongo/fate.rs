//! When what was left behind may go. Pure.
//!
//! A marker or a witness keeps a write from being applied twice, so it must stay as long as its action may run again, and as long after
//! that as a write of a worker that lost its lease may still arrive.

use bson::DateTime;
use milestone_core::record::{ActionState, Status};

/// What is known of the milestone of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) state: Status,
    pub(crate) end_date: Option<DateTime>,
    /// Each action's name, how far it is, and whether it can be undone.
    pub(crate) actions: Vec<(String, ActionState, bool)>,
}

/// What becomes of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It may be needed.
    Keep,
    /// It is of no more use, since that time, or since now if it is not known.
    Over(Option<DateTime>),
    /// The milestone has failed and may be retried: what a marker tells must be kept, in another place.
    Retriable,
}

/// What becomes of a trace of an action; `None` for a milestone that does not exist.
pub(crate) fn fate(view: Option<&View>, action: &str) -> Fate {
    let Some(view) = view else {
        return Fate::Over(None);
    };
    let found = view.actions.iter().find(|(name, ..)| name == action);
    let is_complete = matches!(found, Some((_, ActionState::Completed, _)));
    let can_be_undone = matches!(found, Some((.., true)));
    match view.state {
        Status::Completed | Status::Undone | Status::Cancelled => Fate::Over(view.end_date),
        // Only a failed milestone can be left again, and then what is complete is not run again.
        Status::Failed if is_complete && !can_be_undone => Fate::Over(view.end_date),
        Status::Failed => Fate::Retriable,
        _ if is_complete && !can_be_undone => Fate::Over(None),
        _ => Fate::Keep,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(state: Status, action: ActionState, undo: bool) -> View {
        View {
            state,
            end_date: state.is_terminal().then(|| DateTime::from_millis(7)),
            actions: vec![("debit".to_owned(), action, undo)],
        }
    }

    #[test]
    fn what_may_run_again_or_be_undone_is_kept() {
        for (state, action, undo) in [
            (Status::Running, ActionState::Running, false),
            (Status::Waiting, ActionState::Backoff, false),
            (Status::InDoubt, ActionState::InDoubt, false),
            (Status::Running, ActionState::Completed, true),
            (Status::Undoing, ActionState::Failed, true),
        ] {
            assert_eq!(fate(Some(&view(state, action, undo)), "debit"), Fate::Keep);
        }
    }

    #[test]
    fn what_is_over_may_go() {
        let ended = Some(DateTime::from_millis(7));
        for state in [Status::Completed, Status::Undone, Status::Cancelled] {
            let view = view(state, ActionState::Completed, true);
            assert_eq!(fate(Some(&view), "debit"), Fate::Over(ended));
        }
        let complete = view(Status::Running, ActionState::Completed, false);
        assert_eq!(fate(Some(&complete), "debit"), Fate::Over(None));
        assert_eq!(fate(None, "debit"), Fate::Over(None));
    }

    #[test]
    fn a_failed_milestone_may_be_retried() {
        let failed = view(Status::Failed, ActionState::Failed, false);
        assert_eq!(fate(Some(&failed), "debit"), Fate::Retriable);
        let complete = view(Status::Failed, ActionState::Completed, false);
        let ended = Some(DateTime::from_millis(7));
        assert_eq!(fate(Some(&complete), "debit"), Fate::Over(ended));
        assert_eq!(fate(Some(&failed), "unknown"), Fate::Retriable);
    }
}
