//! What goes to the terminal.

use std::io::{self, IsTerminal as _, Write as _};

use comfy_table::{Attribute, Cell, Color, ContentArrangement, Table, presets};

use crate::style;

/// Writes a text, without its colours where nobody sees them.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut out = anstream::stdout().lock();
    out.write_all(text.as_bytes())?;
    if !text.ends_with('\n') && !text.is_empty() {
        out.write_all(b"\n")?;
    }
    out.flush()
}

/// Tells something beside the result.
pub(crate) fn note(text: &str) {
    let mut err = anstream::stderr().lock();
    // There is nobody to tell that nothing can be told.
    let _ = writeln!(err, "{text}");
}

/// Asks on the terminal; `None` where nobody is there to answer.
pub(crate) fn confirm(question: &str) -> io::Result<Option<bool>> {
    if !io::stdin().is_terminal() {
        return Ok(None);
    }
    let mut err = anstream::stderr().lock();
    write!(err, "{question} [y/N] ")?;
    err.flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(Some(matches!(
        answer.trim().to_ascii_lowercase().as_str(),
        "y" | "yes"
    )))
}

/// A table without lines, so that tools can cut it.
pub(crate) fn table<'a>(header: impl IntoIterator<Item = &'a str>) -> Table {
    let mut table = Table::new();
    let cells = header
        .into_iter()
        .map(|name| Cell::new(name).add_attribute(Attribute::Bold));
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .enforce_styling()
        .set_header(cells);
    table
}

/// The table as text, each line without blanks at its end.
pub(crate) fn text_of(mut table: Table) -> String {
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let mut text: String = table.trim_fmt();
    text.push('\n');
    text
}

/// A cell in the colour of a style.
pub(crate) fn cell(text: impl ToString, style: anstyle::Style) -> Cell {
    let cell = Cell::new(text);
    match style {
        style::GOOD => cell.fg(Color::DarkGreen),
        style::BUSY => cell.fg(Color::DarkCyan),
        style::WARN => cell.fg(Color::DarkYellow),
        style::BAD => cell.fg(Color::DarkRed).add_attribute(Attribute::Bold),
        style::ODD => cell.fg(Color::DarkMagenta),
        style::DIM => cell.add_attribute(Attribute::Dim),
        _ => cell,
    }
}

/// How many columns the terminal has; none where there is no terminal.
pub(crate) fn width() -> Option<usize> {
    io::stdout()
        .is_terminal()
        .then(|| Table::new().width().map(usize::from))
        .flatten()
}

/// One line of at most so many characters.
pub(crate) fn shortened(text: &str, longest: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= longest {
        return line;
    }
    let kept: String = line.chars().take(longest.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

/// `1 action`, `2 actions`.
pub(crate) fn counted(count: impl Into<u64>, what: &str) -> String {
    let count = count.into();
    if count == 1 {
        format!("1 {what}")
    } else {
        format!("{count} {what}s")
    }
}
