//! What the tests have in common.

pub mod checker;
pub mod commands;
pub mod doomed;
pub mod flaky;
pub mod journal;
pub mod ledger;
pub mod load;
pub mod logs;
pub mod look;
pub mod own_server;
pub mod payments;
pub mod place;
pub mod proxy;
pub mod renaming;
pub mod saga;
pub mod server;
pub mod steady;
pub mod sweep;
pub mod transfer;

pub mod verdict;
pub mod worker_process;
