//! What the tests have in common.

pub mod checker;
pub mod flaky;
pub mod ledger;
pub mod logs;
pub mod look;
pub mod own_server;
pub mod place;
pub mod saga;
pub mod server;
