//! Running seeds, and telling how to run one again.

use std::{
    cell::Cell,
    env,
    io::{self, Write},
    ops::Range,
    panic, process,
    sync::{
        Arc, Once,
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use milestone_runtime::{store::Store, testing::MemoryStore};

use super::{
    methods::PANIC,
    reached::Reached,
    world::{Shown, World},
};

/// In so many seeds everything happens that may.
const ENOUGH: u64 = 1_000;

thread_local! {
    /// A panic on this thread that no action made on purpose.
    static PANICKED: Cell<bool> = const { Cell::new(false) };
}

/// The seeds that the environment asks for.
pub(crate) fn seeds(by_itself: u64) -> Range<u64> {
    if let Some(seed) = number("MILESTONE_SEED") {
        return seed..seed + 1;
    }
    let Ok(range) = env::var("MILESTONE_SEEDS") else {
        return 0..by_itself;
    };
    match range.split_once("..") {
        Some((from, to)) => parse(from)..parse(to),
        None => 0..parse(&range),
    }
}

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|value| parse(&value))
}

fn parse(value: &str) -> u64 {
    value
        .parse()
        .unwrap_or_else(|_| panic!("`{value}` is no number of a seed"))
}

/// The store as it is.
pub(crate) fn healthy(memory: Arc<MemoryStore>) -> Arc<dyn Store> {
    memory
}

/// Runs seeds one after the other, and fails with the first that finds something.
pub(crate) fn all(seeds: Range<u64>) {
    let began = Instant::now();
    let is_alone = seeds.end - seeds.start == 1;
    let (mut lines, mut millis, mut bodies) = (0, 0, 0);
    let mut reached = Reached::default();
    for seed in seeds.clone() {
        let shown = simulate(seed, healthy);
        if let Some(wrong) = &shown.wrong {
            panic!(
                "\n{}\n\nseed {seed}: {wrong}\n{}\n",
                shown.tail,
                alone(seed)
            );
        }
        if is_alone {
            println!("{}", shown.tail);
        }
        lines += shown.lines;
        millis += shown.millis;
        bodies += shown.bodies;
        reached.add(&shown.reached);
    }
    println!(
        "seeds {seeds:?}: {bodies} bodies, {lines} events, {} h of simulated time in {:?}",
        millis / 3_600_000,
        began.elapsed()
    );
    println!("{reached:?}");
    if seeds.end - seeds.start >= ENOUGH {
        reached.check();
    }
}

/// Runs one seed.
pub(crate) fn simulate(
    seed: u64,
    broken: impl FnOnce(Arc<MemoryStore>) -> Arc<dyn Store>,
) -> Shown {
    install_panic_hook();
    PANICKED.set(false);
    let _watched = watch(seed);
    fastrand::seed(seed);
    let tokio = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a tokio runtime");
    let mut shown = tokio.block_on(async {
        let world = World::new(seed, broken);
        let playing = tokio::time::timeout(Duration::from_mins(10), world.play());
        if let Ok(shown) = playing.await {
            return shown;
        }
        world.log.wrong("the simulation does not end");
        Shown {
            hash: world.log.hash(),
            lines: world.log.lines(),
            millis: world.log.now(),
            bodies: 0,
            reached: Reached::default(),
            wrong: world.log.found(),
            tail: world.log.tail(),
        }
    });
    if PANICKED.get() {
        shown.wrong = Some("something has panicked, see above".to_owned());
    }
    shown
}

/// Where something spins, the simulated time stands still and nothing in it can end it. A seed takes some hundredths of a second.
fn watch(seed: u64) -> Sender<()> {
    const PATIENCE: Duration = Duration::from_mins(2);
    let (watched, ended) = mpsc::channel();
    thread::spawn(move || {
        if ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            // What `eprintln` writes is captured here, and goes with the process.
            let _ = writeln!(
                io::stderr(),
                "seed {seed}: it stands still, and something spins\n{}",
                alone(seed)
            );
            process::exit(101);
        }
    });
    watched
}

/// How to run a seed by itself.
fn alone(seed: u64) -> String {
    format!(
        "run it alone: MILESTONE_SEED={seed} cargo test -p milestone-tests --test simulation all_seeds -- --nocapture"
    )
}

/// Panics of actions are part of the story, and are not shown.
fn install_panic_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let on_purpose = info.payload().downcast_ref::<&str>() == Some(&PANIC)
                || info
                    .payload()
                    .downcast_ref::<String>()
                    .is_some_and(|text| text == PANIC);
            if !on_purpose {
                PANICKED.set(true);
                before(info);
            }
        }));
    });
}
