//! Graphs and what they stand for.

use super::read;
use crate::errors::Errors;

/// The names in order, and the edges by name.
fn graph(text: &str) -> (String, String) {
    let mut errors = Errors::default();
    let model = read(text.parse().unwrap(), &mut errors);
    assert!(errors.is_empty(), "{text}: {:?}", errors.messages());
    let names: Vec<&str> = model.nodes.iter().map(|node| node.name.as_str()).collect();
    let edges: Vec<String> = model
        .edges
        .iter()
        .map(|(from, to)| format!("{}{}", names[*from], names[*to]))
        .collect();
    assert!(
        model.edges.iter().all(|(from, to)| from < to),
        "{text}: all edges point forward"
    );
    (names.join(" "), edges.join(" "))
}

fn mistakes(text: &str) -> Vec<String> {
    let mut errors = Errors::default();
    read(text.parse().unwrap(), &mut errors);
    errors.messages()
}

fn is(text: &str, names: &str, edges: &str) {
    assert_eq!(graph(text), (names.to_owned(), edges.to_owned()), "{text}");
}

#[test]
fn s01_an_action_alone_waits_for_nothing() {
    is("a", "a", "");
    is("a;", "a", "");
    is("<a>", "a", "");
}

#[test]
fn s02_next_and_done() {
    is("a -> (b, c) -> d", "a b c d", "ab ac bd cd");
    is("<a -> (b, c,) -> d;>", "a b c d", "ab ac bd cd");
}

#[test]
fn s03_a_graph_that_starts_or_ends_with_a_group() {
    is("(a, b) -> c", "a b c", "ac bc");
    is("a -> (b, c)", "a b c", "ab ac");
    is("(a, b) -> (c, d)", "a b c d", "ac bc ad bd");
}

#[test]
fn what_follows_a_group_waits_for_its_last_ones() {
    is("a -> (b, c -> d) -> e", "a b c d e", "ab ac cd be de");
    is(
        "a -> ((b, c) -> d, (e, f)) -> g",
        "a b c d e f g",
        "ab ac bd cd ae af dg eg fg",
    );
    is("((a))", "a", "");
}

#[test]
fn chains_share_actions() {
    is("a -> b; a -> c; b -> d; c -> d", "a b c d", "ab ac bd cd");
    is("a -> b; a -> b", "a b", "ab");
    is("c -> d; a -> c", "a c d", "ac cd");
}

#[test]
fn aliases_name_and_refer() {
    is("w: notify -> c -> t: notify", "w c t", "wc ct");
    is("w: notify -> c; w -> d", "w c d", "wc wd");
    is("w -> d; w: notify -> c", "w d c", "wd wc");
    is("w: notify -> c; w: notify -> d", "w c d", "wc wd");
}

#[test]
fn an_alias_has_the_path_of_its_action() {
    let model = read(
        "w: bank::notify -> ::other::c; w".parse().unwrap(),
        &mut Errors::default(),
    );
    let paths: Vec<String> = model.nodes.iter().map(|node| node.path.text()).collect();
    assert_eq!(paths, ["bank::notify", "::other::c"]);
}

#[test]
fn a_path_is_named_by_its_last_part() {
    is(
        "bank::debit -> self::r#type -> crate::wait",
        "debit type wait",
        "debittype typewait",
    );
}

#[test]
fn one_mistake_is_one_error() {
    for text in [
        "-> a",
        "a ->",
        "a -> -> b",
        "a => b",
        "a b",
        "a (b)",
        "(a b)",
        "a, b",
        "a; ; b",
        ";",
        "(a; b)",
        "()",
        "a -> ()",
        "[a]",
        "{a}",
        "\"a\"",
        "a -> \"b\"",
        "1 -> b",
        "a::<T>",
        "a<T> -> b",
        "a::",
        "::",
        "a: b: c",
        "a:",
        "a: -> b",
        "x::y: a",
        "a -> a",
        "a -> (b, b)",
        "a -> b; b -> a",
        "a -> b -> c; c -> a",
        "w: a; w: b",
        "x::a; a",
        "wait",
        "a -> if",
        "each: a",
        "fn",
        "super",
        "a!",
        "a? -> b",
        "a - b",
        "a = b",
        "a > b",
        "<a",
        "(,a)",
        "a -> (b,,c)",
        "milestone",
        "m: milestone; milestone: b",
        "& a",
        "a -> ~b",
        "a -> (b ->)",
    ] {
        let mistakes = mistakes(text);
        assert_eq!(mistakes.len(), 1, "{text}: {mistakes:?}");
    }
}

#[test]
fn a_cycle_is_spelled() {
    assert_eq!(
        mistakes("a -> b -> c; x -> b; c -> d -> b"),
        ["a cycle, so that none of it could ever begin: b -> c -> d -> b"]
    );
}

#[test]
fn nothing_stops_the_parser() {
    let mut errors = Errors::default();
    let model = read(
        "a -> () -> \"x\" b => (c; d ->), [e] ; wait -> f ->"
            .parse()
            .unwrap(),
        &mut errors,
    );
    let names: Vec<&str> = model.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c", "d", "e", "f"]);
    assert!(errors.messages().len() >= 6, "{:?}", errors.messages());
}

#[test]
fn the_outcome_is_a_tuple_of_sixteen_at_most() {
    let group = |count: usize| {
        (0..count)
            .map(|n| format!("a{n}: a"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    assert!(mistakes(&format!("({})", group(16))).is_empty());
    assert!(mistakes(&format!("({})", group(17)))[0].contains("at most 16 last actions"));
    assert!(mistakes(&format!("({}) -> b", group(300))).is_empty());
}
