//! What the tests have in common.

pub mod ledger;
pub mod look;
pub mod place;
pub mod proxy;
pub mod server;
