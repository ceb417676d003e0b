//! Carrying out patches.

use std::{collections::HashMap, ops::Range, sync::Arc};

use bson::{Bson, Document, doc};
use mongodb::error::Error;

use super::{
    connect::Connection,
    errors,
    judge::{Verdict, judge},
    nesting,
    read::{self, Concern},
    update::{self, MAX_DOCUMENT, Reply, Statement, WriteError},
};
use crate::store::{Commit, Committed, StoreError};

/// What the patch rests on: the lease, the one before it, and that it overlooks no command.
fn filter(commit: &Commit) -> Document {
    let mut filter = doc! { "_id": Bson::from(commit.id.clone()), "lease.token": &commit.token, "rev": commit.rev };
    if let Some(mail) = commit.patch.mail() {
        filter.insert("mail", mail);
    }
    filter
}

/// The statement of a commit; an error if no server would take it, so that it cannot spoil the command in which others are.
fn statement(commit: &Commit) -> Result<Statement, StoreError> {
    let refused = |reason: String| StoreError::Refused { reason };
    if nesting::is_patch_too_deep(&commit.patch) {
        return Err(refused(nesting::TOO_DEEP.to_owned()));
    }
    let update = commit
        .patch
        .to_raw_update(commit.rev + 1)
        .map_err(|error| refused(error.to_string()))?;
    let statement =
        update::statement(&filter(commit), &update).map_err(|error| refused(error.to_string()))?;
    let size = statement.as_bytes().len();
    if size > MAX_DOCUMENT {
        return Err(refused(format!(
            "a change of {size} bytes is more than {MAX_DOCUMENT}"
        )));
    }
    Ok(statement)
}

/// Carries out patches, in as few commands as the limits allow.
pub(super) async fn commit(
    connection: &Connection,
    batch: &[Commit],
) -> Result<Vec<Committed>, StoreError> {
    let mut outcomes: Vec<Option<Committed>> = (0..batch.len()).map(|_| None).collect();
    let mut sent = Vec::with_capacity(batch.len());
    for (index, commit) in batch.iter().enumerate() {
        match statement(commit) {
            Ok(statement) => sent.push(Sending {
                index,
                commit,
                statement,
            }),
            Err(error) => outcomes[index] = Some(Committed::Refused(Arc::new(error))),
        }
    }
    let mut work = update::commands(
        sent.iter()
            .map(|sending| sending.statement.as_bytes().len()),
    );
    work.reverse();
    let mut away = None;
    while let Some(range) = work.pop() {
        let part = &sent[range.clone()];
        let settled = match &away {
            Some(error) => unknown(part, error),
            None => match update::send(connection, part.iter().map(|sending| &sending.statement))
                .await
            {
                Ok(reply) if reply.is_complete(part.len()) => {
                    part.iter().map(|_| Committed::Done).collect()
                }
                Ok(reply) => settle(connection, part, Failure::of_reply(&reply)).await,
                Err(error)
                    if part.len() > 1
                        && errors::command_code(&error).is_some_and(errors::is_of_content) =>
                {
                    work.extend(halves(&range));
                    continue;
                }
                Err(error) if errors::never_sent(&error) => {
                    let error = Arc::new(connection.error(error));
                    let settled = unknown(part, &error);
                    away = Some(error);
                    settled
                }
                Err(error) => {
                    settle(connection, part, Failure::of_command(connection, error)).await
                }
            },
        };
        for (sending, outcome) in part.iter().zip(settled) {
            outcomes[sending.index] = Some(outcome);
        }
    }
    Ok(outcomes
        .into_iter()
        .map(|outcome| outcome.expect("each commit was refused, or is in a range"))
        .collect())
}

/// A commit on its way, and its place in the batch.
struct Sending<'a> {
    index: usize,
    commit: &'a Commit,
    statement: Statement,
}

/// A command that is refused for what is in it is divided until the guilty one is alone. The first half is the last, since it is
/// taken from the end.
fn halves(range: &Range<usize>) -> [Range<usize>; 2] {
    let middle = range.start + range.len() / 2;
    [middle..range.end, range.start..middle]
}

