//! The macros under another name of the dependency: `#[action]` and the derive are told it, `milestone!` knows it.

use work::prelude::*;

/// A parcel to be sent.
#[derive(Clone, Debug, Serialize, Deserialize, Milestone)]
#[milestone(weigh -> stamp, name = "parcel", crate = work)]
pub struct Parcel {
    /// In grams.
    pub weight: u32,
}

/// Weighs it.
///
/// # Errors
/// Fatal, if it is too heavy.
#[action(idempotent, crate = work)]
pub async fn weigh(Params(parcel): Params<Parcel>) -> Result<u32, ActionError> {
    if parcel.weight > 31_500 {
        return Err(ActionError::fatal("too heavy"));
    }
    Ok(parcel.weight)
}

/// Stamps it.
///
/// # Errors
/// None.
#[action(crate = ::work)]
pub async fn stamp(Output(weight): Output<weigh>) -> Result<bool, ActionError> {
    Ok(weight > 0)
}

/// The same in place.
pub fn parcel() -> work::Definition<Parcel, bool> {
    work::milestone!(weigh -> stamp)
}
