//! Taking a write back, exactly if it was applied.

use std::{
    future::{Future, IntoFuture},
    pin::Pin,
};

use bson::{Document, doc};
use milestone_core::record::Phase;
use mongodb::options::UpdateModifications;

use super::{
    Once, OnceError, bad_filter,
    command::{self, check_update, has, in_time, lacks, plain_id},
    fence::Fence,
    reply::{Reply, Seen},
    writer::Writer,
};
use crate::mongo::trace::Marker;

/// What became of a compensation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undone {
    /// The write was applied, and is taken back by this call.
    Now,
    /// It was taken back before: by an earlier attempt, or by this one though its reply was lost.
    Before,
    /// It was not applied, and never will be.
    NotApplied,
}

/// How a write is taken back: see [`Once::undo`].
#[derive(Clone, Debug)]
#[must_use = "nothing is taken back before one of its writes is awaited"]
pub struct Undo {
    once: Once,
    action: String,
}

impl Undo {
    pub(super) const fn new(once: Once, action: String) -> Self {
        Self { once, action }
    }

    /// Takes it back by an update, which is applied once, and exactly if the write of the action was. The filter names the document of that
    /// write, and may have further conditions.
    ///
    /// Where there is no such document, nothing is to be taken back: [`Undone::NotApplied`].
    ///
    /// # Errors
    /// [`OnceError::Unmatched`] if the write was applied, but its document does not meet the other conditions, and others, see there.
    pub fn update_one(self, filter: Document, update: impl Into<UpdateModifications>) -> TakeBack {
        TakeBack {
            undo: self,
            filter,
            update: update.into(),
        }
    }

    /// Deletes the document that the action has inserted, and no other one. Of a document that was inserted without an `_id` the filter has
    /// none either; it may have further conditions.
    ///
    /// [`Undone::NotApplied`] says that there was nothing to delete.
    ///
    /// # Errors
    /// [`OnceError::Unmatched`] if the document is there, but does not meet the other conditions, and others, see there.
    pub fn delete_one(self, filter: Document) -> DeleteOne {
        DeleteOne { undo: self, filter }
    }

    fn check(&self) -> Result<(), OnceError> {
        if self.once.cx.phase() == Phase::Undo {
            return Ok(());
        }
        Err(OnceError::Phase {
            reason: "`cx.once(..).undo()` is for the undo of an action: what an action itself has to reverse, it writes as any other change",
        })
    }

    /// The markers of the write, and of its compensation.
    fn markers(&self) -> Markers {
        Markers {
            write: self.once.marker(Some(&self.action), false),
            undo: self.once.marker(Some(&self.action), true),
        }
    }
}

struct Markers {
    write: Marker,
    undo: Marker,
}

/// A compensation by an update: see [`Undo::update_one`].
#[derive(Clone, Debug)]
#[must_use = "nothing is written before it is awaited"]
pub struct TakeBack {
    undo: Undo,
    filter: Document,
    update: UpdateModifications,
}

impl TakeBack {
    async fn run(self) -> Result<Undone, OnceError> {
        self.undo.check()?;
        let id = plain_id(&self.filter).map_err(|reason| bad_filter(&self.undo.once, reason))?;
        let markers = self.undo.markers();
        let mut writer = self.undo.once.writer(id);
        check_update(&self.update).map_err(|reason| OnceError::Change {
            target: writer.target.clone(),
            reason,
        })?;
        let using = writer.claim(&markers.undo)?;
        let result = take_back(&mut writer, &markers, &self.filter, &self.update).await;
        using.end(result)
    }
}

