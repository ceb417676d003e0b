//! Taking milestones that are due.

mod spare;

use std::{cmp::Reverse, collections::HashMap, time::Duration};

use bson::{Bson, DateTime, Document, RawDocumentBuf, doc};
use futures_util::TryStreamExt as _;
use milestone_core::{
    lease::Seen,
    record::{MilestoneId, MilestoneRecord, Unreadable},
};
use mongodb::error::Error;
pub(super) use spare::Spare;
use tokio::time::Instant;

use super::{
    connect::Connection,
    errors,
    read::{self, Concern, Held},
    update::{self, Statement},
};
use crate::store::{ClaimRequest, Claimed, Share, StoreError, document};

/// How many candidates are looked at for one that is taken, and for one that is taken where workers share what is due, times their number.
const SPREAD: usize = 3;
const SPREAD_OF_SHARES: usize = 2;

/// How many candidates are looked at, at the least for each share and at the most; `SPREAD` for one in any case. Where one share is behind the
/// others, the first ones are all in that.
const LOOKED_AT: (usize, usize) = (32, 1024);

/// How many documents are read at once to get past those that cannot be read.
const MOST_READ: usize = 256;

/// So few candidates are read whole at once, instead of those that are chosen in a second read: what has just become due is at work sooner.
const WHOLE: usize = 8;

/// For how many leases it is asked what a claim has taken whose reply was lost.
const ASKED_FOR: u32 = 6;

