//! Values of the schema as they are stored. What each step of a milestone writes is encoded by hand: serde would make a document of every
//! date on the way, and take most of the time of a step.

use bson::{Bson, DateTime, Document, doc};
use serde::Serialize;

use crate::record::{
    ActionState, Answer, Attempt, AttemptError, AttemptKind, Due, Hold, Next, Phase, Running,
    UndoState, Unwind, VerifyState,
};

/// A value of the schema.
pub(super) trait Encode {
    fn encode(&self) -> Bson;
}

pub(super) fn encode_all<T: Encode>(values: &[T]) -> Vec<Bson> {
    values.iter().map(Encode::encode).collect()
}

/// For what is seldom written.
fn by_serde<T: Serialize>(value: &T) -> Bson {
    bson::serialize_to_bson(value).expect("the schema's own types fit BSON")
}

impl Encode for DateTime {
    fn encode(&self) -> Bson {
        Bson::DateTime(*self)
    }
}

impl Encode for ActionState {
    fn encode(&self) -> Bson {
        let name = match self {
            Self::Pending => "pending",
            Self::Ready => "ready",
            Self::Running => "running",
            Self::Backoff => "backoff",
            Self::InDoubt => "in_doubt",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        };
        name.into()
    }
}

impl Encode for VerifyState {
    fn encode(&self) -> Bson {
        by_serde(self)
    }
}

impl Encode for UndoState {
    fn encode(&self) -> Bson {
        by_serde(self)
    }
}

impl Encode for Running {
    fn encode(&self) -> Bson {
        let Self {
            number,
            begin_date,
            worker,
            epoch,
        } = self;
        doc! { "number": number, "beginDate": begin_date, "worker": worker, "epoch": epoch }.into()
    }
}

impl Encode for Attempt {
    fn encode(&self) -> Bson {
        let Self {
            action,
            number,
            phase,
            success,
            kind,
            begin_date,
            end_date,
            worker,
            error,
        } = self;
        let mut attempt = doc! { "action": action, "number": number };
        if *phase != Phase::Do {
            attempt.insert("phase", by_serde(phase));
        }
        attempt.insert("success", *success);
        if let Some(kind) = kind {
            attempt.insert("kind", by_serde::<AttemptKind>(kind));
        }
        attempt.insert("beginDate", *begin_date);
        attempt.insert("endDate", *end_date);
        attempt.insert("worker", worker);
        if let Some(error) = error {
            attempt.insert("error", error_document(error));
        }
        attempt.into()
    }
}

fn error_document(error: &AttemptError) -> Document {
    let AttemptError {
        kind,
        message,
        chain,
        backtrace,
        location,
    } = error;
    let mut document = doc! { "type": kind, "message": message };
    if !chain.is_empty() {
        document.insert("chain", chain.clone());
    }
    if let Some(backtrace) = backtrace {
        document.insert("backtrace", backtrace);
    }
    if let Some(location) = location {
        document.insert("location", location);
    }
    document
}

impl Encode for Due {
    fn encode(&self) -> Bson {
        let Self { queue, at, method } = self;
        doc! { "queue": queue, "at": at, "method": method }.into()
    }
}

impl Encode for Next {
    fn encode(&self) -> Bson {
        let Self { queue, at } = self;
        doc! { "queue": queue, "at": at }.into()
    }
}

impl Encode for Hold {
    fn encode(&self) -> Bson {
        by_serde(self)
    }
}

impl Encode for Unwind {
    fn encode(&self) -> Bson {
        by_serde(self)
    }
}

impl Encode for Answer {
    fn encode(&self) -> Bson {
        by_serde(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same<T: Encode + Serialize>(value: &T) {
        let encoded = doc! { "value": value.encode() }.to_vec().unwrap();
        let expected = doc! { "value": by_serde(value) }.to_vec().unwrap();
        assert_eq!(encoded, expected, "{}", value.encode());
    }

    #[test]
    fn what_is_encoded_by_hand_is_what_serde_makes_of_it() {
        let at = DateTime::from_millis(1_700_000_000_123);
        for state in [
            ActionState::Pending,
            ActionState::Ready,
            ActionState::Running,
            ActionState::Backoff,
            ActionState::InDoubt,
            ActionState::Completed,
            ActionState::Failed,
            ActionState::Skipped,
        ] {
            same(&state);
        }
        for at in [at, DateTime::MIN, DateTime::MAX] {
            same(&at);
        }
        same(&Running {
            number: 3,
            begin_date: at,
            worker: "w".to_owned(),
            epoch: 2,
        });
        same(&Due {
            queue: "q".to_owned(),
            at,
            method: "m".to_owned(),
        });
        same(&Next {
            queue: "q".to_owned(),
            at,
        });
        let plain = AttemptError {
            kind: "Type".to_owned(),
            message: "text".to_owned(),
            ..AttemptError::default()
        };
        let full = AttemptError {
            chain: vec!["a".to_owned(), "b".to_owned()],
            backtrace: Some("stack".to_owned()),
            location: Some("file:1:2".to_owned()),
            ..plain.clone()
        };
        for error in [None, Some(plain), Some(full)] {
            for (success, kind) in [
                (Some(true), None),
                (Some(false), Some(AttemptKind::Timeout)),
                (None, Some(AttemptKind::Abandoned)),
            ] {
                for phase in Phase::ALL {
                    same(&Attempt {
                        action: "a".to_owned(),
                        number: 7,
                        phase,
                        success,
                        kind,
                        begin_date: at,
                        end_date: at,
                        worker: "w".to_owned(),
                        error: error.clone(),
                    });
                }
            }
        }
    }
}
