//! A small model of fan-outs of one document, walked through all its states: changes, crashes, and the steps of `fan_out.rs`, in any order.

use std::collections::HashSet;

/// How far a fan-out is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum At {
    NotStarted,
    Joined,
    /// It has read that version, and writes it into the copies sooner or later.
    Read(u8),
    Copied,
    Over,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct State {
    /// The version of the document, and of the copies.
    version: u8,
    copies: u8,
    /// The mark is the number of the change; each has a fan-out of that number.
    mark: Option<usize>,
    copying: Vec<bool>,
    fan_outs: Vec<At>,
    crashes: u8,
}

/// What may be left out, to show that it is needed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Broken {
    Nothing,
    /// It copies while others do.
    Alone,
    /// The mark is removed though it is another one.
    Mark,
}

impl State {
    fn change(&self) -> Option<Self> {
        let mut next = self.clone();
        let number = usize::from(self.version);
        if number >= next.fan_outs.len() {
            return None;
        }
        next.version += 1;
        next.mark = Some(number);
        Some(next)
    }

    fn alone(&self, own: usize) -> bool {
        self.copying
            .iter()
            .enumerate()
            .all(|(other, copies)| other == own || !copies)
    }

    /// The next step of a fan-out.
    fn step(&self, own: usize, broken: Broken) -> Option<Self> {
        let mut next = self.clone();
        let is_current = self.mark == Some(own);
        let at = match self.fan_outs[own] {
            At::NotStarted if usize::from(self.version) <= own => return None,
            At::NotStarted if is_current => {
                next.copying[own] = true;
                At::Joined
            }
            At::Joined if !is_current => {
                next.copying[own] = false;
                At::Over
            }
            At::Joined if self.alone(own) || broken == Broken::Alone => At::Read(self.version),
            At::Read(version) => {
                next.copies = version;
                At::Copied
            }
            At::Copied if is_current || broken == Broken::Mark => {
                next.mark = None;
                next.copying.fill(false);
                At::Over
            }
            // Before it has copied: for an attempt that was cut off.
            At::NotStarted | At::Copied => {
                next.copying[own] = false;
                At::Over
            }
            At::Joined | At::Over => return None,
        };
        next.fan_outs[own] = at;
        Some(next)
    }

    fn crash(&self, own: usize) -> Option<Self> {
        let runs = !matches!(self.fan_outs[own], At::NotStarted | At::Over);
        let mut next = self.clone();
        next.fan_outs[own] = At::NotStarted;
        next.crashes = self.crashes.checked_sub(1)?;
        runs.then_some(next)
    }
}

/// Walks through all states, and gives one without a mark whose copies are not the document.
fn wrong(broken: Broken) -> (usize, Option<State>) {
    let first = State {
        version: 0,
        copies: 0,
        mark: None,
        copying: vec![false; 3],
        fan_outs: vec![At::NotStarted; 3],
        crashes: 2,
    };
    let mut seen = HashSet::from([first.clone()]);
    let mut work = vec![first];
    while let Some(state) = work.pop() {
        if state.mark.is_none() && state.copies != state.version {
            return (seen.len(), Some(state));
        }
        let fan_outs = 0..state.fan_outs.len();
        let next = fan_outs.flat_map(|own| [state.step(own, broken), state.crash(own)]);
        let next: Vec<State> = next.flatten().chain(state.change()).collect();
        let is_stuck = next.is_empty() && state.mark.is_some();
        if is_stuck {
            return (seen.len(), Some(state));
        }
        work.extend(next.into_iter().filter(|next| seen.insert(next.clone())));
    }
    (seen.len(), None)
}

#[test]
fn without_a_mark_the_copies_are_what_the_document_is() {
    let (states, wrong) = wrong(Broken::Nothing);
    assert_eq!(wrong, None);
    assert!(states > 500, "only {states} states");
}

#[test]
fn nothing_of_it_can_be_left_out() {
    for broken in [Broken::Alone, Broken::Mark] {
        assert!(wrong(broken).1.is_some());
    }
}