impl IntoFuture for TakeBack {
    type Output = Result<Undone, OnceError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

async fn take_back(
    writer: &mut Writer,
    markers: &Markers,
    filter: &Document,
    update: &UpdateModifications,
) -> Result<Undone, OnceError> {
    writer.prepare().await?;
    // Whatever the action sent is refused from then on.
    let began = writer.now();
    loop {
        let error = match try_to_take_back(writer, markers, filter, update, began).await {
            Ok(Some(undone)) => return Ok(undone),
            Ok(None) => writer.late(),
            Err(error) => error,
        };
        writer.again(error).await?;
    }
}

/// One try; `None`: it was too late, or something came between.
async fn try_to_take_back(
    writer: &mut Writer,
    markers: &Markers,
    filter: &Document,
    update: &UpdateModifications,
    began: bson::DateTime,
) -> Result<Option<Undone>, OnceError> {
    let Markers { write, undo } = markers;
    let fence = writer.fence().await?;
    let witnesses = writer.witnesses(&[write, undo]).await?;
    let has_witness = |marker| witnesses.contains(&writer.witness(marker));
    let (was_written, was_undone) = (has_witness(write), has_witness(undo));
    for key in &witnesses {
        writer.left_witness(key.clone());
    }
    if was_undone {
        return Ok(Some(Undone::Before));
    }
    let written = (!was_written).then(|| has(write));
    let conditions = [lacks(undo), in_time(&fence)].into_iter().chain(written);
    let fenced = command::with(filter, conditions);
    let command = writer.update(fenced, update.clone(), &[writer.stored(undo)], &fence);
    match writer.write(command, &fence).await {
        Reply::Applied => {
            writer.left(write);
            writer.left(undo);
            return Ok(Some(Undone::Now));
        }
        Reply::Unsettled(error) | Reply::Refused(error) => return Err(error),
        Reply::Exists { reason, .. } => return Err(writer.duplicate(reason)),
        Reply::Missed | Reply::Late => {}
    }
    let matching = writer.read(filter).await?;
    let found = match &matching {
        Some(_) => matching.clone(),
        None => writer.read(&writer.by_id()).await?,
    };
    match follows(matching.is_some(), found.as_ref(), markers, was_written) {
        Next::Undone => {
            writer.left(write);
            writer.left(undo);
            Ok(Some(Undone::Before))
        }
        Next::Never => {
            writer.left(write);
            writer.left(undo);
            Ok(Some(Undone::NotApplied))
        }
        Next::Again => Ok(None),
        Next::Unmatched => {
            writer.confirm().await?;
            Err(writer.unmatched())
        }
        Next::Prevent => prevent(writer, markers, &fence).await,
        Next::Missing => {
            // An insertion of the action that is on its way would still make it.
            if !writer.is_past(began).await? || writer.read(&writer.by_id()).await?.is_some() {
                return Ok(None);
            }
            writer.confirm().await?;
            Ok(Some(Undone::NotApplied))
        }
    }
}

/// Marks the document as if the write had been applied and taken back, so that it never will be.
async fn prevent(
    writer: &mut Writer,
    markers: &Markers,
    fence: &Fence,
) -> Result<Option<Undone>, OnceError> {
    let Markers { write, undo } = markers;
    let fenced = command::with(&writer.by_id(), [lacks(write), lacks(undo), in_time(fence)]);
    let nothing = UpdateModifications::Document(Document::new());
    let both = [never(writer.stored(write)), writer.stored(undo)];
    let command = writer.update(fenced, nothing, &both, fence);
    match writer.write(command, fence).await {
        Reply::Applied => {
            writer.left(write);
            writer.left(undo);
            Ok(Some(Undone::NotApplied))
        }
        Reply::Unsettled(error) | Reply::Refused(error) => Err(error),
        Reply::Exists { reason, .. } => Err(writer.duplicate(reason)),
        Reply::Missed | Reply::Late => Ok(None),
    }
}

/// The field of a write's marker that says that the write was prevented.
const NEVER: &str = "never";

fn never(mut marker: Document) -> Document {
    marker.insert(NEVER, true);
    marker
}

/// What follows from what was read after a compensation that matched nothing.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Undone,
    /// It was prevented before.
    Never,
    /// It was not applied, and may still be.
    Prevent,
    Again,
    Unmatched,
    Missing,
}

fn follows(matches: bool, found: Option<&Seen>, markers: &Markers, was_written: bool) -> Next {
    let Some(seen) = found else {
        return Next::Missing;
    };
    match (seen.marker(&markers.write), seen.marker(&markers.undo)) {
        (Some(write), Some(_)) if write.get_bool(NEVER).unwrap_or(false) => Next::Never,
        (_, Some(_)) => Next::Undone,
        (None, None) if !was_written => Next::Prevent,
        _ if matches => Next::Again,
        _ => Next::Unmatched,
    }
}

/// A compensation by a deletion: see [`Undo::delete_one`].
#[derive(Clone, Debug)]
#[must_use = "nothing is deleted before it is awaited"]
pub struct DeleteOne {
    undo: Undo,
    filter: Document,
}

impl DeleteOne {
    async fn run(mut self) -> Result<Undone, OnceError> {
        self.undo.check()?;
        let is_marked = self.filter.contains_key("_id");
        if !is_marked {
            let id = self.undo.once.made_id(&self.undo.action);
            let mut filter = doc! { "_id": id };
            filter.extend(self.filter);
            self.filter = filter;
        }
        let id = plain_id(&self.filter).map_err(|reason| bad_filter(&self.undo.once, reason))?;
        let markers = self.undo.markers();
        let mut writer = self.undo.once.writer(id);
        let using = writer.claim(&markers.undo)?;
        let marker = is_marked.then_some(&markers.write);
        let result = delete(&mut writer, marker, &self.filter).await;
        using.end(result)
    }
}

