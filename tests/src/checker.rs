//! Walks a whole collection and finds every milestone that is not as the robot leaves one.

use milestone_runtime::{
    MilestoneRecord, Runtime,
    core::machine,
    store::{Filter, Page},
};

/// All milestones of a collection, page by page.
///
/// # Panics
/// If one of them cannot be read, or breaks an invariant: its state, its dates, its attempts, its lease and what it is due for must agree.
pub async fn checked(runtime: &Runtime) -> Vec<MilestoneRecord> {
    let mut all = Vec::new();
    let mut wrong = Vec::new();
    let mut page = Page {
        limit: 500,
        ..Page::default()
    };
    loop {
        let listed = runtime
            .list(Filter::new(), page.clone())
            .await
            .expect("the database answers");
        wrong.extend(listed.unreadable.iter().map(ToString::to_string));
        wrong.extend(
            listed
                .records
                .iter()
                .flat_map(machine::check)
                .map(|violation| violation.to_string()),
        );
        all.extend(listed.records);
        match listed.next {
            Some(next) => page.after = Some(next),
            None => break,
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {} milestones are wrong:\n{}",
        wrong.len(),
        all.len(),
        wrong.join("\n")
    );
    all
}
