//! Putting texts together.

/// Writes to the end of a `String`, which does not fail.
macro_rules! push {
    ($text:expr, $($what:tt)*) => {{
        use std::fmt::Write as _;
        let _ = write!($text, $($what)*);
    }};
}
