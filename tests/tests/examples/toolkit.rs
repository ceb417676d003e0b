//! The examples that need MongoDB. Each prints what it proves, and its docs show that.

use milestone_tests::{on_stores, place::Place};

use super::{attempts, run, shape, shown};

/// What an example prints in an empty database; it must be what its docs show.
fn run_as_shown(name: &str, place: &Place) -> String {
    let output = run(name, &["--uri", &place.uri()]);
    let shown = shown(name, &format!("$ cargo xtask example {name}"));
    assert_eq!(shape(&output), shape(&shown), "printed:\n{output}");
    output
}

async fn s31_friends_on_both_sides_after_a_kill_between_the_two_writes(place: Place) {
    let output = run_as_shown("add_friend", &place);
    let one_sided = "ann has the friends [bob], bob has the friends []\n";
    let both = "ann has the friends [bob], bob has the friends [ann]\n";
    let kill = output.find(one_sided).expect("the first write was made");
    let end = output.find(both).expect("both writes were made");
    assert!(kill < end, "{output}");
    let expected = [["add_friend", "1", "abandoned"], ["add_friend", "2", "yes"]];
    assert_eq!(attempts(&output), expected, "{output}");
}

async fn s29_an_order_keeps_its_number_when_its_action_is_repeated(place: Place) {
    let output = run_as_shown("order_ids", &place);
    let expected = [["take", "1", "abandoned"], ["take", "2", "yes"]];
    assert_eq!(attempts(&output), expected, "{output}");
    let told = "20 orders are written down, one for each customer\n";
    assert!(output.contains(told), "{output}");
}

async fn s28_three_inserts_side_by_side_are_all_undone(place: Place) {
    let output = run("all_or_nothing", &["--uri", &place.uri()]);
    // What runs side by side ends in any order.
    let [mut printed, mut expected] = [
        shape(&output),
        shape(&shown(
            "all_or_nothing",
            "$ cargo xtask example all_or_nothing",
        )),
    ];
    printed.sort();
    expected.sort();
    assert_eq!(printed, expected, "printed:\n{output}");
    let undone = "a purchase of 5000 is undone; documents: 0 order, 0 invoice, 0 shipment\n";
    assert!(output.contains(undone), "{output}");
    let attempts = attempts(&output);
    for expected in [
        ["invoice", "1", "no"],
        ["order (undo)", "1", "yes"],
        ["shipment (undo)", "1", "no"],
        ["shipment (undo)", "2", "yes"],
    ] {
        assert!(attempts.contains(&expected), "{output}");
    }
}

async fn s30_comments_follow_their_user_after_a_kill_and_in_a_hurry(place: Place) {
    let output = run_as_shown("rename_user", &place);
    let told = [
        "the user is Ann B., marked 1 times; 50 of 100 comments have that name\n",
        "the user is Ann B., marked 0 times; 100 of 100 comments have that name\n",
        "the user is Ann B. 10, marked 0 times; 100 of 100 comments have that name\n",
    ];
    for line in told {
        assert!(output.contains(line), "{output}");
    }
}

on_stores!(mongodb:
    s28_three_inserts_side_by_side_are_all_undone,
    s30_comments_follow_their_user_after_a_kill_and_in_a_hurry,
    s29_an_order_keeps_its_number_when_its_action_is_repeated,
    s31_friends_on_both_sides_after_a_kill_between_the_two_writes,
);
