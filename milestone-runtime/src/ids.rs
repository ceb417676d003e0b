//! Random identities.

/// 96 random bits in hex: the token of a lease.
pub(crate) fn random_token() -> String {
    bson::oid::ObjectId::new().to_hex() + &format!("{:08x}", fastrand::u32(..))
}

/// The identity of a worker: its name, and something new at each start, so that a restarted one is another.
pub(crate) fn worker_id(name: &str) -> String {
    format!("{name}-{:08x}", fastrand::u32(..))
}