/// What is due for the worker. The index leads to what is due for anybody in its queues.
fn candidates(request: &ClaimRequest, except: &[MilestoneId]) -> Document {
    let methods: Vec<&str> = request
        .methods
        .iter()
        .map(String::as_str)
        .chain([""])
        .collect();
    let except: Vec<Bson> = except.iter().cloned().map(Bson::from).collect();
    let queue = doc! { "$in": &request.queues };
    let due = doc! { "queue": queue.clone(), "method": { "$in": methods }, "at": { "$lte": request.now } };
    let mut filter = doc! {
        "next.queue": queue,
        "next.at": { "$lte": request.now },
        "due": { "$elemMatch": due },
        // Others are not milestones, and there is no way to leave them out by their id.
        "_id": { "$type": ["objectId", "string"], "$nin": except },
    };
    match request.expired_before {
        None => filter.insert("lease", Bson::Null),
        // Where there is no lease, that holds too. An `$or` says the same, but beside it some servers walk the whole collection.
        Some(before) => filter.insert("lease.until", doc! { "$not": { "$gte": before } }),
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
    let is_in_time = |at: DateTime| at <= request.now;
    let is_wanted = |queue: &String| request.queues.contains(queue);
    let is_known = |method: &String| method.is_empty() || request.methods.contains(method);
    let is_first = record
        .next
        .as_ref()
        .is_some_and(|next| is_in_time(next.at) && is_wanted(&next.queue));
    let is_due = record
        .due
        .iter()
        .any(|due| is_in_time(due.at) && is_wanted(&due.queue) && is_known(&due.method));
    let is_free = match (&record.lease, request.expired_before) {
        (None, _) => true,
        (Some(lease), Some(before)) => lease.until < before,
        (Some(_), None) => false,
    };
    is_first && is_due && is_free
}

/// A milestone that is due, as the look sees it.
#[derive(Clone, Debug)]
struct Candidate {
    id: MilestoneId,
    priority: i64,
    /// Whether its lease has ended without having been handed back.
    is_abandoned: bool,
}

impl Candidate {
    fn read(document: &RawDocumentBuf) -> Option<Self> {
        Some(Self {
            id: read::id(document)?,
            priority: read::integer(document, "priority"),
            is_abandoned: document.get_document("lease").is_ok(),
        })
    }
}

/// Chooses among the candidates, which come in the order of time; those of a higher priority come first all the same. Of one priority: where
/// no other worker is known, any, so that two do not fight over the first ones; else the first ones of the worker's own share, and what a dead
/// worker has left, which waits already. Where there is neither, it takes its part of what others have left for long enough. What
/// is not chosen though it might be is given too.
fn choose(
    candidates: Vec<Candidate>,
    room: usize,
    share: &Share,
    left: &mut Vec<MilestoneId>,
) -> (Vec<MilestoneId>, Vec<Candidate>) {
    let mut room = room;
    let mut chosen: Vec<_> = candidates.into_iter().enumerate().collect();
    if share.parts() == 1 {
        fastrand::shuffle(&mut chosen);
    } else {
        let is_of_others =
            |candidate: &Candidate| !candidate.is_abandoned && !share.is_mine(&candidate.id);
        let of_others: Vec<_> = chosen
            .extract_if(.., |(_, candidate)| is_of_others(candidate))
            .collect();
        left.extend(of_others.iter().map(|(_, candidate)| candidate.id.clone()));
        if chosen.is_empty() {
            chosen = of_others;
            chosen.retain(|(_, candidate)| share.is_anybodys(&candidate.id));
            fastrand::shuffle(&mut chosen);
            room = room.min(chosen.len().div_ceil(share.parts()));
        }
    }
    chosen.sort_by_key(|(_, candidate)| Reverse(candidate.priority));
    let rest = chosen.split_off(room.min(chosen.len()));
    chosen.sort_by_key(|(place, candidate)| (Reverse(candidate.priority), *place));
    let ids = chosen.into_iter().map(|(_, candidate)| candidate.id);
    let rest = rest.into_iter().map(|(_, candidate)| candidate);
    (ids.collect(), rest.collect())
}

/// How many candidates are looked at where there is room for so many.
fn looked_at(room: usize, share: &Share) -> usize {
    let (least, most) = LOOKED_AT;
    let alone = room.saturating_mul(SPREAD);
    let of_a_share = room.saturating_mul(SPREAD_OF_SHARES).max(least);
    match share.parts() {
        1 => alone,
        parts => alone.max(of_a_share.saturating_mul(parts).min(most)),
    }
}

async fn look(
    connection: &Connection,
    request: &ClaimRequest,
    except: &[MilestoneId],
    candidates_at_most: usize,
) -> Result<Vec<RawDocumentBuf>, Error> {
    let limit = u32::try_from(candidates_at_most).unwrap_or(u32::MAX);
    let projection = doc! { "priority": 1, "lease.until": 1 };
    let mut options = Concern::Local.options(connection);
    options.projection = (candidates_at_most > WHOLE).then_some(projection);
    // What is due first comes first, so that no queue starves behind another.
    let find = connection
        .milestones
        .find(candidates(request, except))
        .with_options(options)
        .sort(doc! { "next.at": 1 })
        .limit(i64::from(limit))
        .batch_size(limit);
    find.await?.try_collect().await
}

/// A milestone that is being taken.
struct Taking {
    record: MilestoneRecord,
    statement: Statement,
}

impl Taking {
    fn new(mut record: MilestoneRecord, request: &ClaimRequest) -> Result<Self, StoreError> {
        let filter = filter(&record.id, &Seen::of(&record));
        let patch = document::lease(&mut record, request);
        let update = patch
            .to_raw_update(record.rev)
            .map_err(|error| StoreError::Other(error.to_string()))?;
        let statement = update::statement(&filter, &update)
            .map_err(|error| StoreError::Other(error.to_string()))?;
        Ok(Self { record, statement })
    }
}

/// Takes milestones.
pub(super) async fn claim(
    connection: &Connection,
    spare: &Spare,
    request: &ClaimRequest,
) -> Result<Claimed, StoreError> {
    let mut claimed = Claimed::default();
    let mut except = request.except.clone();
    let mut room = request.limit;
    if room > WHOLE
        && let Some((candidates, until)) = spare.take(request, room)
    {
        take_some(connection, spare, candidates, until, request, &mut claimed).await?;
        if !claimed.records.is_empty() {
            return Ok(claimed);
        }
        // Others have been faster with all of it.
        except.extend(claimed.unreadable.iter().map(|(id, _)| id.clone()));
    }
    while room > 0 {
        let error = |error| connection.error(error);
        let most = looked_at(room, &request.share);
        let began = Instant::now();
        let looked = look(connection, request, &except, most);
        let looked = looked.await.map_err(error)?;
        if looked.is_empty() {
            break;
        }
        let candidates = looked.iter().filter_map(Candidate::read).collect();
        let until = Spare::until(began.elapsed());
        let (ids, rest) = choose(candidates, room, &request.share, &mut claimed.left);
        let documents = if most > WHOLE {
            let documents = read::documents(connection, &ids, None, Concern::Local);
            documents.await.map_err(error)?
        } else {
            looked
        };
        spare.keep(request, rest, until);
        let mut taking = prepare(request, documents, ids, &mut claimed)?;
        taking.truncate(request.limit);
        take_all(connection, taking, request, &mut claimed).await?;
        let known = except.len() - request.except.len();
        if !claimed.records.is_empty() || claimed.unreadable.len() == known {
            break;
        }
        // All that was read is of no use: what can be read may be behind it.
        except.extend(claimed.unreadable[known..].iter().map(|(id, _)| id.clone()));
        room = (room * 2).min(MOST_READ.max(room));
    }
    Ok(claimed)
}

/// Takes some of what an earlier look has found.
async fn take_some(
    connection: &Connection,
    spare: &Spare,
    candidates: Vec<Candidate>,
    until: Instant,
    request: &ClaimRequest,
    claimed: &mut Claimed,
) -> Result<(), StoreError> {
    let (ids, rest) = choose(candidates, request.limit, &request.share, &mut claimed.left);
    spare.keep(request, rest, until);
    let documents = read::documents(connection, &ids, None, Concern::Local);
    let documents = documents.await.map_err(|error| connection.error(error))?;
    let taking = prepare(request, documents, ids, claimed)?;
    take_all(connection, taking, request, claimed).await
}

/// Says how each of the chosen candidates is taken, as it is now.
fn prepare(
    request: &ClaimRequest,
    documents: Vec<RawDocumentBuf>,
    ids: Vec<MilestoneId>,
    claimed: &mut Claimed,
) -> Result<Vec<Taking>, StoreError> {
    let mut by_id: HashMap<_, _> = documents
        .into_iter()
        .filter_map(|document| Some((read::id(&document)?, document)))
        .collect();
    let mut taking = Vec::with_capacity(by_id.len());
    for id in ids {
        match by_id.remove(&id).map(|document| read::record(&document)) {
            Some(Ok(record)) if may_be_taken(&record, request) => {
                taking.push(Taking::new(record, request)?);
            }
            Some(Err(unreadable)) => claimed.unreadable.push((id, unreadable)),
            Some(Ok(_)) | None => claimed.missed += 1,
        }
    }
    Ok(taking)
}

/// Takes milestones in as few commands as the limits allow. What was taken is told even if another command failed, since nobody else
/// will look at it before the lease ends.
async fn take_all(
    connection: &Connection,
    mut taking: Vec<Taking>,
    request: &ClaimRequest,
    claimed: &mut Claimed,
) -> Result<(), StoreError> {
    let mut failure = None;
    for range in update::commands(
        taking
            .iter()
            .map(|taking| taking.statement.as_bytes().len()),
    ) {
        let part = taking.drain(..range.len()).collect();
        if let Err(error) = take(connection, part, request, claimed).await {
            failure = Some(error);
        }
    }
    match failure {
        Some(error) if claimed.records.is_empty() => Err(error),
        _ => Ok(()),
    }
}

/// Takes some in one command. If the reply does not tell which were taken, that is read.
async fn take(
    connection: &Connection,
    part: Vec<Taking>,
    request: &ClaimRequest,
    claimed: &mut Claimed,
) -> Result<(), StoreError> {
    let reply = update::send(connection, part.iter().map(|taking| &taking.statement)).await;
    let mut refusals = HashMap::new();
    let mut failure = None;
    match reply {
        Ok(reply) if reply.is_complete(part.len()) => {
            claimed
                .records
                .extend(part.into_iter().map(|taking| taking.record));
            return Ok(());
        }
        Ok(reply) => {
            let for_good = reply
                .write_errors
                .into_iter()
                .filter(|error| errors::is_for_good(error.code));
            refusals.extend(for_good.map(|error| (error.index, error.text())));
        }
        Err(error) if errors::never_sent(&error) => return Err(connection.error(error)),
        Err(error) => failure = Some(error),
    }
    let ids: Vec<_> = part.iter().map(|taking| taking.record.id.clone()).collect();
    let held = read_back(connection, &ids, request)
        .await
        .map_err(|error| connection.error(error))?;
    let before = claimed.records.len();
    for (index, Taking { record, .. }) in part.into_iter().enumerate() {
        let is_ours =
            |held: &Held| held.token.as_deref() == Some(&request.token) && held.rev == record.rev;
        if held.get(&record.id).is_some_and(is_ours) {
            claimed.records.push(record);
        } else if let Some(reason) = refusals.remove(&index) {
            let reason = format!("the database does not let it be changed: {reason}");
            let unreadable = Unreadable {
                id: record.id.to_string(),
                reason,
            };
            claimed.unreadable.push((record.id, unreadable));
        } else {
            claimed.missed += 1;
        }
    }
    match failure {
        Some(error) if claimed.records.len() == before => Err(connection.error(error)),
        _ => Ok(()),
    }
}

/// Reads which were taken. What a claim has begun must become known, or it would be taken for abandoned when the lease ends, though its worker
/// lives; so that is asked again until there is an answer, but not for ever.
async fn read_back(
    connection: &Connection,
    ids: &[MilestoneId],
    request: &ClaimRequest,
) -> Result<HashMap<MilestoneId, Held>, Error> {
    let lease = request.until.timestamp_millis() - request.now.timestamp_millis();
    let patience = Duration::from_millis(lease.unsigned_abs()) * ASKED_FOR;
    let began = Instant::now();
    let mut wait = Duration::from_millis(50);
    loop {
        match read::held(connection, ids).await {
            Err(error) if request.begins.is_some() && began.elapsed() < patience => {
                tracing::debug!(%error, "what a claim has taken cannot be read now");
                tokio::time::sleep(wait.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
                wait = (wait * 2).min(Duration::from_secs(1));
            }
            held => return held,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const PATIENCE: Duration = Duration::from_millis(20);

    pub(super) fn request() -> ClaimRequest {
        ClaimRequest {
            owner: "w".to_owned(),
            token: "t".to_owned(),
            limit: 2,
            now: DateTime::from_millis(100),
            until: DateTime::from_millis(200),
            queues: vec!["default".to_owned()],
            methods: vec!["debit".to_owned()],
            expired_before: None,
            except: vec![],
            share: Share::all(),
            begins: None,
        }
    }

    #[test]
    fn candidates_are_due_known_free_and_not_excepted() {
        let now = DateTime::from_millis(100);
        let queue = doc! { "$in": ["default"] };
        let due = doc! { "queue": queue.clone(), "method": { "$in": ["debit", ""] }, "at": { "$lte": now } };
        let mut expected = doc! {
            "next.queue": queue,
            "next.at": { "$lte": now },
            "due": { "$elemMatch": due },
            "_id": { "$type": ["objectId", "string"], "$nin": ["held"] },
            "lease": null,
        };
        assert_eq!(candidates(&request(), &["held".into()]), expected);
        let before = DateTime::from_millis(50);
        expected.remove("lease");
        expected.insert("lease.until", doc! { "$not": { "$gte": before } });
        let request = ClaimRequest {
            expired_before: Some(before),
            ..request()
        };
        assert_eq!(candidates(&request, &["held".into()]), expected);
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

    /// Candidates in the order of time, with their priorities.
    fn candidates_of(count: i64, priority: fn(i64) -> i64) -> Vec<Candidate> {
        let candidate = |number: i64| Candidate {
            id: format!("{number}").into(),
            priority: priority(number),
            is_abandoned: false,
        };
        (0..count).map(candidate).collect()
    }

    fn chosen(candidates: Vec<Candidate>, room: usize) -> Vec<MilestoneId> {
        choose(candidates, room, &Share::all(), &mut Vec::new()).0
    }

    #[test]
    fn a_higher_priority_comes_first_then_what_is_due_first() {
        let expected: [MilestoneId; 3] = ["2".into(), "5".into(), "8".into()];
        assert_eq!(chosen(candidates_of(9, |number| number % 3), 3), expected);
        assert!(chosen(candidates_of(9, |_| 0), 5).is_sorted());
    }

    #[test]
    fn candidates_are_spread() {
        let firsts = (0..200).map(|_| chosen(candidates_of(6, |_| 0), 2).remove(0));
        assert!(firsts.collect::<std::collections::HashSet<_>>().len() > 3);
    }

    #[test]
    fn workers_that_share_choose_different_ones() {
        let mut all = Vec::new();
        for part in 0..4 {
            let share = Share::new(part, 4, HashMap::new(), PATIENCE);
            let mut left = Vec::new();
            let (own, _) = choose(candidates_of(100, |_| 0), 10, &share, &mut left);
            assert!(own.len() <= 10 && own.iter().all(|id| share.is_mine(id)));
            assert!(left.iter().all(|id| !share.is_mine(id)));
            assert!((60..90).contains(&left.len()), "{}", left.len());
            all.extend(own);
        }
        let different: std::collections::HashSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len());
    }

    #[test]
    fn what_others_leave_is_taken_where_there_is_nothing_else() {
        let candidates = candidates_of(100, |_| 0);
        let alone = Share::new(0, 2, HashMap::new(), PATIENCE);
        let of_others = candidates.iter().filter(|one| !alone.is_mine(&one.id));
        let of_others: Vec<_> = of_others.cloned().collect();
        let seen = |time| of_others.iter().map(move |one| (one.id.clone(), time));
        let chosen = |candidates: &[Candidate], time| {
            let share = Share::new(0, 2, seen(time).collect(), PATIENCE);
            let mut left = Vec::new();
            let (chosen, _) = choose(candidates.to_vec(), 100, &share, &mut left);
            (chosen, left)
        };
        let (own, left) = chosen(&candidates, PATIENCE);
        assert_eq!(
            (own.len(), left.len()),
            (100 - of_others.len(), of_others.len())
        );
        let (none, left) = chosen(&of_others, PATIENCE / 2);
        assert_eq!((none.len(), left.len()), (0, of_others.len()));
        let (some, left) = chosen(&of_others, PATIENCE);
        assert_eq!(
            (some.len(), left.len()),
            (of_others.len().div_ceil(2), of_others.len())
        );
    }

    #[test]
    fn what_a_dead_worker_has_left_is_everybodys() {
        for part in 0..2 {
            let mut candidates = candidates_of(20, |_| 0);
            for candidate in &mut candidates {
                candidate.is_abandoned = true;
            }
            let share = Share::new(part, 2, HashMap::new(), PATIENCE);
            let mut left = Vec::new();
            let (chosen, _) = choose(candidates, 5, &share, &mut left);
            let expected = ["0", "1", "2", "3", "4"].map(MilestoneId::from);
            assert_eq!((&chosen[..], left.len()), (&expected[..], 0));
        }
    }

    #[test]
    fn shares_widen_the_look_within_a_bound() {
        let share = |of| Share::new(0, of, HashMap::new(), PATIENCE);
        assert_eq!(looked_at(1, &share(1)), 3);
        assert_eq!(looked_at(100, &share(1)), 300);
        assert_eq!(looked_at(10, &share(8)), 256);
        assert_eq!(looked_at(100, &share(8)), 1_024);
        assert_eq!(looked_at(1_000, &share(8)), 3_000);
    }
}