fn unknown(part: &[Sending<'_>], error: &Arc<StoreError>) -> Vec<Committed> {
    part.iter()
        .map(|_| Committed::Unknown(Arc::clone(error)))
        .collect()
}

/// Why it is not known that all were carried out.
struct Failure {
    /// Of single statements.
    of: HashMap<usize, WriteError>,
    /// Of the whole command.
    error: Arc<StoreError>,
    /// The server does not take the one statement that is in it.
    refused: bool,
}

impl Failure {
    fn of_reply(reply: &Reply) -> Self {
        let reason = reply.concern.as_ref().map_or_else(
            || "the database did not carry out a change, and does not say why".to_owned(),
            |concern| {
                format!("the database does not know whether a majority has the change: {concern}")
            },
        );
        Self {
            of: reply
                .write_errors
                .iter()
                .map(|error| (error.index, error.clone()))
                .collect(),
            error: Arc::new(StoreError::Other(reason)),
            refused: false,
        }
    }

    fn of_command(connection: &Connection, error: Error) -> Self {
        let refused = errors::command_code(&error).is_some_and(errors::is_of_content);
        let error = if refused {
            StoreError::Refused {
                reason: errors::reason(&error),
            }
        } else {
            connection.error(error)
        };
        Self {
            of: HashMap::new(),
            error: Arc::new(error),
            refused,
        }
    }

    /// What is to be said of a patch that is not stored.
    fn outcome(&self, index: usize) -> Committed {
        match self.of.get(&index) {
            Some(error) if errors::is_for_good(error.code) => {
                Committed::Refused(Arc::new(StoreError::Refused {
                    reason: error.text(),
                }))
            }
            Some(error) => Committed::Unknown(Arc::new(StoreError::Other(error.text()))),
            None if self.refused => Committed::Refused(Arc::clone(&self.error)),
            None => Committed::Unknown(Arc::clone(&self.error)),
        }
    }
}

/// Reads what became of patches, since the reply does not tell it.
async fn settle(connection: &Connection, part: &[Sending<'_>], failure: Failure) -> Vec<Committed> {
    let ids: Vec<_> = part
        .iter()
        .map(|sending| sending.commit.id.clone())
        .collect();
    let held = match read::held(connection, &ids).await {
        Ok(held) => held,
        Err(error) => return unknown(part, &Arc::new(connection.error(error))),
    };
    let mut outcomes = Vec::with_capacity(part.len());
    for (index, Sending { commit, .. }) in part.iter().enumerate() {
        outcomes.push(match judge(commit, held.get(&commit.id)) {
            Verdict::Done => Committed::Done,
            Verdict::Lost => Committed::Lost,
            Verdict::Open => failure.outcome(index),
            Verdict::Mail => with_mail(connection, commit).await,
        });
    }
    outcomes
}

/// Reads a milestone that has had more mail than the patch knows of.
async fn with_mail(connection: &Connection, commit: &Commit) -> Committed {
    let ids = [commit.id.clone()];
    let documents = match read::documents(connection, &ids, None, Concern::Settled).await {
        Ok(documents) => documents,
        Err(error) => return Committed::Unknown(Arc::new(connection.error(error))),
    };
    match documents.first().map(read::record) {
        Some(Ok(record)) => {
            let held = record
                .lease
                .as_ref()
                .is_some_and(|lease| lease.token == commit.token);
            if held && record.rev == commit.rev {
                Committed::Mail(Box::new(record))
            } else {
                Committed::Lost
            }
        }
        // Somebody changed it by hand so that it makes no sense: no patch can be made for it any more.
        Some(Err(_)) | None => Committed::Lost,
    }
}

#[cfg(test)]
mod tests {
    use milestone_core::patch::Patch;

    use super::*;

    fn sets(path: &str, value: impl Into<Bson>) -> Commit {
        commit_of(Patch::for_tests(
            vec![(path.to_owned(), value.into())],
            vec![],
            None,
            false,
        ))
    }

    fn commit_of(patch: Patch) -> Commit {
        Commit {
            id: "a".into(),
            token: "t".to_owned(),
            rev: 5,
            patch: Arc::new(patch),
        }
    }

    #[test]
    fn the_filter_is_plain_equality_on_what_the_patch_rests_on() {
        let keeps = commit_of(Patch::default());
        assert_eq!(
            filter(&keeps),
            doc! { "_id": "a", "lease.token": "t", "rev": 5_i64 }
        );
        let guarded = commit_of(Patch::for_tests(vec![], vec![], Some(3), false));
        assert_eq!(
            filter(&guarded),
            doc! { "_id": "a", "lease.token": "t", "rev": 5_i64, "mail": 3_i64 }
        );
    }

    #[test]
    fn the_statement_sets_the_next_rev() {
        let statement = statement(&sets("state", "running")).unwrap();
        let expected = doc! {
            "q": { "_id": "a", "lease.token": "t", "rev": 5_i64 },
            "u": { "$set": { "state": "running", "rev": 6_i64 } },
        };
        assert_eq!(Document::try_from(&*statement).unwrap(), expected);
    }

    #[test]
    fn what_no_server_takes_is_not_sent() {
        let large = sets("x", "y".repeat(MAX_DOCUMENT));
        assert!(matches!(statement(&large), Err(StoreError::Refused { .. })));
        let mut deep = Bson::Null;
        for _ in 0..200 {
            deep = doc! { "a": deep }.into();
        }
        let deep = sets("x", deep);
        assert!(matches!(statement(&deep), Err(StoreError::Refused { .. })));
    }

    #[test]
    fn a_refused_command_is_divided_first_half_first() {
        let [last, first] = halves(&(3..8));
        assert_eq!((first, last), (3..5, 5..8));
    }

    #[test]
    fn only_a_write_error_for_good_refuses_the_patch() {
        let of = |code| WriteError {
            index: 0,
            code,
            message: "no".to_owned(),
        };
        let reply = |code| {
            Failure::of_reply(&Reply {
                matched: 0,
                write_errors: vec![of(code)],
                concern: None,
            })
        };
        assert!(matches!(reply(17419).outcome(0), Committed::Refused(_)));
        assert!(matches!(reply(112).outcome(0), Committed::Unknown(_)));
        assert!(matches!(reply(17419).outcome(1), Committed::Unknown(_)));
    }
}
