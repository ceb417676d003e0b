//! What the rows run: actions that do nothing, on parameters of 200 bytes.

use milestone_runtime::prelude::*;

/// Parameters of 200 bytes of BSON.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Payload {
    text: String,
}

impl Payload {
    pub(crate) fn new() -> Self {
        // 16 bytes are the document's own.
        Self {
            text: "x".repeat(184),
        }
    }
}

#[action(idempotent)]
async fn first(Params(_payload): Params<Payload>) {}

#[action(idempotent)]
async fn second(Params(_payload): Params<Payload>) {}

/// Runs one chain of two actions from its start to its outcome.
pub(crate) async fn chain_of_two(runtime: &Runtime, payload: Payload) -> anyhow::Result<()> {
    let started = milestone!(first -> second).start(runtime, payload).await?;
    Ok(started.outcome().await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_payload_has_200_bytes() {
        let payload = bson::serialize_to_vec(&Payload::new()).unwrap();
        assert_eq!(payload.len(), 200);
    }
}
