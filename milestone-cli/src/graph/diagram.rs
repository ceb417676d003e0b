//! A graph for Graphviz and for Mermaid, with its states as colours.

use milestone_runtime::{
    MilestoneRecord,
    core::record::{ActionKind, ActionRecord, ActionState},
};

use crate::{style, text::visible_lines};

/// Fill and border of a state.
const fn colours(state: ActionState) -> (&'static str, &'static str) {
    match state {
        ActionState::Completed => ("#d3f2d9", "#2e7d32"),
        ActionState::Running => ("#d4ecfb", "#0277bd"),
        ActionState::Ready => ("#e8f1fb", "#5b7fa6"),
        ActionState::Backoff => ("#fff2cc", "#b7791f"),
        ActionState::InDoubt => ("#fde0c8", "#c05621"),
        ActionState::Failed => ("#fbd5d5", "#c53030"),
        ActionState::Skipped => ("#eeeeee", "#9e9e9e"),
        _ => ("#ffffff", "#757575"),
    }
}

/// The graph in Graphviz's language.
pub(crate) fn dot(record: &MilestoneRecord, with_states: bool) -> String {
    let mut text = format!(
        "digraph {} {{\n  rankdir=LR;\n  node [shape=box, style=\"rounded,filled\", fillcolor=white, fontname=\"sans-serif\"];\n",
        dot_quoted(&record.kind)
    );
    for (index, action) in record.actions.iter().enumerate() {
        let mut label = action.name.clone();
        let mut more = String::new();
        if with_states {
            let (fill, border) = colours(action.state);
            label = format!("{label}\n{}", style::action_state(action.state));
            more = format!(", fillcolor=\"{fill}\", color=\"{border}\"");
        }
        if action.kind == ActionKind::Fork {
            more.push_str(", shape=diamond");
        }
        push!(text, "  a{index} [label={}{more}];\n", dot_quoted(&label));
    }
    for (before, index) in edges(record) {
        push!(text, "  a{before} -> a{index};\n");
    }
    text.push_str("}\n");
    text
}

fn dot_quoted(text: &str) -> String {
    let text = visible_lines(text)
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n");
    format!("\"{text}\"")
}

/// The graph in Mermaid's language.
pub(crate) fn mermaid(record: &MilestoneRecord, with_states: bool) -> String {
    let mut text = "flowchart LR\n".to_owned();
    let mut used: Vec<ActionState> = Vec::new();
    for (index, action) in record.actions.iter().enumerate() {
        let [open, close] = if action.kind == ActionKind::Fork {
            ["{", "}"]
        } else {
            ["(", ")"]
        };
        let mut label = mermaid_quoted(&action.name);
        let mut class = String::new();
        if with_states {
            let state = style::action_state(action.state);
            label = format!("{label}<br/>{state}");
            class = format!(":::{state}");
            if !used.contains(&action.state) {
                used.push(action.state);
            }
        }
        push!(text, "  a{index}{open}\"{label}\"{close}{class}\n");
    }
    for (before, index) in edges(record) {
        push!(text, "  a{before} --> a{index}\n");
    }
    for state in used {
        let (fill, border) = colours(state);
        let name = style::action_state(state);
        push!(
            text,
            "  classDef {name} fill:{fill},stroke:{border},color:#222222\n"
        );
    }
    text
}

/// Mermaid takes the entities of HTML, with `#` in the place of `&`.
fn mermaid_quoted(text: &str) -> String {
    let mut quoted = String::new();
    for char in text.chars() {
        if char.is_alphanumeric() || "-_. :/".contains(char) {
            quoted.push(char);
        } else {
            push!(quoted, "#{};", u32::from(char));
        }
    }
    quoted
}

fn edges(record: &MilestoneRecord) -> impl Iterator<Item = (u32, usize)> {
    let of = |(index, action): (usize, &ActionRecord)| {
        let edges: Vec<_> = action.after.iter().map(|before| (*before, index)).collect();
        edges
    };
    record.actions.iter().enumerate().flat_map(of)
}

#[cfg(test)]
mod tests {
    use milestone_runtime::core::{machine::Task, options::Mode};

    use super::*;
    use crate::fixtures::{Story, action};

    #[test]
    fn states_are_colours() {
        let record = Story::order().claim().run(0).begin(Task::to_do(1)).told();
        insta::assert_snapshot!(dot(&record, true), @r##"
        digraph "Order" {
          rankdir=LR;
          node [shape=box, style="rounded,filled", fillcolor=white, fontname="sans-serif"];
          a0 [label="reserve\ncompleted", fillcolor="#d3f2d9", color="#2e7d32"];
          a1 [label="charge\nrunning", fillcolor="#d4ecfb", color="#0277bd"];
          a2 [label="send\npending", fillcolor="#ffffff", color="#757575"];
          a3 [label="file\npending", fillcolor="#ffffff", color="#757575"];
          a0 -> a1;
          a1 -> a2;
          a1 -> a3;
        }
        "##);
        insta::assert_snapshot!(mermaid(&record, true), @r#"
        flowchart LR
          a0("reserve<br/>completed"):::completed
          a1("charge<br/>running"):::running
          a2("send<br/>pending"):::pending
          a3("file<br/>pending"):::pending
          a0 --> a1
          a1 --> a2
          a1 --> a3
          classDef completed fill:#d3f2d9,stroke:#2e7d32,color:#222222
          classDef running fill:#d4ecfb,stroke:#0277bd,color:#222222
          classDef pending fill:#ffffff,stroke:#757575,color:#222222
        "#);
    }

    #[test]
    fn any_name_is_quoted() {
        let name = "say \"hi\" <b>\\n";
        let record = Story::new("a \"kind\"", vec![action(name, Mode::Plain, &[])]).told();
        insta::assert_snapshot!(dot(&record, false), @r#"
        digraph "a \"kind\"" {
          rankdir=LR;
          node [shape=box, style="rounded,filled", fillcolor=white, fontname="sans-serif"];
          a0 [label="say \"hi\" <b>\\n"];
        }
        "#);
        insta::assert_snapshot!(mermaid(&record, false), @r#"
        flowchart LR
          a0("say #34;hi#34; #60;b#62;#92;n")
        "#);
    }
}
