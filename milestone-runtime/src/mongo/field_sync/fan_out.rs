//! The fan-out: what depends on a document is written until it is known that the document has not changed meanwhile.

use std::{sync::Arc, time::Duration};

use bson::{Bson, Document, oid::ObjectId};
use milestone_core::record::Status;
use mongodb::{
    error::Error,
    options::{ReadConcern, ReadPreference, SelectionCriteria},
};
use tokio::time::Instant;

use super::{
    BoxError, Inner, concern, id,
    mark::{self, Seen},
};
use crate::action::{ActionError, Call};

/// How long a fan-out waits at first until it looks again whether an older one has left; then twice as long each time, up to the other.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
const LOOK_SELDOM: Duration = Duration::from_millis(500);

/// How long it waits in all before it gives its place away. It must: an older one that was cut off may need that place to go on.
const WAITS_AT_MOST: Duration = Duration::from_secs(20);

/// How long it stays away then.
const COME_BACK: Duration = Duration::from_millis(500);

/// Copies a document under one mark.
///
/// 1. Join: enter oneself in the list `copying` beside the mark. Only whose mark is that of the document may.
/// 2. Wait until nobody else is in the list: who is in it has an older mark, and may still write what is old.
/// 3. Copy, from the document as it is then.
/// 4. Remove the mark with all that is beside it, if it still is this one. Then nobody has joined since 2, so the copies are what the
///    document is.
/// 5. If there is a newer mark, at 1, 2 or 4, leave: its fan-out sees to the rest.
///
/// An attempt that was cut off stays in the list until the next one of its milestone leaves for it. One that finds itself thrown out
/// at the end was given up by its worker while it went on, and marks the document anew.
pub(super) async fn fan_out(sync: &Inner, call: &Call) -> Result<(), BoxError> {
    let parameters = call.parameters().as_document();
    let id = parameters.and_then(|parameters| parameters.get("id"));
    let own = parameters.and_then(|parameters| parameters.get_object_id("mark").ok());
    let (Some(id), Some(own)) = (id, own) else {
        return Err("the parameters do not tell which document it is, and which mark".into());
    };
    let fan_out = FanOut {
        sync,
        call,
        id,
        own,
    };
    if !fan_out.join().await? {
        fan_out.leave().await?;
        return Ok(());
    }
    match fan_out.turn().await {
        Ok(Some(document)) => fan_out.copy(document).await,
        Ok(None) => {
            fan_out.leave().await?;
            Ok(())
        }
        Err(error) => {
            // Nothing was copied, so nobody need wait for the next attempt. Where this fails too, they do.
            let _ = fan_out.leave().await;
            Err(error)
        }
    }
}

struct FanOut<'a> {
    sync: &'a Inner,
    call: &'a Call,
    id: &'a Bson,
    own: ObjectId,
}

impl FanOut<'_> {
    /// After an error it stays in the list, until the next attempt: what it has sent may still arrive.
    async fn copy(&self, document: Document) -> Result<(), BoxError> {
        (self.sync.copy)(document).await?;
        if !self.finish().await? && !self.leave().await? {
            self.mark_anew().await?;
        }
        Ok(())
    }

    /// Waits until nobody else copies, and gives the document; `None` if it has a newer mark, or none.
    async fn turn(&self) -> Result<Option<Document>, BoxError> {
        let began = Instant::now();
        let mut pause = LOOK_AGAIN;
        loop {
            let document = self.read().await?;
            match mark::look(&self.sync.name, document.as_ref(), self.own) {
                Seen::Alone => return Ok(document),
                Seen::Other => return Ok(None),
                Seen::Beside(others) => {
                    for other in others {
                        if self.is_over(other).await? {
                            self.throw_out(other).await?;
                        }
                    }
                }
            }
            // Waiting is no failure, so it does not come back for each look: the wait after an error would grow with that.
            let wait = tokio::time::sleep(pause.mul_f64(0.5 + 0.5 * fastrand::f64()));
            let is_cancelled = tokio::select! {
                () = self.call.context().cancelled() => true,
                () = wait => false,
            };
            if is_cancelled || began.elapsed() > WAITS_AT_MOST {
                break;
            }
            pause = (pause * 2).min(LOOK_SELDOM);
        }
        let told = "an older fan-out of the document still copies; this one comes back";
        Err(ActionError::retry_after(COME_BACK, told).into())
    }

    /// Whether the fan-out of another mark never goes on: its milestone is over or gone.
    async fn is_over(&self, other: ObjectId) -> Result<bool, BoxError> {
        let milestone = mark::milestone(&self.sync.name, self.id, other);
        let shared = Arc::clone(self.call.context().shared());
        let asked = self
            .call
            .context()
            .shared()
            .io
            .spawn(async move { shared.store.get(vec![milestone.into()]).await });
        let found = asked.await??.into_iter().next();
        let state = found.transpose()?.map(|record| record.state);
        Ok(state.is_none_or(Status::is_terminal))
    }

    async fn read(&self) -> Result<Option<Document>, Error> {
        let primary = SelectionCriteria::ReadPreference(ReadPreference::Primary);
        let read = self.sync.documents.find_one(id::of(self.id));
        let read = read.selection_criteria(primary);
        read.read_concern(ReadConcern::local()).await
    }

    async fn update(&self, filter: Document, update: Document) -> Result<bool, Error> {
        let update = self.sync.documents.update_one(filter, update);
        Ok(update.write_concern(concern()).await?.matched_count > 0)
    }

    async fn join(&self) -> Result<bool, Error> {
        let name = &self.sync.name;
        let still = mark::still(name, self.id, self.own);
        self.update(still, mark::joining(name, self.own)).await
    }

    async fn finish(&self) -> Result<bool, Error> {
        let name = &self.sync.name;
        let alone = mark::alone(name, self.id, self.own);
        self.update(alone, mark::unmarking(name)).await
    }

    /// Whether it was in the list.
    async fn leave(&self) -> Result<bool, Error> {
        self.throw_out(self.own).await
    }

    async fn throw_out(&self, mark: ObjectId) -> Result<bool, Error> {
        let name = &self.sync.name;
        let copying = mark::copying(name, self.id, mark);
        self.update(copying, mark::leaving(name, mark)).await
    }

    async fn mark_anew(&self) -> Result<bool, Error> {
        let new = mark::anew(&self.sync.name, ObjectId::new());
        self.update(id::of(self.id), new).await
    }
}
