//! Putting texts together, and making those that come from documents harmless for a terminal.

use std::borrow::Cow;

/// Writes to the end of a `String`, which does not fail.
macro_rules! push {
    ($text:expr, $($what:tt)*) => {{
        use std::fmt::Write as _;
        let _ = write!($text, $($what)*);
    }};
}

/// Whether a terminal acts on it, or shows what is around it in another order, instead of showing it.
pub(crate) fn is_control(char: char) -> bool {
    char.is_control()
        || matches!(char, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A text on one line, with what a terminal would act on written as Rust does: `\n`, `\u{1b}`.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    escaped(text, is_control)
}

/// The same for a text of several lines.
pub(crate) fn visible_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |char| is_control(char) && char != '\n')
}

fn escaped(text: &str, is_meant: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(&is_meant) {
        return text.into();
    }
    let mut escaped = String::new();
    for char in text.chars() {
        if is_meant(char) {
            escaped.extend(char.escape_default());
        } else {
            escaped.push(char);
        }
    }
    escaped.into()
}

/// At most so many characters, without some of the middle: ids that are long differ at their ends.
pub(crate) fn without_middle(text: &str, longest: usize) -> Cow<'_, str> {
    let count = text.chars().count();
    if count <= longest {
        return text.into();
    }
    let kept = longest.saturating_sub(1);
    let (head, tail) = (kept.div_ceil(2), kept / 2);
    let head: String = text.chars().take(head).collect();
    let tail: String = text.chars().skip(count - tail).collect();
    format!("{head}…{tail}").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_acts_on_is_made_visible() {
        let text = "a\u{1b}[31m\r\n\tb\u{9b}2J\u{7f}\u{202e}ä\\";
        assert_eq!(visible(text), r"a\u{1b}[31m\r\n\tb\u{9b}2J\u{7f}\u{202e}ä\");
        assert_eq!(visible_lines("a\nb\u{7}"), "a\nb\\u{7}");
        assert!(matches!(visible("größe 7"), Cow::Borrowed(_)));
    }

    #[test]
    fn long_texts_keep_their_ends() {
        assert_eq!(without_middle("abcdef", 6), "abcdef");
        assert_eq!(without_middle("abcdefg", 6), "abc…fg");
        assert_eq!(without_middle("äöüäöüß", 4), "äö…ß");
    }
}
