//! An id inside of an action: the same one again when the attempt is repeated.

use std::{future::IntoFuture, pin::Pin, sync::Arc};

use bson::Bson;
use milestone_core::record::Phase;
use tokio::task::JoinError;

use super::{Sequence, SequenceError};
use crate::{
    action::Context,
    engine::Shared,
    mongo::trace::{Trace, WitnessKey},
    store::StoreError,
};

const NOT_MONGODB: &str = "the milestones are not in MongoDB";

impl Context {
    /// An id of a sequence for this action: awaited, it gives the next one, and the same one again whenever this action of this milestone
    /// asks again, in a later attempt too. So an action that writes under the id may be repeated as a whole.
    ///
    /// ```no_run,standalone_crate
    /// use milestone_runtime::{mongo::Sequence, prelude::*};
    ///
    /// #[action(idempotent)]
    /// async fn number(orders: State<Sequence>, cx: Context) -> Result<String, ActionError> {
    ///     Ok(cx.next_id(&orders).await?)
    /// }
    /// ```
    ///
    /// The id is noted in the database before it is given, in the collection of the milestones' witnesses; the note is removed some time
    /// after it is of no more use. An action that needs several ids of one sequence tells them apart by [`NextId::label`]. An undo has ids
    /// of its own.
    pub fn next_id(&self, sequence: &Sequence) -> NextId {
        NextId {
            context: self.clone(),
            sequence: sequence.clone(),
            label: String::new(),
        }
    }
}

/// An id that is asked for by [`Context::next_id`]: awaited, it is there.
#[must_use = "an id is drawn by `.await`"]
#[derive(Debug)]
pub struct NextId {
    context: Context,
    sequence: Sequence,
    label: String,
}

impl NextId {
    /// Which of several ids of the action it is.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    async fn get(self) -> Result<String, SequenceError> {
        let shared = Arc::clone(self.context.shared());
        let key = WitnessKey::new(
            self.context.milestone_id(),
            self.context.action(),
            what(&self.context, &self.label, &self.sequence),
        );
        let sought = key.clone();
        // The store's client belongs to the private executor, the sequence's to this one.
        let noted = shared.io.spawn({
            let shared = Arc::clone(&shared);
            async move {
                match shared.store.mongodb() {
                    Some(store) => store.find_witness(&sought).await,
                    None => Err(StoreError::Other(NOT_MONGODB.to_owned())),
                }
            }
        });
        let id = match self.settled(noted.await)? {
            Some(noted) => self.read(noted)?,
            None => self.draw(&shared, &key).await?,
        };
        shared.traces.left(Trace::Witness(key));
        Ok(id)
    }

    async fn draw(&self, shared: &Arc<Shared>, key: &WitnessKey) -> Result<String, SequenceError> {
        let id = self.sequence.next().await?;
        let (key, output) = (key.clone(), Bson::from(&id));
        let noted = shared.io.spawn({
            let shared = Arc::clone(shared);
            async move {
                let now = shared.clock.now();
                match shared.store.mongodb() {
                    Some(store) => store.witness(&key, output, now).await,
                    None => Err(StoreError::Other(NOT_MONGODB.to_owned())),
                }
            }
        });
        // Where there is one, another attempt of this action was quicker, and the number that was drawn here is a gap.
        let noted = self.settled(noted.await)?;
        noted.map_or(Ok(id), |noted| self.read(noted))
    }

    fn settled<T>(
        &self,
        result: Result<Result<T, StoreError>, JoinError>,
    ) -> Result<T, SequenceError> {
        let closed = |_| Err(StoreError::Other("the runtime has been closed".to_owned()));
        result
            .unwrap_or_else(closed)
            .map_err(|error| self.error(error))
    }

    fn read(&self, noted: Bson) -> Result<String, SequenceError> {
        match noted {
            Bson::String(id) => Ok(id),
            other => Err(self.error(StoreError::Other(format!("it is {other}, not a text")))),
        }
    }

    fn error(&self, error: StoreError) -> SequenceError {
        SequenceError::Note {
            name: self.sequence.name().to_owned(),
            error,
        }
    }
}

impl IntoFuture for NextId {
    type Output = Result<String, SequenceError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.get())
    }
}

/// What of an action a note tells of. A verify looks for what its action did, so it asks for the same. A milestone that is started again
/// under an id of which one was removed is another one.
fn what(context: &Context, label: &str, sequence: &Sequence) -> String {
    let phase = match context.phase() {
        Phase::Undo => "undo ",
        _ => "",
    };
    let counters = sequence.counters();
    let started = context.created_at().timestamp_millis();
    format!(
        "id {phase}{label:?} {counters}/{} {started}",
        sequence.name()
    )
}
