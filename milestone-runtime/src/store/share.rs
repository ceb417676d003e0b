//! How workers beside one another share what is due.

use std::{collections::HashMap, time::Duration};

use milestone_core::record::MilestoneId;

/// What has been left to another worker for so long is yet another worker's: that one may be dead, or have no place.
const TURN: Duration = Duration::from_secs(30);

/// What a worker takes first of that which is due, so that workers beside one another do not all try to take the same. It is a preference
/// only: nothing that is due stays where it is for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    part: u32,
    of: u32,
    left: HashMap<MilestoneId, Duration>,
    patience: Duration,
}

impl Share {
    /// Everything: of no other worker is known.
    #[must_use]
    pub fn all() -> Self {
        Self::new(0, 1, HashMap::new(), Duration::ZERO)
    }

    /// One part of so many, what was seen as due and left to others, with the time since then, and the time that they are given before others
    /// take it who have nothing else.
    pub(crate) fn new(
        part: u32,
        of: u32,
        left: HashMap<MilestoneId, Duration>,
        patience: Duration,
    ) -> Self {
        Self {
            part,
            of: of.max(1),
            left,
            patience,
        }
    }

    /// How many workers share what is due.
    #[must_use]
    pub fn parts(&self) -> usize {
        self.of as usize
    }

    /// Whether this worker is to take it before all others.
    #[must_use]
    pub fn is_mine(&self, id: &MilestoneId) -> bool {
        let turn = self.left.get(id).map_or(0, Duration::as_secs) / TURN.as_secs();
        self.of == 1 || self.owner(id, turn) == self.part
    }

    /// Whether it is this worker's from the beginning, not only since another one has not taken it.
    pub(crate) fn falls_to_me(&self, id: &MilestoneId) -> bool {
        self.of == 1 || self.owner(id, 0) == self.part
    }

    fn owner(&self, id: &MilestoneId, turn: u64) -> u32 {
        u32::try_from(hash(id, turn) % u64::from(self.of)).unwrap_or_default()
    }

    /// Whether it has been left to others for long enough to be taken by a worker that has nothing else.
    #[must_use]
    pub fn is_anybodys(&self, id: &MilestoneId) -> bool {
        self.left.get(id).is_some_and(|time| *time >= self.patience)
    }
}

/// The same in all workers, whatever they were built with (FNV-1a, with its bits mixed).
fn hash(id: &MilestoneId, turn: u64) -> u64 {
    let text = id.to_string();
    let bytes = text.bytes().chain(turn.to_le_bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_millis(20);

    fn owners(of: u32, left: &HashMap<MilestoneId, Duration>, id: &MilestoneId) -> Vec<u32> {
        let share = |part: u32| Share::new(part, of, left.clone(), PATIENCE);
        let is_owner = |part: &u32| share(*part).is_mine(id);
        (0..of).filter(is_owner).collect()
    }

    #[test]
    fn each_is_in_one_share_and_shares_are_about_equal() {
        let mut sizes = [0; 8];
        for number in 0..8_000 {
            let id = MilestoneId::from(format!("order-{number}"));
            let [owner] = owners(8, &HashMap::new(), &id)[..] else {
                panic!("{id} is in one share");
            };
            sizes[owner as usize] += 1;
        }
        assert!(
            sizes.iter().all(|size| (900..1_100).contains(size)),
            "{sizes:?}"
        );
        let id = MilestoneId::new();
        assert!(Share::all().is_mine(&id) && Share::all().falls_to_me(&id));
    }

    #[test]
    fn what_is_left_comes_to_another_one_and_to_anybody() {
        let id = MilestoneId::from("order-1");
        let mut all = Vec::new();
        for seconds in 0..1_800 {
            let left = HashMap::from([(id.clone(), Duration::from_secs(seconds))]);
            let owner = owners(4, &left, &id);
            let first = *all.first().unwrap_or(&owner[0]);
            assert_eq!(owner.len(), 1);
            let share = Share::new(owner[0], 4, left, PATIENCE);
            assert_eq!(share.falls_to_me(&id), owner[0] == first);
            all.extend(owner);
        }
        assert!((0..4).all(|part| all.contains(&part)), "{all:?}");
        let left = |time| Share::new(0, 2, HashMap::from([(id.clone(), time)]), PATIENCE);
        assert!(!Share::all().is_anybodys(&id));
        assert!(!left(PATIENCE / 2).is_anybodys(&id));
        assert!(left(PATIENCE).is_anybodys(&id));
    }
}
