//! An update that is applied once.

use std::future::{Future, IntoFuture};
use std::pin::Pin;

use bson::Document;
use mongodb::options::UpdateModifications;

use super::{
    MOST_MARKERS, Once, OnceError, Written, bad_filter,
    command::{self, check_update, has_room, in_time, lacks, plain_id},
    insert::{self, with_marker},
    reply::{Reply, Seen},
    writer::Writer,
};
use crate::mongo::trace::Marker;

/// An update that is applied once: see [`Once::update_one`]. Awaited, it tells when it was applied.
#[derive(Clone, Debug)]
#[must_use = "nothing is written before it is awaited"]
pub struct UpdateOne {
    once: Once,
    filter: Document,
    update: UpdateModifications,
    or_insert: Option<Document>,
}

impl UpdateOne {
    pub(super) const fn new(once: Once, filter: Document, update: UpdateModifications) -> Self {
        Self {
            once,
            filter,
            update,
            or_insert: None,
        }
    }

    /// Where there is no document of that `_id`, inserts this one, without the update: that counts as the write. Its `_id` is that of the
    /// filter.
    pub fn or_insert(mut self, document: Document) -> Self {
        self.or_insert = Some(document);
        self
    }

    async fn run(self) -> Result<Written, OnceError> {
        let id = plain_id(&self.filter).map_err(|reason| bad_filter(&self.once, reason))?;
        let marker = self.once.own_marker()?;
        let mut writer = self.once.writer(id);
        let change = |reason| OnceError::Change {
            target: writer.target.clone(),
            reason,
        };
        check_update(&self.update).map_err(change)?;
        let or_insert = match self.or_insert {
            Some(document) => Some(insert::completed(document, writer.id()).map_err(change)?),
            None => None,
        };
        let using = writer.claim(&marker)?;
        let result = update(
            &mut writer,
            &marker,
            &self.filter,
            &self.update,
            or_insert.as_ref(),
        )
        .await;
        using.end(result)
    }
}

