//! What every store must do. A store that passes may carry milestones.
//!
//! ```no_run
//! use std::sync::Arc;
//! use milestone_runtime::testing::conformance::{self, Subject};
//!
//! # async fn test(new_subject: impl Fn() -> std::future::Ready<Arc<dyn Subject>>) {
//! conformance::run(new_subject).await; // panics, naming the checks that failed
//! # }
//! ```
//!
//! The checks know a store by its trait alone, and what no caller would write by [`Subject::plant`]. They need a tokio runtime, best
//! one with several threads.

mod bench;
mod claim;
mod commit;
mod fencing;
mod insert;
mod life;
mod list;
mod mail;
mod queue;
mod renew;
mod send;
mod unreadable;
mod values;

use std::{any::Any, fmt, panic::AssertUnwindSafe, pin::Pin, sync::Arc};

use bson::Document;
use futures_util::FutureExt;
use milestone_core::record::MilestoneId;

use crate::store::Store;
use bench::Bench;

/// What a call of a [`Subject`] gives.
pub type SubjectFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// An empty place for milestones that the checks may fill: one check, one subject. It panics where it cannot do what it is asked.
pub trait Subject: Send + Sync + 'static {
    /// A store on this place, opened. Asked again, it gives another one on the same data, as a second process would have it; what
    /// cannot have two gives the same again.
    fn store(&self) -> SubjectFuture<'_, Arc<dyn Store>>;

    /// Puts a document in its place as it is, whatever it says; one of the same `_id` is replaced.
    fn plant(&self, document: Document) -> SubjectFuture<'_, ()>;

    /// Reads a document as it is.
    fn raw(&self, id: MilestoneId) -> SubjectFuture<'_, Option<Document>>;

    /// Whether it has the types of BSON that nothing makes any more: undefined, symbol, pointer.
    fn has_deprecated_types(&self) -> bool {
        true
    }
}

/// One thing that a store must do.
#[derive(Clone, Copy)]
pub struct Check {
    name: &'static str,
    run: fn(Bench) -> SubjectFuture<'static, ()>,
}

impl Check {
    /// Its name, such as `claim::takes_each_milestone_once`.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Runs it on a fresh subject.
    ///
    /// # Panics
    /// If the store does not do it.
    pub async fn run(&self, subject: Arc<dyn Subject>) {
        (self.run)(Bench::new(subject).await).await;
    }
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Check").field(&self.name).finish()
    }
}

macro_rules! checks {
    ($($module:ident: $($name:ident),+;)+) => {
        /// All checks.
        pub const CHECKS: &[Check] = &[$($(Check {
            name: concat!(stringify!($module), "::", stringify!($name)),
            run: |bench| Box::pin($module::$name(bench)),
        }),+),+];
    };
}

checks! {
    insert: is_atomic_for_one_id, a_duplicate_hinders_nobody, keeps_what_it_is_given, a_document_too_large_is_refused_alone,
        a_document_too_deep_is_refused_alone, a_deep_one_is_kept;
    claim: takes_each_milestone_once, writes_what_it_gives, begins_what_may_run_twice, counts_a_loss, leaves_live_leases_alone, takes_expired_leases_when_told,
        keeps_to_the_limit, leaves_the_excepted_alone, leaves_alone_what_is_not_due;
    queue: earliest_first_across_pages, not_before_its_time, only_methods_of_the_worker, only_queues_of_the_worker,
        others_in_front_do_not_block, the_higher_priority_first;
    commit: changes_what_the_patch_names, repeated_is_done_once, a_release_repeated_is_done_once, each_of_a_batch_for_itself,
        several_of_one_milestone, too_large_is_refused_alone, unknown_fields_stay, many_at_once;
    fencing: nobody_writes_with_a_wrong_token, nobody_writes_with_a_wrong_rev, nobody_writes_after_a_takeover,
        nobody_writes_to_what_is_gone, a_holder_and_takers;
    mail: guards_a_commit, does_not_hinder_what_is_not_guarded, does_not_hinder_a_repeated_commit;
    renew: prolongs_a_lease, never_shortens, revives_a_lease, tells_the_lost_one_by_one, tells_of_mail, keeps_others_away,
        beside_commits_and_commands;
    send: delivers_once, delivers_once_to_many_senders, tells_what_is_not_there, asks_for_the_state, stops_at_a_full_inbox,
        wakes_what_nobody_holds, wakes_in_a_queue_of_the_milestone, leaves_a_live_lease_alone, wakes_behind_a_dead_lease,
        keeps_the_value_in_a_command;
    values: of_every_type_as_parameters, of_every_type_as_outputs, with_any_keys, in_labels_and_ids;
    unreadable: are_left_alone_and_named, do_not_block_others, are_told_on_reading, of_a_claimed_one_lose_nothing;
    list: pages_over_all_ids, filters, by_labels_of_any_name, counts, by_dates, by_ids_of_their_type, tallies, lacks_nothing_once_open;
    life: opened_twice_keeps_all, a_second_handle_sees_the_same, removed_is_gone, time_goes_on, hints_come,
        workers_come_and_go, reads_what_exists;
}

/// Runs all checks, each on a subject of its own, one after the other.
///
/// # Panics
/// If any fails, at the end, with the names of those that failed and why.
pub async fn run<F, Fut>(fresh: F)
where
    F: Fn() -> Fut,
    Fut: Future<Output = Arc<dyn Subject>>,
{
    let mut failed = Vec::new();
    for check in CHECKS {
        let subject = fresh().await;
        if let Err(panic) = AssertUnwindSafe(check.run(subject)).catch_unwind().await {
            failed.push(format!("{}: {}", check.name, message(&*panic)));
        }
    }
    assert!(
        failed.is_empty(),
        "{} of {} checks failed:\n{}",
        failed.len(),
        CHECKS.len(),
        failed.join("\n")
    );
}

/// Runs the check of that name.
///
/// # Panics
/// If it fails, with its name, or if there is none of that name.
pub async fn run_one(name: &str, subject: Arc<dyn Subject>) {
    let check = CHECKS.iter().find(|check| check.name == name);
    let check = check.unwrap_or_else(|| panic!("there is no check `{name}`; there are {CHECKS:?}"));
    if let Err(panic) = AssertUnwindSafe(check.run(subject)).catch_unwind().await {
        panic!("{name}: {}", message(&*panic));
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("it panicked")
}
