//! What a look has found beyond what was taken. A look costs some servers as much as there is due, whatever its limit, so where there is much,
//! the next claims take of what the last look has found.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::Candidate;
use crate::store::ClaimRequest;

/// For how many times as long as a look took its findings are of use, and for how long at the most: a milestone of a higher priority that
/// comes meanwhile waits for the next look.
const TIMES: u32 = 10;
const LONGEST: Duration = Duration::from_millis(500);

/// What is left of the last look.
#[derive(Debug, Default)]
pub(in crate::store::mongodb) struct Spare(Mutex<Option<Found>>);

#[derive(Debug)]
struct Found {
    candidates: Vec<Candidate>,
    owner: String,
    queues: Vec<String>,
    methods: Vec<String>,
    until: Instant,
}

impl Spare {
    /// What was found for a request like this one, if there is enough of it to fill the room, and when it ceases to be of use. It is no longer
    /// here then.
    pub(super) fn take(
        &self,
        request: &ClaimRequest,
        room: usize,
    ) -> Option<(Vec<Candidate>, Instant)> {
        let mut found = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()?;
        let is_for_it = found.owner == request.owner
            && found.queues == request.queues
            && found.methods == request.methods
            && request.share.parts() == 1;
        if !is_for_it || Instant::now() >= found.until {
            return None;
        }
        found
            .candidates
            .retain(|candidate| !request.except.contains(&candidate.id));
        (found.candidates.len() >= room).then_some((found.candidates, found.until))
    }

    /// When what a look finds that took so long ceases to be of use.
    pub(super) fn until(took: Duration) -> Instant {
        Instant::now() + (took * TIMES).min(LONGEST)
    }

    /// Keeps what a look for such a request has found and was not taken.
    pub(super) fn keep(&self, request: &ClaimRequest, candidates: Vec<Candidate>, until: Instant) {
        let is_of_use = request.share.parts() == 1 && !candidates.is_empty();
        let found = is_of_use.then(|| Found {
            candidates,
            owner: request.owner.clone(),
            queues: request.queues.clone(),
            methods: request.methods.clone(),
            until,
        });
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = found;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Share, mongodb::claim::tests::request};

    fn candidates(count: usize) -> Vec<Candidate> {
        (0..count)
            .map(|number| Candidate {
                id: format!("m{number}").into(),
                priority: 0,
                is_abandoned: false,
            })
            .collect()
    }

    fn kept(count: usize) -> Spare {
        let spare = Spare::default();
        let until = Spare::until(Duration::from_millis(40));
        spare.keep(&request(), candidates(count), until);
        spare
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_of_use_once_and_for_a_time_that_grows_with_that_of_the_look() {
        let spare = kept(20);
        let (found, _) = spare.take(&request(), 20).unwrap();
        assert_eq!(found.len(), 20);
        assert!(spare.take(&request(), 1).is_none(), "it is taken out");

        let spare = kept(20);
        tokio::time::advance(Duration::from_millis(399)).await;
        assert!(spare.take(&request(), 20).is_some());
        let spare = kept(20);
        tokio::time::advance(Duration::from_millis(400)).await;
        assert!(spare.take(&request(), 20).is_none());
        assert!(Spare::until(Duration::from_secs(9)) <= Instant::now() + LONGEST);
    }

    #[tokio::test]
    async fn it_is_not_for_other_requests_nor_for_more_room() {
        assert!(kept(20).take(&request(), 21).is_none());
        let except = ClaimRequest {
            except: vec!["m3".into()],
            ..request()
        };
        assert!(kept(20).take(&except, 20).is_none());
        let (found, _) = kept(20).take(&except, 19).unwrap();
        assert!(found.iter().all(|found| found.id != "m3".into()));
        for other in [
            ClaimRequest {
                owner: "another".to_owned(),
                ..request()
            },
            ClaimRequest {
                queues: vec!["another".to_owned()],
                ..request()
            },
            ClaimRequest {
                methods: vec![],
                ..request()
            },
            ClaimRequest {
                share: Share::new(0, 2, std::collections::HashMap::new(), LONGEST),
                ..request()
            },
        ] {
            assert!(kept(20).take(&other, 1).is_none());
        }
    }
}
