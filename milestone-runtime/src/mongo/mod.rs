//! The MongoDB toolkit: what applications use transactions, two-phase commit and helper collections for, as parts that work with milestones
//! and by themselves.

pub(crate) mod cleaner;
pub(crate) mod fate;
mod field_sync;
pub(crate) mod once;
mod sequence;
mod server_clock;
pub(crate) mod trace;
pub(crate) mod tx;

pub use jiff;

pub use self::{
    field_sync::{FieldSync, FieldSyncError},
    once::{
        DeleteOne, InsertOne, Inserted, MOST_MARKERS, Once, OnceError, TakeBack, Target, Undo,
        Undone, UpdateOne, Written,
    },
    sequence::{
        Counters, DEFAULT_SEQUENCES, Ids, NextId, Sequence, SequenceBuilder, SequenceError,
    },
    tx::{Operation, Tx, TxFuture},
};
