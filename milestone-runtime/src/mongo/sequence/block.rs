//! What was drawn in one write.

use std::iter::FusedIterator;

/// Ids that were drawn together, in order. They are formatted as they are taken; those that are not taken are a gap.
#[derive(Clone, Debug)]
pub struct Ids {
    prefix: String,
    /// The number of the one that is taken next.
    next: i64,
    left: u32,
    width: usize,
}

impl Ids {
    /// The `n` numbers up to the last one, which is at least `n`.
    pub(super) fn new(prefix: String, last: i64, n: u32, width: usize) -> Self {
        Self {
            prefix,
            next: last - i64::from(n) + 1,
            left: n,
            width,
        }
    }

    pub(super) fn none() -> Self {
        Self::new(String::new(), 0, 0, 0)
    }

    pub(super) fn id(&self, offset: u32) -> String {
        let Self { prefix, width, .. } = self;
        let number = self.next.saturating_add(i64::from(offset));
        if prefix.is_empty() {
            format!("{number:0width$}")
        } else {
            format!("{prefix}-{number:0width$}")
        }
    }
}

impl Iterator for Ids {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let left = self.left.checked_sub(1)?;
        let id = self.id(0);
        self.left = left;
        self.next = self.next.saturating_add(1);
        Some(id)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::try_from(self.left).unwrap_or(usize::MAX);
        (left, Some(left))
    }
}

impl ExactSizeIterator for Ids {}

impl FusedIterator for Ids {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_width_at_the_least() {
        let ids: Vec<_> = Ids::new("140625".to_owned(), 10_001, 3, 4).collect();
        assert_eq!(ids, ["140625-9999", "140625-10000", "140625-10001"]);
        assert_eq!(Ids::new("A".to_owned(), 7, 1, 0).id(0), "A-7");
        assert_eq!(Ids::new(String::new(), 7, 1, 3).id(0), "007");
    }

    #[test]
    fn they_end() {
        let mut ids = Ids::new("x".to_owned(), i64::MAX, 2, 4);
        assert_eq!(ids.len(), 2);
        assert_eq!(ids.by_ref().last(), Some(format!("x-{}", i64::MAX)));
        assert_eq!((ids.len(), ids.next()), (0, None));
        assert_eq!(Ids::none().next(), None);
    }
}
