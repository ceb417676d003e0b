//! Command lines that can be copied.

use milestone_runtime::MilestoneId;

use crate::text::is_control;

/// A word as a shell takes it, on one line and harmless for a terminal.
pub(crate) fn quoted(word: &str) -> String {
    let safe = |char: char| char.is_ascii_alphanumeric() || "-_./:=@%+,".contains(char);
    if !word.is_empty() && word.chars().all(safe) {
        return word.to_owned();
    }
    if !word.chars().any(is_control) {
        return format!("'{}'", word.replace('\'', r"'\''"));
    }
    let mut quoted = "$'".to_owned();
    for char in word.chars() {
        match char {
            '\'' | '\\' => push!(quoted, "\\{char}"),
            // Octal, of three digits: no character behind it can be taken for a part of it.
            _ if is_control(char) => {
                let mut bytes = [0; 4];
                for byte in char.encode_utf8(&mut bytes).bytes() {
                    push!(quoted, "\\{byte:03o}");
                }
            }
            _ => quoted.push(char),
        }
    }
    quoted.push('\'');
    quoted
}

/// An option with its value, which may begin with `-`.
pub(crate) fn option(name: &str, value: &str) -> String {
    let between = if value.starts_with('-') { "=" } else { " " };
    format!("{name}{between}{}", quoted(value))
}

/// A command line: how it begins, which command of which milestone, the name of an action, and options as they are written.
pub(crate) fn command(
    program: &str,
    command: &str,
    id: &MilestoneId,
    action: Option<&str>,
    options: &str,
) -> String {
    let id = crate::ids::written(id);
    let words = [Some(id.as_str()), action];
    let is_dashed = words.iter().flatten().any(|word| word.starts_with('-'));
    let mut line = format!("{program} {command}");
    let mut add = |what: &str| {
        if !what.is_empty() {
            push!(line, " {what}");
        }
    };
    if is_dashed {
        // What follows is no option, whatever it begins with.
        add(options);
        add("--");
    }
    words.iter().flatten().for_each(|word| add(&quoted(word)));
    if !is_dashed {
        add(options);
    }
    line
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn words_survive_a_shell() {
        assert_eq!(quoted("order-7"), "order-7");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted("$x"), "'$x'");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("a\nb"), r"$'a\012b'");
    }

    #[test]
    fn a_shell_gives_back_what_a_terminal_would_act_on() {
        let word = "it's\\ a\u{1b}[31m7\n\t\u{9b}\u{202e}ä";
        let quoted = quoted(word);
        assert!(!quoted.chars().any(is_control), "{quoted}");
        let script = format!("printf %s {quoted}");
        let output = Command::new("bash").args(["-c", &script]).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), word);
    }

    #[test]
    fn what_begins_with_a_dash_is_no_option() {
        let line =
            |id: &str, action, options| command("milestone", "do", &id.into(), action, options);
        assert_eq!(line("a", None, ""), "milestone do a");
        assert_eq!(line("a", Some("b"), "--now"), "milestone do a b --now");
        assert_eq!(line("-a", None, ""), "milestone do -- -a");
        assert_eq!(line("a", Some("-b"), "--now"), "milestone do --now -- a -b");
        assert_eq!(option("--after", "a b"), "--after 'a b'");
        assert_eq!(option("--after", "-a"), "--after=-a");
    }
}
