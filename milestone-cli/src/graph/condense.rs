//! A large graph with its many alike actions put together, so that what matters can be seen.

use std::collections::{BTreeMap, BTreeSet};

use milestone_runtime::{
    MilestoneRecord,
    core::record::{ActionRecord, ActionState, UndoState},
};

/// A graph of so many actions is drawn as it is.
const SMALL: usize = 24;

/// So many of one kind side by side, or in a row, are drawn one by one.
const FEW: usize = 4;

/// An action of a drawing, or several that are put together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    /// The indices of its actions.
    pub(crate) actions: Vec<usize>,
    /// The items that it comes after.
    pub(crate) after: Vec<usize>,
}

/// The items of a graph; each stands behind those that it comes after.
pub(crate) fn items(record: &MilestoneRecord, whole: bool) -> Vec<Item> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    if !whole && record.actions.len() > SMALL {
        let followers = followers(record);
        groups.extend(twins(record, &followers));
        groups.extend(rows(record, &followers));
    }
    contract(record, &groups)
}

/// Whether somebody may look for this one in particular.
pub(crate) fn is_remarkable(action: &ActionRecord) -> bool {
    let undo = action.undo.as_ref().map(|undo| undo.state);
    matches!(
        action.state,
        ActionState::Running | ActionState::Backoff | ActionState::InDoubt | ActionState::Failed
    ) || matches!(undo, Some(UndoState::Running | UndoState::Failed))
}

fn followers(record: &MilestoneRecord) -> Vec<Vec<usize>> {
    let mut followers = vec![Vec::new(); record.actions.len()];
    for (index, action) in record.actions.iter().enumerate() {
        for before in &action.after {
            followers[*before as usize].push(index);
        }
    }
    followers
}

/// Those side by side: they come after the same actions, and the same come after them. A few remarkable ones stand for themselves.
fn twins(record: &MilestoneRecord, followers: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut alike: BTreeMap<(BTreeSet<u32>, &[usize]), Vec<usize>> = BTreeMap::new();
    for (index, action) in record.actions.iter().enumerate() {
        let after = action.after.iter().copied().collect();
        alike
            .entry((after, &followers[index]))
            .or_default()
            .push(index);
    }
    let mut groups = Vec::new();
    for members in alike.into_values().filter(|members| members.len() > FEW) {
        let mut alone = 0;
        let rest: Vec<usize> = members
            .into_iter()
            .filter(|index| {
                let stands_alone = alone < FEW && is_remarkable(&record.actions[*index]);
                alone += usize::from(stands_alone);
                !stands_alone
            })
            .collect();
        if rest.len() > 1 {
            groups.push(rest);
        }
    }
    groups
}

/// Those in a row, without a branch, in the same unremarkable state; the first and the last of them stand for themselves.
fn rows(record: &MilestoneRecord, followers: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let only = |index: usize| match followers[index][..] {
        [follower] if record.actions[follower].after.len() == 1 => Some(follower),
        _ => None,
    };
    let state = |index: usize| record.actions[index].state;
    let mut seen = vec![false; record.actions.len()];
    let mut groups = Vec::new();
    for start in 0..record.actions.len() {
        if seen[start] || is_remarkable(&record.actions[start]) {
            continue;
        }
        let mut row = vec![start];
        let mut last = start;
        while let Some(next) = only(last).filter(|next| state(*next) == state(start)) {
            row.push(next);
            last = next;
        }
        for index in &row {
            seen[*index] = true;
        }
        if row.len() > FEW + 2 {
            groups.push(row[1..row.len() - 1].to_vec());
        }
    }
    groups
}

/// Puts each group in the place of its first member.
fn contract(record: &MilestoneRecord, groups: &[Vec<usize>]) -> Vec<Item> {
    let mut group_of: Vec<Option<usize>> = vec![None; record.actions.len()];
    for (number, group) in groups.iter().enumerate() {
        for index in group {
            group_of[*index] = Some(number);
        }
    }
    let mut place: Vec<usize> = vec![0; record.actions.len()];
    let mut items: Vec<Item> = Vec::new();
    for (index, group) in group_of.iter().enumerate() {
        let actions = match *group {
            Some(number) if groups[number][0] == index => groups[number].clone(),
            Some(_) => continue,
            None => vec![index],
        };
        for member in &actions {
            place[*member] = items.len();
        }
        items.push(Item {
            actions,
            after: Vec::new(),
        });
    }
    for (at, item) in items.iter_mut().enumerate() {
        let actions = item.actions.iter();
        let before = actions.flat_map(|index| &record.actions[*index].after);
        let after: BTreeSet<usize> = before
            .map(|before| place[*before as usize])
            .filter(|before| *before != at)
            .collect();
        item.after = after.into_iter().collect();
    }
    items
}
