//! Snapshots of expansions.

use insta::assert_snapshot;

use super::{action, derive, milestone};

#[test]
fn action_without_anything() {
    assert_snapshot!(action("", "async fn tick() {}"));
}

#[test]
fn action_with_all_options() {
    let options = r#"idempotent, undo = bank::refund, retry(max = 5, base = "500ms", cap = "1m", factor = 3), timeout = "30s",
        queue = "bank", concurrency = 4, name = "bank.debit", crate = work,"#;
    let item = "
        /// Takes the money.
        #[cfg(feature = \"bank\")]
        #[tracing::instrument]
        pub(crate) async fn debit(
            Params(t): Params<Transfer>,
            Output(x): Output<rates::fetch>,
            bank: State<Bank>,
            #[cfg(unix)] cx: Context,
        ) -> Result<Balance, BankError> {
            bank.take(t, x).await
        }";
    assert_snapshot!(action(options, item));
}

#[test]
fn action_with_a_verify_and_its_errors_told_apart() {
    let options = "verify = bank::was_charged, retry(max = 3, when = BankError::is_transient)";
    let item = "async fn charge(Params(o): Params<Order>) -> Result<Receipt, BankError> { o.charge().await }";
    assert_snapshot!(action(options, item));
}

#[test]
fn action_in_a_transaction() {
    let options =
        "transactional, undo = bank::refund, retry(max = 3, when = PayError::is_transient)";
    let item = "
        async fn pay(
            Params(t): Params<Transfer>,
            tx: &mut Tx,
            #[cfg(unix)] cx: Context,
        ) -> Result<Receipt, PayError> {
            t.pay(tx).await
        }";
    assert_snapshot!(action(options, item));
}

#[test]
fn action_with_nothing_but_a_transaction() {
    assert_snapshot!(action(
        "transactional",
        "async fn tick(tx: &mut milestone_runtime::mongo::Tx) {}"
    ));
}

#[test]
fn errors_told_apart_leave_the_policy_as_it_is() {
    assert_snapshot!(action(
        "idempotent, retry(when = E::is_transient)",
        "async fn tick() -> Result<(), E> { Ok(()) }"
    ));
}

#[test]
fn action_with_a_raw_name() {
    assert_snapshot!(action(
        "queue = \"a\"",
        "async fn r#move(p: milestone_runtime::action::Params<u8>) {}"
    ));
}

#[test]
fn action_with_mistakes_keeps_its_marker() {
    assert_snapshot!(action(
        "idempotent, timeout = \"30\"",
        "fn debit<T>(_: &str) -> T { todo }"
    ));
}

#[test]
fn action_on_something_else_keeps_it() {
    assert_snapshot!(action("", "struct Debit;"));
}

#[test]
fn derive_on_a_struct() {
    assert_snapshot!(derive(
        "#[milestone(debit -> credit)] struct Transfer { amount: i64 }"
    ));
}

#[test]
fn derive_with_a_deadline() {
    assert_snapshot!(derive(
        "#[milestone(debit, deadline = \"90m\")] struct Transfer;"
    ));
}

#[test]
fn derive_with_options_and_two_ends() {
    let item = r#"#[milestone(bank::debit -> (credit, warn: notify), name = "bank.transfer", crate = ::work)]
        enum Transfer { Small, Large }"#;
    assert_snapshot!(derive(item));
}

#[test]
fn derive_with_mistakes_keeps_its_nodes() {
    assert_snapshot!(derive(
        "#[milestone(debit -> -> cred, queue = 1)] struct Transfer;"
    ));
}

#[test]
fn milestone_in_place() {
    assert_snapshot!(milestone("<debit -> credit>"));
}

#[test]
fn milestone_of_several_chains() {
    assert_snapshot!(milestone(
        "close; a -> (b, c -> d) -> close; e -> d; thank: b -> e;"
    ));
}

#[test]
fn milestone_with_mistakes_keeps_its_nodes() {
    assert_snapshot!(milestone("a -> b; b -> a; c => ()"));
}
