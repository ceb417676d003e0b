//! What goes to the terminal.

use std::io::{self, IsTerminal as _, Write as _};

use comfy_table::{Attribute, Cell, Color, ContentArrangement, Table, presets};

use crate::{
    ids, style,
    text::{visible, without_middle},
};
use milestone_runtime::MilestoneId;

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
        .map(|name| Cell::new(visible(name)).add_attribute(Attribute::Bold));
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
    let lines = table.lines();
    lines.map(|line| trimmed(&line) + "\n").collect()
}

/// A line without the blanks at its end, also those before the codes that end a colour.
fn trimmed(line: &str) -> String {
    let mut kept = line.trim_end();
    let mut codes = String::new();
    while let Some(start) = kept.rfind('\u{1b}').filter(|_| kept.ends_with('m')) {
        let is_code = kept[start + 1..kept.len() - 1]
            .chars()
            .all(|char| char.is_ascii_digit() || "[;".contains(char));
        if !is_code {
            break;
        }
        codes.insert_str(0, &kept[start..]);
        kept = kept[..start].trim_end();
    }
    format!("{kept}{codes}")
}

/// How much of an id or a name is told in a table.
const NAME: usize = 60;

/// An id in a table; all of a long one is in `show` and `--json`.
pub(crate) fn id_in_short(id: &MilestoneId) -> String {
    in_short(&ids::written(id))
}

/// A name in a table.
pub(crate) fn in_short(name: &str) -> String {
    without_middle(&visible(name), NAME).into_owned()
}

/// A cell in the colour of a style.
#[expect(
    clippy::needless_pass_by_value,
    reason = "whoever makes a text for a cell need not keep it"
)]
pub(crate) fn cell(text: impl ToString, style: anstyle::Style) -> Cell {
    let cell = Cell::new(visible(&text.to_string()));
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
    let line = visible(&line).into_owned();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_no_blanks_at_the_end_of_its_lines() {
        let mut table = table(["ID", "ERROR"]);
        table.add_row([cell("a", style::BAD), cell("none", style::WARN)]);
        table.add_row([cell("bcd", style::PLAIN), cell("", style::WARN)]);
        let text = text_of(table);
        let plain = anstream::adapter::strip_str(&text).to_string();
        assert_eq!(plain, "ID   ERROR\na    none\nbcd\n");
        assert_eq!(
            trimmed("a \u{1b}[1m b \u{1b}[0m "),
            "a \u{1b}[1m b\u{1b}[0m"
        );
    }

    #[test]
    fn nothing_in_a_cell_breaks_the_table() {
        let mut table = table(["ID", "ERROR"]);
        let id = id_in_short(&format!("a\nb{}", "c".repeat(100)).into());
        assert_eq!(id.chars().count(), NAME);
        table.add_row([cell(&id, style::PLAIN), cell("\u{1b}[2J\n", style::PLAIN)]);
        let text = text_of(table);
        let row = text.lines().nth(1).unwrap_or_default();
        assert_eq!(row, format!(r"{id}  \u{{1b}}[2J\n"));
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(id.starts_with(r#""a\nbcc"#) && id.ends_with("cc\""), "{id}");
    }

    #[test]
    fn texts_are_cut_to_a_line() {
        assert_eq!(shortened("a\n b   c", 10), "a b c");
        assert_eq!(shortened("abcdef", 4), "abc…");
        assert_eq!(shortened("a\u{1b}[2J\nb", 20), r"a\u{1b}[2J b");
        assert_eq!(counted(1_u64, "attempt"), "1 attempt");
        assert_eq!(counted(2_u64, "attempt"), "2 attempts");
    }
}
