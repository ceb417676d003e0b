//! Late results: the attempt of a plain action has succeeded here after it was cut off or its lease was lost. While it is in doubt, that is
//! the best word there is, so it goes to the milestone as a `resolve`, with the attempt's number.

use std::{sync::Arc, time::Duration};

use bson::Bson;
use milestone_core::{
    limits::check_command,
    machine::Event,
    record::{Command, MilestoneId, Order, Phase},
};

use super::{Engine, held::Held, message::Message};
use crate::{ids::random_token, store::Sent};

/// The longest wait between two tries.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

impl Engine {
    /// Sends the results that were still to be stored when it became known that the lease is lost: their attempts ended in time or not,
    /// whoever has taken over cannot know.
    pub(super) fn send_unheard(&self, held: &Held) {
        let planned = held.flying.events.iter().chain(&held.pending.events);
        for event in planned.chain(&held.replay) {
            if let Event::Succeeded {
                task,
                number,
                output,
            } = event
                && task.phase == Phase::Do
                && !held.record.actions[task.action].mode.repeatable()
            {
                let action = held.record.actions[task.action].name.clone();
                self.send_late(held.id().clone(), action, *number, output.clone());
            }
        }
    }

    /// Sends the result of an attempt that is no longer this worker's to store.
    pub(super) fn send_late(&self, id: MilestoneId, action: String, number: i64, output: Bson) {
        let command = Command {
            id: random_token(),
            order: Order::Resolve {
                action,
                attempt: Some(number),
                applied: true,
                output,
            },
            by: self.shared.worker.clone(),
            at: self.now(),
        };
        if let Err(error) = check_command(&command, &self.shared.config.limits) {
            tracing::warn!(milestone = %id, %error, "a late result cannot be stored; the attempt stays in doubt");
            return;
        }
        let store = Arc::clone(&self.shared.store);
        let tell = self.tell.clone();
        self.shared.io.spawn(async move {
            let mut wait = Duration::from_millis(100);
            while !tell.is_closed() {
                match store.send(id.clone(), command.clone()).await {
                    Ok(Sent::Delivered) => {
                        tracing::info!(milestone = %id, "a result that came after its lease was lost was sent to the milestone");
                        // Without an engine nobody here could hold it.
                        let _ = tell.send(Message::Mail { id });
                        return;
                    }
                    Ok(Sent::Full) => {
                        tracing::debug!(milestone = %id, "a late result waits for room in the inbox");
                        tokio::time::sleep(wait).await;
                        wait = (wait * 2).min(LONGEST_WAIT);
                    }
                    Ok(sent) => {
                        tracing::info!(milestone = %id, ?sent, "a result came too late for its milestone");
                        return;
                    }
                    Err(error) => {
                        tracing::debug!(milestone = %id, %error, "a late result is sent again");
                        tokio::time::sleep(wait).await;
                        wait = (wait * 2).min(LONGEST_WAIT);
                    }
                }
            }
        });
    }
}
