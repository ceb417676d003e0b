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

/// What was found where a milestone should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// There is no such milestone any more.
    Gone,
    /// This version cannot read it: a later one may have written it.
    Unreadable,
    Seen(View),
}

/// What becomes of a trace of an action.
pub(crate) fn fate(found: &Found, action: &str) -> Fate {
    let view = match found {
        Found::Gone => return Fate::Over(None),
        Found::Unreadable => return Fate::Keep,
        Found::Seen(view) => view,
    };
    let is_complete = view
        .actions
        .iter()
        .any(|(name, state, _)| name == action && *state == ActionState::Completed);
    // The undo of another action may take back what this one wrote.
    let can_be_undone = view.actions.iter().any(|(.., undo)| *undo);
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

    fn view(state: Status, action: ActionState, undo: bool) -> Found {
        Found::Seen(View {
            state,
            end_date: state.is_terminal().then(|| DateTime::from_millis(7)),
            actions: vec![("debit".to_owned(), action, undo)],
        })
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
            assert_eq!(fate(&view(state, action, undo), "debit"), Fate::Keep);
        }
    }

    #[test]
    fn what_the_undo_of_another_action_may_ask_for_is_kept() {
        let actions = vec![
            ("reserve".to_owned(), ActionState::Completed, false),
            ("charge".to_owned(), ActionState::Running, true),
        ];
        let view = View {
            state: Status::Running,
            end_date: None,
            actions,
        };
        assert_eq!(fate(&Found::Seen(view), "reserve"), Fate::Keep);
    }

    #[test]
    fn what_belongs_to_a_milestone_that_cannot_be_read_is_kept() {
        assert_eq!(fate(&Found::Unreadable, "debit"), Fate::Keep);
    }

    #[test]
    fn what_is_over_may_go() {
        let ended = Some(DateTime::from_millis(7));
        for state in [Status::Completed, Status::Undone, Status::Cancelled] {
            let view = view(state, ActionState::Completed, true);
            assert_eq!(fate(&view, "debit"), Fate::Over(ended));
        }
        let complete = view(Status::Running, ActionState::Completed, false);
        assert_eq!(fate(&complete, "debit"), Fate::Over(None));
        assert_eq!(fate(&Found::Gone, "debit"), Fate::Over(None));
    }

    #[test]
    fn a_failed_milestone_may_be_retried() {
        let failed = view(Status::Failed, ActionState::Failed, false);
        assert_eq!(fate(&failed, "debit"), Fate::Retriable);
        let complete = view(Status::Failed, ActionState::Completed, false);
        let ended = Some(DateTime::from_millis(7));
        assert_eq!(fate(&complete, "debit"), Fate::Over(ended));
        assert_eq!(fate(&failed, "unknown"), Fate::Retriable);
    }
}
