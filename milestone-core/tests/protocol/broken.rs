//! The protocol with one of its rules left out. Each time the search finds what goes wrong; that shows what the rule is for, and that the
//! search would find a hole.

use crate::{
    MOST,
    scenario::{Broken, CHAIN, NO_FAULTS, PARALLEL, Scenario, cancel, pause},
    search::search,
    state::Faults,
};

const LOSS: Faults = Faults {
    losses: 1,
    ..NO_FAULTS
};

const SLOW: Faults = Faults {
    freezes: 1,
    ..NO_FAULTS
};

/// Finds the shortest way to a broken promise. With the rule, the same search finds nothing.
fn goes_wrong(broken: Broken, scenario: Scenario, how: &str) {
    let scenario = scenario.without(broken);
    let found = search(&scenario, MOST).expect("it fits");
    let way = found.counterexample;
    let way =
        way.unwrap_or_else(|| panic!("{broken:?}: nothing goes wrong in {} states", found.states));
    println!("{broken:?}, after {} states: {way}", found.states);
    assert!(
        way.contains(how),
        "{broken:?} breaks another promise: {way}"
    );
}

#[test]
fn a_commit_without_rev() {
    let scenario = Scenario::new("a chain, a loss", CHAIN, LOSS);
    goes_wrong(
        Broken::CommitIgnoresRev,
        scenario,
        "a late copy of a commit",
    );
}

/// Neither in the filter nor when it is read back.
#[test]
fn a_commit_without_token() {
    goes_wrong(
        Broken::NoToken,
        Scenario::new("two at once, a slow tick", PARALLEL, SLOW),
        "P4: one that does not hold the milestone changes it",
    );
}

/// A claim counts `rev` too, and a worker learns by the token what became of a commit. So the token in the filter is a second fence: without
/// it alone nothing goes wrong.
#[test]
fn the_token_in_the_filter_of_a_commit_is_a_second_fence() {
    let faults = Faults { losses: 1, ..SLOW };
    let name = "a chain, a loss and a slow tick";
    let scenario = Scenario::new(name, CHAIN, faults).born_leased();
    let found = search(&scenario.without(Broken::CommitIgnoresToken), MOST).expect("it fits");
    assert_eq!(found.counterexample, None);
    assert!(found.states > 16_000, "{}", found.states);
}

#[test]
fn a_commit_without_mail() {
    let scenario = Scenario::new("a chain, a cancel", CHAIN, NO_FAULTS);
    goes_wrong(
        Broken::CommitIgnoresMail,
        scenario.commands([cancel()]),
        "begins, and a command is unread",
    );
}

#[test]
fn a_claim_without_the_end_of_the_lease() {
    let scenario = Scenario::new("a chain, a slow tick", CHAIN, SLOW);
    goes_wrong(
        Broken::ClaimIgnoresUntil,
        scenario,
        "P4: a milestone is taken from one whose lease holds",
    );
}

#[test]
fn a_lost_reply_that_means_not_done() {
    let scenario = Scenario::new("a chain, a cancel, a loss", CHAIN, LOSS);
    goes_wrong(
        Broken::LostMeansNotDone,
        scenario.commands([cancel()]),
        "has another document in memory than is stored",
    );
}

#[test]
fn a_lost_reply_that_means_done() {
    goes_wrong(
        Broken::LostMeansDone,
        Scenario::new("a chain, a loss", CHAIN, LOSS),
        "which does not run in the database",
    );
}

#[test]
fn a_commit_of_unknown_fate_that_is_not_sent_again() {
    goes_wrong(
        Broken::UnknownIsForgotten,
        Scenario::new("a chain, a loss", CHAIN, LOSS),
        "P1: from here on it never ends, and waits for nobody",
    );
}

#[test]
fn commands_that_are_not_recognised() {
    let faults = Faults {
        resends: 1,
        ..NO_FAULTS
    };
    let scenario = Scenario::new("a chain, a pause that is sent again", CHAIN, faults);
    goes_wrong(
        Broken::CommandsNotRecognised,
        scenario.commands([pause()]),
        "the command 0 is there 2 times",
    );
}

#[test]
fn a_renewal_that_sets_the_end() {
    goes_wrong(
        Broken::RenewalSets,
        Scenario::new("a chain, a loss", CHAIN, LOSS),
        "believes that it holds the milestone, and does not",
    );
}

#[test]
fn a_body_that_starts_without_a_lease() {
    goes_wrong(
        Broken::StartsWithoutLease,
        Scenario::new("a chain, a slow tick", CHAIN, SLOW),
        "and does not hold the milestone",
    );
}

#[test]
fn a_body_that_starts_before_its_begin_is_stored() {
    goes_wrong(
        Broken::StartsUnstored,
        Scenario::new("two at once", PARALLEL, NO_FAULTS),
        "which does not run in the database",
    );
}

/// The engine did this, until this search and the simulation found it.
#[test]
fn an_answer_that_is_taken_for_another() {
    goes_wrong(
        Broken::AnswersByIdAlone,
        Scenario::new("a chain, a slow tick", CHAIN, SLOW),
        "which does not run in the database",
    );
}

/// The engine did this, until this search found it.
#[test]
fn a_command_that_is_read_behind_a_begin() {
    let name = "a chain, a pause, a resume and a cancel";
    let commands = [pause(), milestone_core::record::Order::Resume, cancel()];
    let scenario = Scenario::new(name, CHAIN, NO_FAULTS).commands(commands);
    goes_wrong(
        Broken::MailBehindBegin,
        scenario.born_leased(),
        "begins after a command that forbids it",
    );
}

/// The engine did this, until this search found it.
#[test]
fn a_birth_that_replaces_a_claim() {
    let faults = Faults {
        freezes: 2,
        ..NO_FAULTS
    };
    let scenario = Scenario::new("a chain, two slow ticks", CHAIN, faults);
    goes_wrong(
        Broken::BornOverClaimed,
        scenario.born_leased(),
        "forgets a milestone that it holds",
    );
}
