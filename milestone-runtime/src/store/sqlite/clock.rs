//! The time of the machine, which is the server here.

use std::{
    sync::{Mutex, PoisonError},
    time::Instant,
};

use bson::DateTime;

/// The machine's time. It never goes backwards within a process: if the clock is set back, time goes on from where it was.
pub(super) fn now() -> DateTime {
    static ANCHOR: Mutex<Option<(Instant, i64)>> = Mutex::new(None);
    let mut anchor = ANCHOR.lock().unwrap_or_else(PoisonError::into_inner);
    let clock = DateTime::now().timestamp_millis();
    let reckoned = anchor.map(|(instant, millis)| {
        let passed = i64::try_from(instant.elapsed().as_millis()).unwrap_or(i64::MAX);
        millis.saturating_add(passed)
    });
    match reckoned {
        Some(reckoned) if reckoned > clock => DateTime::from_millis(reckoned),
        _ => {
            *anchor = Some((Instant::now(), clock));
            DateTime::from_millis(clock)
        }
    }
}
