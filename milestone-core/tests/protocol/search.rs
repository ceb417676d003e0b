//! Every state that can be reached, the nearest first, so that a counterexample is a shortest one.

use std::{
    collections::{HashMap, hash_map::Entry},
    fmt::Write as _,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use crate::{
    pool::Pool,
    rules::{check_state, is_at_rest},
    scenario::Scenario,
    state::State,
    steps::{Next, next},
};

/// What a search has found.
pub(crate) struct Found {
    /// How many states there are.
    pub(crate) states: usize,
    /// How many steps.
    pub(crate) steps: usize,
    /// How many steps the farthest state is away.
    pub(crate) depth: usize,
    /// In how many of them nothing is left to do.
    pub(crate) at_rest: usize,
    /// How many different documents and patches there are.
    pub(crate) kept: (usize, usize),
    /// A shortest way to a broken promise, in words.
    pub(crate) counterexample: Option<String>,
}

/// How a state was reached.
struct Reached {
    fingerprint: u64,
    from: u32,
}

/// Searches all states; `None`: there are more than `most`.
pub(crate) fn search(scenario: &Scenario, most: usize) -> Option<Found> {
    let mut pool = Pool::default();
    let beginning = scenario.beginning(&mut pool);
    let mut search = Search {
        scenario,
        pool,
        reached: Vec::new(),
        known: HashMap::new(),
        calm: Vec::new(),
        at_rest: Vec::new(),
        steps: 0,
    };
    let (mut layer, mut depth) = (Vec::new(), 0);
    search.reach(&canonical(&beginning), 0);
    layer.push((0_u32, canonical(&beginning)));
    let mut counterexample = None;
    'search: while !layer.is_empty() {
        let mut further = Vec::new();
        for (from, state) in layer {
            for Next {
                step,
                state,
                broken,
            } in next(&mut search.pool, scenario, &state)
            {
                search.steps += 1;
                let state = canonical(&state);
                let broken = broken.or_else(|| check_state(&mut search.pool, &state).err());
                let (to, is_new) = search.reach(&state, from);
                if broken.is_some() {
                    let last = (from, fingerprint(&state));
                    counterexample = Some(search.tell(&beginning, last, ""));
                    break 'search;
                }
                if step.is_calm() {
                    search.calm.push((from, to));
                }
                if is_new {
                    further.push((to, state));
                }
            }
            if search.reached.len() > most {
                return None;
            }
        }
        depth += usize::from(!further.is_empty());
        layer = further;
    }
    let counterexample = counterexample.or_else(|| search.stuck(&beginning));
    Some(Found {
        states: search.reached.len(),
        steps: search.steps,
        depth,
        at_rest: search.at_rest.len(),
        kept: search.pool.sizes(),
        counterexample,
    })
}

struct Search<'a> {
    scenario: &'a Scenario,
    pool: Pool,
    reached: Vec<Reached>,
    known: HashMap<u64, u32>,
    /// Steps that need no fault, from one state to another.
    calm: Vec<(u32, u32)>,
    at_rest: Vec<u32>,
    steps: usize,
}

impl Search<'_> {
    /// The number of a state, and whether it is new.
    fn reach(&mut self, state: &State, from: u32) -> (u32, bool) {
        let fingerprint = fingerprint(state);
        match self.known.entry(fingerprint) {
            Entry::Occupied(known) => (*known.get(), false),
            Entry::Vacant(free) => {
                let number = u32::try_from(self.reached.len()).expect("few");
                free.insert(number);
                self.reached.push(Reached { fingerprint, from });
                if is_at_rest(&self.pool, state) {
                    self.at_rest.push(number);
                }
                (number, true)
            }
        }
    }

    /// A state from which, even if nothing goes wrong any more, no end and no rest is reached.
    fn stuck(&mut self, beginning: &State) -> Option<String> {
        let mut before: Vec<Vec<u32>> = vec![Vec::new(); self.reached.len()];
        for (from, to) in &self.calm {
            before[*to as usize].push(*from);
        }
        let mut comes_to_rest = vec![false; self.reached.len()];
        let mut open = self.at_rest.clone();
        while let Some(state) = open.pop() {
            if !std::mem::replace(&mut comes_to_rest[state as usize], true) {
                open.extend(&before[state as usize]);
            }
        }
        let stuck = comes_to_rest.iter().position(|comes| !comes)?;
        let Reached { fingerprint, from } = self.reached[stuck];
        let what = "P1: from here on it never ends, and waits for nobody";
        Some(self.tell(beginning, (from, fingerprint), what))
    }

    /// The way to a state, in words. It is gone again from the beginning, with the workers as they were named there.
    fn tell(&mut self, beginning: &State, last: (u32, u64), what: &str) -> String {
        let (mut at, end) = last;
        let mut way = vec![end];
        while at != 0 {
            let reached = &self.reached[at as usize];
            way.push(reached.fingerprint);
            at = reached.from;
        }
        let mut told = format!("{}\n", self.scenario.name);
        let mut state = beginning.clone();
        let (mut stored, mut broken) = (None, None);
        for (place, wanted) in way.into_iter().rev().enumerate() {
            let steps = next(&mut self.pool, self.scenario, &state);
            let step = steps
                .into_iter()
                .find(|next| fingerprint(&canonical(&next.state)) == wanted)
                .expect("each state was reached by a step");
            let _ = writeln!(told, "{:3}. {}", place + 1, step.step);
            state = step.state;
            // Here the workers have the names that they have in the steps above.
            broken = step
                .broken
                .or_else(|| check_state(&mut self.pool, &state).err());
            let now = self.describe(&state);
            if stored.as_ref() != Some(&now) {
                let _ = writeln!(told, "         stored: {now}");
                stored = Some(now);
            }
        }
        let _ = writeln!(told, "     => {}", broken.as_deref().unwrap_or(what));
        told
    }

    /// What is stored, in a line.
    fn describe(&self, state: &State) -> String {
        let record = self.pool.get(state.stored);
        let mut line = format!(
            "{}, rev {}, epoch {}",
            record.state, record.rev, record.epoch
        );
        match self.pool.lease(state.stored) {
            Some((token, until)) => {
                let _ = write!(line, ", lease {token} for {until}");
            }
            None => line.push_str(", nobody's"),
        }
        for action in &record.actions {
            let _ = write!(
                line,
                ", {}: {:?} {}",
                action.name, action.state, action.attempts
            );
        }
        if record.mail > 0 {
            let _ = write!(
                line,
                ", mail {}, unread {}",
                record.mail,
                record.inbox.len()
            );
        }
        if record.hold.is_some() {
            line.push_str(", on hold");
        }
        line
    }
}

/// Which of the two workers is the first one is of no account.
fn canonical(state: &State) -> State {
    let mut state = state.clone();
    state.workers.sort_unstable();
    state
}

/// Two states with one fingerprint would be taken for one; with a million states the odds are one in 30 million.
fn fingerprint(state: &State) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}
