//! The commands of one kind that are on the wire, and when the next one goes.

use crate::store::Batching;

/// So many writes are worth a command of their own, whatever else is on the wire.
const ENOUGH: usize = 64;

/// How many writes each command holds that is on the wire.
#[derive(Debug, Default)]
pub(super) struct Wire(Vec<usize>);

impl Wire {
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a command goes now if so many writes wait. One that has the wire to itself goes at once. Beside another one it has to be as
    /// large as that: with few writes they wait for nothing, and with many they do not break into ever smaller commands, each of which costs
    /// the server as much again.
    pub(super) fn is_free_for(&self, waiting: usize, batching: Batching) -> bool {
        let beside = self.0.iter().min().map_or(1, |size| (*size).min(ENOUGH));
        self.0.len() < batching.commands && waiting >= beside.max(1)
    }

    pub(super) fn sent(&mut self, writes: usize) {
        self.0.push(writes);
    }

    /// One with so many writes is back.
    pub(super) fn back(&mut self, writes: usize) {
        if let Some(place) = self.0.iter().position(|size| *size == writes) {
            self.0.swap_remove(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: Batching = Batching::new(2, 500);

    #[test]
    fn a_lone_write_waits_for_nothing() {
        let mut wire = Wire::default();
        assert!(!wire.is_free_for(0, TWO) && wire.is_free_for(1, TWO));
        wire.sent(1);
        assert!(!wire.is_free_for(0, TWO) && wire.is_free_for(1, TWO));
        wire.sent(1);
        assert!(!wire.is_free_for(100, TWO), "there are two already");
        wire.back(1);
        assert!(!wire.is_empty() && wire.is_free_for(1, TWO));
    }

    #[test]
    fn beside_a_large_command_goes_one_as_large_or_large_enough() {
        let mut wire = Wire::default();
        wire.sent(40);
        assert!(!wire.is_free_for(39, TWO) && wire.is_free_for(40, TWO));
        wire.back(40);
        wire.sent(500);
        assert!(!wire.is_free_for(63, TWO) && wire.is_free_for(64, TWO));
        wire.back(500);
        assert!(wire.is_empty() && wire.is_free_for(1, TWO));
    }
}