impl IntoFuture for DeleteOne {
    type Output = Result<Undone, OnceError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

async fn delete(
    writer: &mut Writer,
    marker: Option<&Marker>,
    filter: &Document,
) -> Result<Undone, OnceError> {
    writer.prepare().await?;
    let began = writer.now();
    loop {
        let error = match try_to_delete(writer, marker, filter, began).await {
            Ok(Some(undone)) => return Ok(undone),
            Ok(None) => writer.late(),
            Err(error) => error,
        };
        writer.again(error).await?;
    }
}

async fn try_to_delete(
    writer: &mut Writer,
    marker: Option<&Marker>,
    filter: &Document,
    began: bson::DateTime,
) -> Result<Option<Undone>, OnceError> {
    // Nothing would keep an insertion that is on its way from coming after the deletion but its time.
    if !writer.is_past(began).await? {
        return Ok(None);
    }
    let fence = writer.fence().await?;
    let witness = match marker {
        Some(marker) => writer.witnesses(&[marker]).await?.pop(),
        None => None,
    };
    let needed = marker.filter(|_| witness.is_none());
    if let Some(key) = witness {
        writer.left_witness(key);
    }
    let fenced = command::with(
        filter,
        std::iter::once(in_time(&fence)).chain(needed.map(has)),
    );
    let was_sent = writer.is_unsettled || writer.may_be_repeated();
    match writer.write(writer.delete(fenced, &fence), &fence).await {
        Reply::Applied => return Ok(Some(Undone::Now)),
        Reply::Unsettled(error) | Reply::Refused(error) => return Err(error),
        Reply::Exists { .. } | Reply::Missed | Reply::Late => {}
    }
    let matching = writer.read(filter).await?;
    let found = match &matching {
        Some(_) => matching.clone(),
        None => writer.read(&writer.by_id()).await?,
    };
    let is_ours = |seen: &Seen| needed.is_none_or(|marker| seen.has(marker));
    match found {
        Some(seen) if is_ours(&seen) && matching.is_some() => Ok(None),
        Some(seen) if is_ours(&seen) => {
            writer.confirm().await?;
            Err(writer.unmatched())
        }
        None if was_sent => Ok(Some(Undone::Before)),
        Some(_) | None => Ok(Some(Undone::NotApplied)),
    }
}

#[cfg(test)]
mod tests {
    use bson::DateTime;

    use super::*;

    fn markers() -> Markers {
        let write = Marker {
            milestone: "t-1".into(),
            started: DateTime::from_millis(3),
            action: "debit".to_owned(),
            label: String::new(),
            undone: false,
        };
        Markers {
            undo: Marker {
                undone: true,
                ..write.clone()
            },
            write,
        }
    }

    fn read(markers: Vec<Document>) -> Option<Seen> {
        let found = doc! { "_id": 7, "pendingMilestones": markers };
        Seen::read(&doc! { "cursor": { "firstBatch": [found] } })
    }

    #[test]
    fn a_compensation_that_matched_nothing_is_understood() {
        let markers = markers();
        let of = |matches, found: Option<Seen>, was_written| {
            follows(matches, found.as_ref(), &markers, was_written)
        };
        let [early, late] = [9, 10].map(DateTime::from_millis);
        let (write, undo) = (markers.write.stored(early), markers.undo.stored(late));
        assert_eq!(of(false, None, false), Next::Missing);
        assert_eq!(
            of(true, read(vec![write.clone(), undo.clone()]), false),
            Next::Undone
        );
        assert_eq!(of(true, read(vec![undo]), true), Next::Undone);
        assert_eq!(of(true, read(vec![write.clone()]), false), Next::Again);
        assert_eq!(of(false, read(vec![write]), false), Next::Unmatched);
        assert_eq!(of(false, read(vec![]), true), Next::Unmatched);
        assert_eq!(of(true, read(vec![]), true), Next::Again);
        assert_eq!(of(true, read(vec![]), false), Next::Prevent);
        assert_eq!(of(false, read(vec![]), false), Next::Prevent);
    }

    #[test]
    fn what_was_prevented_is_told_from_what_was_taken_back() {
        let markers = markers();
        let at = DateTime::from_millis(9);
        let seen = read(vec![
            never(markers.write.stored(at)),
            markers.undo.stored(at),
        ]);
        assert_eq!(follows(true, seen.as_ref(), &markers, false), Next::Never);
    }
}
