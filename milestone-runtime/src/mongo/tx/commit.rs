//! The commit of a transaction, which goes on also if nobody waits for it any more.

use std::time::{Duration, Instant};

use bson::doc;
use mongodb::{
    ClientSession,
    error::{Error, UNKNOWN_TRANSACTION_COMMIT_RESULT},
};

use crate::engine::hold::CallGuard;

/// How often and how long a commit is repeated of which nobody knows whether it took effect.
const MOST_TRIES: u32 = 8;
const LONGEST: Duration = Duration::from_secs(15);

/// What became of a commit.
pub(super) enum Commit {
    Done,
    /// The server says that nothing of it is stored.
    Refused(Error),
    /// Nobody knows.
    Unknown(Error),
}

/// Commits. While it does, the milestone is neither handed back nor is anything of it undone.
pub(super) async fn commit(mut session: ClientSession, _call: CallGuard) -> Commit {
    let committed = repeat(&mut session).await;
    if let Commit::Unknown(_) = committed {
        kill(&session).await;
    }
    committed
}

/// Ends what a transaction may still hold, which would keep others out until the server's own limit. It is over then: whatever the witness
/// says is final. If it cannot be ended, the next transaction collides with it.
async fn kill(session: &ClientSession) {
    let admin = session.client().database("admin");
    let kill = admin.run_command(doc! { "killSessions": [session.id().clone()] });
    match tokio::time::timeout(LONGEST, kill).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => {
            tracing::debug!(%error, "a transaction cannot be ended; it ends by itself");
        }
        Err(_) => tracing::debug!("a transaction cannot be ended; it ends by itself"),
    }
}

async fn repeat(session: &mut ClientSession) -> Commit {
    let began = Instant::now();
    let mut tries = 0;
    loop {
        tries += 1;
        let error = match session.commit_transaction().await {
            Ok(()) => return Commit::Done,
            Err(error) => error,
        };
        if !error.contains_label(UNKNOWN_TRANSACTION_COMMIT_RESULT) {
            // After a reply that was lost, a server that knows nothing of the transaction may have forgotten that it committed it.
            return if tries == 1 {
                Commit::Refused(error)
            } else {
                Commit::Unknown(error)
            };
        }
        if tries >= MOST_TRIES || began.elapsed() >= LONGEST {
            return Commit::Unknown(error);
        }
        let wait = Duration::from_millis(10 << tries.min(7));
        tokio::time::sleep(wait.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
    }
}
