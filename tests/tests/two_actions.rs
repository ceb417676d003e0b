//! Two actions of one durable name in one binary: an error of `build()` that names both places.

use milestone_runtime::{Error, Runtime};

mod savings {
    use milestone_runtime::prelude::*;

    #[action(name = "debit")]
    pub(crate) async fn debit_savings() {}
}

mod current {
    use milestone_runtime::prelude::*;

    #[action]
    pub(crate) async fn debit() {}
}

#[tokio::test]
async fn two_actions_of_one_name_are_an_error_with_both_places() {
    savings::debit_savings().await;
    current::debit().await;
    let error = Runtime::builder("memory:").build().await.unwrap_err();
    let Error::TwoActions {
        name,
        first,
        second,
    } = &error
    else {
        panic!("{error}");
    };
    assert_eq!((&**name, error.code()), ("debit", "two_actions"));
    for place in [first, second] {
        assert!(place.contains("tests/two_actions.rs:"), "{place}");
    }
    assert_ne!(first, second);
    assert!(
        error.to_string().contains("#[action(name = \"..\")]"),
        "{error}"
    );
}