impl IntoFuture for UpdateOne {
    type Output = Result<Written, OnceError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

async fn update(
    writer: &mut Writer,
    marker: &Marker,
    filter: &Document,
    update: &UpdateModifications,
    or_insert: Option<&Document>,
) -> Result<Written, OnceError> {
    writer.prepare().await?;
    loop {
        let error = match attempt(writer, marker, filter, update, or_insert).await {
            Ok(Some(written)) => return Ok(written),
            Ok(None) => writer.late(),
            Err(error) => error,
        };
        writer.again(error).await?;
    }
}

/// One try; `None`: it was too late, or something was between it and what it read afterwards.
async fn attempt(
    writer: &mut Writer,
    marker: &Marker,
    filter: &Document,
    update: &UpdateModifications,
    or_insert: Option<&Document>,
) -> Result<Option<Written>, OnceError> {
    // Before the look for a witness, whose answer is good only for so long.
    let fence = writer.fence().await?;
    if was_moved(writer, marker).await? {
        return Ok(Some(Written::Before));
    }
    let fenced = command::with(
        filter,
        [lacks(marker), in_time(&fence), has_room(MOST_MARKERS)],
    );
    let command = writer.update(fenced, update.clone(), &[writer.stored(marker)], &fence);
    match writer.write(command, &fence).await {
        Reply::Applied => {
            writer.left(marker);
            return Ok(Some(Written::Now));
        }
        Reply::Unsettled(error) | Reply::Refused(error) => return Err(error),
        Reply::Exists { reason, .. } => return Err(writer.duplicate(reason)),
        Reply::Missed | Reply::Late => {}
    }
    // In this order: with the marker not there at the second look, the conditions did not hold at the first one, whatever came between.
    let matching = writer.read(filter).await?;
    let found = match &matching {
        Some(_) => matching.clone(),
        None => writer.read(&writer.by_id()).await?,
    };
    match follows(matching.is_some(), found.as_ref(), marker) {
        Next::Written => {
            writer.left(marker);
            Ok(Some(Written::Before))
        }
        Next::Crowded(markers) => Err(OnceError::Crowded {
            target: writer.target.clone(),
            markers,
        }),
        Next::Again => Ok(None),
        Next::Unmatched | Next::Missing if writer.was_on_its_way().await => Ok(None),
        Next::Unmatched => {
            writer.confirm().await?;
            Err(writer.unmatched())
        }
        Next::Missing => {
            writer.confirm().await?;
            match or_insert {
                Some(document) => insert_instead(writer, marker, document).await,
                None => Err(writer.missing()),
            }
        }
    }
}

async fn insert_instead(
    writer: &mut Writer,
    marker: &Marker,
    document: &Document,
) -> Result<Option<Written>, OnceError> {
    let fence = writer.fence().await?;
    if was_moved(writer, marker).await? {
        return Ok(Some(Written::Before));
    }
    let document = with_marker(document, writer.stored(marker));
    match writer.write(writer.insert(&document, &fence), &fence).await {
        Reply::Applied => {
            writer.left(marker);
            Ok(Some(Written::Now))
        }
        Reply::Unsettled(error) | Reply::Refused(error) => Err(error),
        // Somebody was quicker, so that there is one to update; or it was this action, whose marker the update will find.
        Reply::Exists { by_id: true, .. } | Reply::Late | Reply::Missed => Ok(None),
        Reply::Exists { reason, .. } => Err(writer.duplicate(reason)),
    }
}

/// Whether a witness tells that the write was applied. Only a later attempt may find one.
pub(super) async fn was_moved(writer: &Writer, marker: &Marker) -> Result<bool, OnceError> {
    if !writer.may_be_repeated() {
        return Ok(false);
    }
    match writer.witnesses(&[marker]).await?.pop() {
        Some(key) => {
            writer.left_witness(key);
            Ok(true)
        }
        None => Ok(false),
    }
}

/// What follows from what was read after an update that matched nothing.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// It was applied before.
    Written,
    /// Nothing stood against it: it was late.
    Again,
    Crowded(usize),
    Unmatched,
    Missing,
}

/// Judges what was read: whether the document met the filter, and its markers if it is there.
fn follows(matches: bool, found: Option<&Seen>, marker: &Marker) -> Next {
    match found {
        None => Next::Missing,
        Some(seen) if seen.has(marker) => Next::Written,
        Some(_) if !matches => Next::Unmatched,
        Some(seen) if seen.len() >= MOST_MARKERS => Next::Crowded(seen.len()),
        Some(_) => Next::Again,
    }
}

#[cfg(test)]
mod tests {
    use bson::{DateTime, doc};

    use super::*;

    #[test]
    fn a_miss_is_understood() {
        let marker = Marker {
            milestone: "t-1".into(),
            started: DateTime::from_millis(3),
            action: "debit".to_owned(),
            label: String::new(),
            undone: false,
        };
        let read = |markers: Vec<Document>| {
            let found = doc! { "_id": 7, "pendingMilestones": markers };
            Seen::read(&doc! { "cursor": { "firstBatch": [found] } })
        };
        let at = DateTime::from_millis(9);
        let (none, own) = (read(vec![]), read(vec![marker.stored(at)]));
        let other = Marker {
            label: "fee".to_owned(),
            ..marker.clone()
        };
        let full = read(vec![other.stored(at); MOST_MARKERS]);
        assert_eq!(follows(false, None, &marker), Next::Missing);
        assert_eq!(follows(true, own.as_ref(), &marker), Next::Written);
        assert_eq!(follows(false, own.as_ref(), &marker), Next::Written);
        assert_eq!(follows(false, none.as_ref(), &marker), Next::Unmatched);
        assert_eq!(follows(true, none.as_ref(), &marker), Next::Again);
        assert_eq!(
            follows(true, full.as_ref(), &marker),
            Next::Crowded(MOST_MARKERS)
        );
        assert_eq!(follows(false, full.as_ref(), &marker), Next::Unmatched);
    }
}
