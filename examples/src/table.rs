//! Tables for the terminal.

use std::collections::BTreeMap;

use comfy_table::{Attribute, Cell, CellAlignment, Color, Table, presets};
use milestone_runtime::core::record::{Attempt, AttemptKind, MilestoneRecord, Phase};

/// A table with that head. It has no colours where the output is not a terminal.
pub fn table<const N: usize>(head: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_header(head.map(|name| Cell::new(name).add_attribute(Attribute::Bold)));
    table
}

/// A number, to the right.
pub fn number(number: impl ToString) -> Cell {
    Cell::new(number).set_alignment(CellAlignment::Right)
}

/// What accounts held before and hold after, with the sums.
pub fn balances(before: &BTreeMap<String, i64>, after: &BTreeMap<String, i64>) -> Table {
    let mut table = table(["account", "before", "after"]);
    for (account, amount) in after {
        table.add_row([account.into(), number(before[account]), number(amount)]);
    }
    let [before, after] = [before, after].map(|balances| balances.values().sum::<i64>());
    table.add_row(["sum".into(), number(before), number(after)]);
    table
}

/// The state of a milestone, and the report that is stored in it: its attempts, the oldest first.
pub fn report(record: &MilestoneRecord) -> String {
    let mut table = table([
        "action", "attempt", "success", "began", "took", "worker", "error",
    ]);
    for attempt in record.report.iter().rev() {
        let action = match attempt.phase {
            Phase::Undo => format!("{} (undo)", attempt.action),
            Phase::Verify => format!("{} (verify)", attempt.action),
            _ => attempt.action.clone(),
        };
        let began = attempt.begin_date.timestamp_millis();
        let took = attempt.end_date.timestamp_millis() - began;
        table.add_row([
            Cell::new(action),
            number(attempt.number),
            success(attempt),
            Cell::new(time_of_day(began)),
            number(format!("{took} ms")),
            Cell::new(&attempt.worker),
            Cell::new(attempt.error.as_ref().map_or("", |error| &error.message)),
        ]);
    }
    format!("the milestone {} is {}\n{table}", record.id, record.state)
}

fn success(attempt: &Attempt) -> Cell {
    match (attempt.success, attempt.kind) {
        (Some(true), _) => Cell::new("yes").fg(Color::Green),
        (_, Some(AttemptKind::Abandoned)) => Cell::new("abandoned").fg(Color::Yellow),
        (Some(false), _) => Cell::new("no").fg(Color::Red),
        (None, _) => Cell::new("unknown").fg(Color::Yellow),
    }
}

/// Hours, minutes, seconds and milliseconds in UTC: the day is known to whoever looks at an example.
fn time_of_day(millis: i64) -> String {
    let (seconds, millis) = (millis.div_euclid(1000), millis.rem_euclid(1000));
    let (minutes, second) = (seconds / 60, seconds % 60);
    format!(
        "{:02}:{:02}:{second:02}.{millis:03}",
        minutes / 60 % 24,
        minutes % 60
    )
}
