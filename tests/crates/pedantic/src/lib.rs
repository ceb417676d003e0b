//! Uses all that the macros offer under lints that an application may have: generated code gives no warning.
#![deny(
    warnings,
    clippy::pedantic,
    unused_qualifications,
    missing_docs,
    unreachable_pub,
    rust_2018_idioms,
    single_use_lifetimes,
    trivial_casts,
    unused_results
)]
#![forbid(unsafe_code)]

pub mod bank;
pub mod transfer;

mod hidden;
mod strict;

pub use hidden::{Parcel, visible};
pub use strict::tick;
