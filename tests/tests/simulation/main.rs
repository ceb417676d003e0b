//! The whole runtime, simulated: several workers on a store in memory, under a clock that jumps from one event to the next, with calls that
//! are lost, late and doubled, with outages, and with workers that freeze, die and end. Everything comes from the number of the seed, so what
//! one run finds every run finds. See "How failures are simulated" in `docs/architecture.md`.
//!
//! `MILESTONE_SEED=7` runs that seed alone and shows what happened; `MILESTONE_SEEDS=5000` runs so many, `MILESTONE_SEEDS=1000..9000` those.

mod broken;
mod client;
mod court;
mod ending;
mod kinds;
mod ledger;
mod log;
mod methods;
mod operator;
mod reached;
mod rules;
mod run;
mod story;
mod wire;
mod world;

use broken::{Broken, FLAWS};
use run::{healthy, seeds, simulate};

/// How many seeds run where nobody says otherwise.
const SEEDS: u64 = 1_000;

#[test]
fn all_seeds() {
    run::all(seeds(SEEDS));
}

#[test]
fn a_seed_is_repeated_exactly() {
    for seed in [3, 14, 159] {
        let (first, second) = (simulate(seed, healthy), simulate(seed, healthy));
        assert!(first.lines > 50, "something happens: {first:?}");
        assert_eq!(first, second, "seed {seed}");
        assert_ne!(first.hash, simulate(seed + 1, healthy).hash);
    }
}

/// What the checks are worth: each kind of broken store is found, and soon.
#[test]
fn every_broken_store_is_found() {
    const SOON: u64 = 150;
    for flaw in FLAWS {
        let found = (0..SOON).find_map(|seed| {
            let shown = simulate(seed, |memory| Broken::new(flaw, memory));
            Some((seed, shown.wrong?))
        });
        let (seed, wrong) =
            found.unwrap_or_else(|| panic!("{flaw:?} is not found in {SOON} seeds"));
        println!("{flaw:?}: seed {seed}: {wrong}");
    }
}
