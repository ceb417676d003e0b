//! Command lines that can be copied.

use milestone_runtime::MilestoneId;

/// A word as a shell takes it.
pub(crate) fn quoted(word: &str) -> String {
    let safe = |char: char| char.is_ascii_alphanumeric() || "-_./:=@%+,".contains(char);
    if !word.is_empty() && word.chars().all(safe) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// An id as the command line takes it.
pub(crate) fn id(id: &MilestoneId) -> String {
    quoted(&crate::ids::written(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_a_shell() {
        assert_eq!(quoted("order-7"), "order-7");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted("$x"), "'$x'");
        assert_eq!(quoted(""), "''");
    }
}
