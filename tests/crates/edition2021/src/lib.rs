//! The macros in edition 2021, and through a `macro_rules!` of that edition.

use milestone_runtime::prelude::*;

/// Letters to be counted.
#[derive(Clone, Debug, Serialize, Deserialize, Milestone)]
#[milestone(count -> gen -> report)]
pub struct Letters(pub String);

/// Counts them.
///
/// # Errors
/// Fatal, if there are none.
#[action(idempotent)]
pub async fn count(Params(letters): Params<Letters>) -> Result<usize, ActionError> {
    match letters.0.len() {
        0 => Err(ActionError::fatal("no letters")),
        count => Ok(count),
    }
}

/// In this edition `gen` is a name like any other.
///
/// # Errors
/// None.
#[action]
pub async fn gen(Output(count): Output<count>) -> Result<Vec<usize>, ActionError> {
    Ok((0..count).collect())
}

macro_rules! reports {
    ($($name:ident: $output:ty),+) => {$(
        /// Says it.
        ///
        /// # Errors
        /// None.
        #[action]
        pub async fn $name(_: Params<Letters>, output: Output<$output>) -> Result<usize, ActionError> {
            Ok(output.0.len())
        }
    )+};
}

reports!(report: gen);

macro_rules! counted {
    ($first:ident, $last:path) => { milestone!($first -> gen -> $last) };
}

/// A graph through a macro.
pub fn counted() -> milestone_runtime::Definition<Letters, usize> {
    counted!(count, report)
}
