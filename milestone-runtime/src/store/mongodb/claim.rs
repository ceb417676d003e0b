//! Taking milestones that are due.

use bson::{Bson, Document, doc};
use futures_util::TryStreamExt as _;
use milestone_core::{
    lease::{self, Seen},
    record::{Lease, MilestoneId, MilestoneRecord},
};
use mongodb::error::Error;

use super::{
    connect::Connection,
    errors,
    read::{self, Concern},
    update::{self, Statement},
};
use crate::store::{ClaimRequest, Claimed, StoreError};

/// How many candidates are looked at for one that is taken, so that workers do not all fight over the first ones.
const SPREAD: usize = 3;

/// What is due for the worker. The index leads to what is due for anybody in its queues.
fn candidates(request: &ClaimRequest) -> Document {
    let methods: Vec<&str> = request
        .methods
        .iter()
        .map(String::as_str)
        .chain([""])
        .collect();
    let except: Vec<Bson> = request.except.iter().cloned().map(Bson::from).collect();
    let mut filter = doc! {
        "next.queue": { "$in": &request.queues },
        "next.at": { "$lte": request.now },
        "due": { "$elemMatch": { "method": { "$in": methods }, "at": { "$lte": request.now } } },
        // Others are not milestones, and there is no way to leave them out by their id.
        "_id": { "$type": ["objectId", "string"], "$nin": except },
    };
    match request.expired_before {
        None => filter.insert("lease", Bson::Null),
        Some(before) => filter.insert(
            "$or",
            [
                doc! { "lease": Bson::Null },
                doc! { "lease.until": { "$lt": before } },
            ],
        ),
    };
    filter
}

/// All that the decision to take it rests on, by plain equality.
fn filter(id: &MilestoneId, seen: &Seen) -> Document {
    let mut filter = doc! { "_id": Bson::from(id.clone()), "rev": seen.rev, "epoch": seen.epoch, "mail": seen.mail };
    match &seen.lease {
        Some((token, until)) => {
            filter.insert("lease.token", token);
            filter.insert("lease.until", *until);
        }
        None => {
            filter.insert("lease", Bson::Null);
        }
    }
    filter
}

/// Whether it may be taken as it is now: between the look at the index and the reading of the document it may have changed.
fn may_be_taken(record: &MilestoneRecord, request: &ClaimRequest) -> bool {
    let is_wanted = record
        .next
        .as_ref()
        .is_some_and(|next| next.at <= request.now && request.queues.contains(&next.queue));
    let is_known = |method: &String| method.is_empty() || request.methods.contains(method);
    let is_due = record
        .due
        .iter()
        .any(|due| due.at <= request.now && is_known(&due.method));
    let is_free = match (&record.lease, request.expired_before) {
        (None, _) => true,
        (Some(lease), Some(before)) => lease.until < before,
        (Some(_), None) => false,
    };
    is_wanted && is_due && is_free
}

/// Spreads the candidates; those of a higher priority come first all the same.
fn spread(mut candidates: Vec<(MilestoneId, i64)>, limit: usize) -> Vec<MilestoneId> {
    fastrand::shuffle(&mut candidates);
    candidates.sort_by_key(|(_, priority)| std::cmp::Reverse(*priority));
    candidates.truncate(limit);
    candidates.into_iter().map(|(id, _)| id).collect()
}

async fn look(
    connection: &Connection,
    request: &ClaimRequest,
) -> Result<Vec<(MilestoneId, i64)>, Error> {
    let limit = u32::try_from(request.limit.saturating_mul(SPREAD)).unwrap_or(u32::MAX);
    // What is due first comes first, so that no queue starves behind another.
    let find = connection
        .milestones
        .find(candidates(request))
        .with_options(Concern::Local.options())
        .projection(doc! { "priority": 1 })
        .sort(doc! { "next.at": 1 })
        .limit(i64::from(limit))
        .batch_size(limit);
    let documents: Vec<_> = find.await?.try_collect().await?;
    let candidate = |document| Some((read::id(document)?, read::integer(document, "priority")));
    Ok(documents.iter().filter_map(candidate).collect())
}

/// A milestone that is being taken.
struct Taking {
    record: MilestoneRecord,
    statement: Statement,
}

impl Taking {
    fn new(
        mut record: MilestoneRecord,
        request: &ClaimRequest,
    ) -> Result<Self, bson::error::Error> {
        let filter = filter(&record.id, &Seen::of(&record));
        let patch = lease::claim(&mut record, lease(request));
        record.rev += 1;
        let statement = update::statement(filter, patch.to_update(record.rev))?;
        Ok(Self { record, statement })
    }
}

fn lease(request: &ClaimRequest) -> Lease {
    let (owner, token) = (request.owner.clone(), request.token.clone());
    Lease {
        owner,
        token,
        since: request.now,
        until: request.until,
    }
}

