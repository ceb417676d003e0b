//! What the compiler says about mistakes: each case of `tests/ui` is one, and its message stands beside it.
//! `TRYBUILD=overwrite` writes the messages anew.

#[test]
fn mistakes_are_clear_errors_at_the_token() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("ui/action/*.rs");
    cases.compile_fail("ui/graph/*.rs");
    cases.compile_fail("ui/derive/*.rs");
}
