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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_on_with_the_machine_and_never_back() {
        let begin = (now(), Instant::now());
        let mut last = begin.0;
        while begin.1.elapsed().as_millis() < 20 {
            let next = now();
            assert!(next >= last, "{next} after {last}");
            last = next;
        }
        last = now();
        assert!(last.timestamp_millis() - begin.0.timestamp_millis() >= 19);
        assert!((last.timestamp_millis() - DateTime::now().timestamp_millis()).abs() < 1_000);
    }
}