/// Takes milestones.
pub(super) async fn claim(
    connection: &Connection,
    request: &ClaimRequest,
) -> Result<Claimed, StoreError> {
    let mut claimed = Claimed::default();
    if request.limit == 0 {
        return Ok(claimed);
    }
    let candidates = look(connection, request)
        .await
        .map_err(|error| connection.error(error))?;
    if candidates.is_empty() {
        return Ok(claimed);
    }
    let ids = spread(candidates, request.limit);
    let documents = read::documents(connection, &ids, None, Concern::Local).await;
    let documents = documents.map_err(|error| connection.error(error))?;
    claimed.missed = ids.len() - documents.len();
    let mut taking = Vec::with_capacity(documents.len());
    for document in documents {
        match (read::record(&document), read::id(&document)) {
            (Ok(record), _) if may_be_taken(&record, request) => {
                taking.push(
                    Taking::new(record, request)
                        .map_err(|error| StoreError::Other(error.to_string()))?,
                );
            }
            (Err(unreadable), Some(id)) => claimed.unreadable.push((id, unreadable)),
            _ => claimed.missed += 1,
        }
    }
    let mut failure = None;
    for range in update::commands(
        taking
            .iter()
            .map(|taking| taking.statement.as_bytes().len()),
    )
    .into_iter()
    .rev()
    {
        let part = taking.split_off(range.start);
        match take(connection, part, &request.token).await {
            Ok((records, missed)) => {
                claimed.records.extend(records);
                claimed.missed += missed;
            }
            Err(error) => failure = Some(error),
        }
    }
    match failure {
        // What was taken must reach the worker, since nobody else will look at it before the lease ends.
        Some(error) if claimed.records.is_empty() => Err(error),
        _ => Ok(claimed),
    }
}

/// Takes some in one command. If the reply does not tell which were taken, that is read.
async fn take(
    connection: &Connection,
    part: Vec<Taking>,
    token: &str,
) -> Result<(Vec<MilestoneRecord>, usize), StoreError> {
    let reply = update::send(connection, part.iter().map(|taking| &taking.statement)).await;
    if reply
        .as_ref()
        .is_ok_and(|reply| reply.is_complete(part.len()))
    {
        return Ok((part.into_iter().map(|taking| taking.record).collect(), 0));
    }
    let reply = match reply {
        Err(error) if errors::never_sent(&error) => return Err(connection.error(error)),
        reply => reply,
    };
    let ids: Vec<_> = part.iter().map(|taking| taking.record.id.clone()).collect();
    let held = read::held(connection, &ids)
        .await
        .map_err(|error| connection.error(error))?;
    let all = part.len();
    let records: Vec<_> = part
        .into_iter()
        .map(|taking| taking.record)
        .filter(|record| {
            held.get(&record.id)
                .is_some_and(|held| held.token.as_deref() == Some(token) && held.rev == record.rev)
        })
        .collect();
    match reply {
        Err(error) if records.is_empty() => Err(connection.error(error)),
        _ => {
            let missed = all - records.len();
            Ok((records, missed))
        }
    }
}

#[cfg(test)]
mod tests {
    use bson::DateTime;

    use super::*;

    fn request() -> ClaimRequest {
        ClaimRequest {
            owner: "w".to_owned(),
            token: "t".to_owned(),
            limit: 2,
            now: DateTime::from_millis(100),
            until: DateTime::from_millis(200),
            queues: vec!["default".to_owned()],
            methods: vec!["debit".to_owned()],
            expired_before: None,
            except: vec!["held".into()],
        }
    }

    #[test]
    fn candidates_are_due_known_free_and_not_excepted() {
        let now = DateTime::from_millis(100);
        let mut expected = doc! {
            "next.queue": { "$in": ["default"] },
            "next.at": { "$lte": now },
            "due": { "$elemMatch": { "method": { "$in": ["debit", ""] }, "at": { "$lte": now } } },
            "_id": { "$type": ["objectId", "string"], "$nin": ["held"] },
            "lease": null,
        };
        assert_eq!(candidates(&request()), expected);
        let before = DateTime::from_millis(50);
        expected.remove("lease");
        expected.insert(
            "$or",
            [
                doc! { "lease": null },
                doc! { "lease.until": { "$lt": before } },
            ],
        );
        assert_eq!(
            candidates(&ClaimRequest {
                expired_before: Some(before),
                ..request()
            }),
            expected
        );
    }

    #[test]
    fn it_is_taken_by_equality_on_all_that_was_seen() {
        let mut seen = Seen {
            rev: 1,
            epoch: 2,
            mail: 3,
            lease: None,
        };
        let free = doc! { "_id": "a", "rev": 1_i64, "epoch": 2_i64, "mail": 3_i64, "lease": null };
        assert_eq!(filter(&"a".into(), &seen), free);
        let until = DateTime::from_millis(9);
        seen.lease = Some(("t".to_owned(), until));
        let held = doc! { "_id": "a", "rev": 1_i64, "epoch": 2_i64, "mail": 3_i64, "lease.token": "t", "lease.until": until };
        assert_eq!(filter(&"a".into(), &seen), held);
    }

    #[test]
    fn a_higher_priority_comes_first() {
        let candidates: Vec<_> = (0..9)
            .map(|number| (MilestoneId::from(format!("{number}")), number % 3))
            .collect();
        let mut taken = spread(candidates, 3);
        taken.sort();
        assert_eq!(taken, ["2".into(), "5".into(), "8".into()]);
    }
}
