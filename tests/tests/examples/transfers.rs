//! Transfers while workers are killed and connections are cut: the examples `two_phase_commit` and `transactional`, whose programs say
//! whether the books are exact and what was left.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use milestone_tests::{
    look::from_env,
    place::{Kind, Place},
    proxy::Proxy,
    server,
};

use super::{Process, example, good, shape, shown};

/// How long one run may take on a loaded machine.
const PATIENCE: Duration = Duration::from_mins(8);

#[test]
fn s32_transfers_by_once_are_exact() {
    run("two_phase_commit", "undone");
}

#[test]
fn transfers_in_transactions_are_exact() {
    run("transactional", "failed");
}

/// `MILESTONE_RUNS` says how many seeds are tried, with 200 transfers each; else there is one, with 60 of them. What the tenth ones become, which
/// go nowhere, depends on the example.
fn run(name: &'static str, tenth: &str) {
    let tokio = tokio::runtime::Runtime::new().expect("a runtime");
    let count = if std::env::var_os("MILESTONE_RUNS").is_some() {
        200
    } else {
        60
    };
    let ends = format!(
        "completed: {}, {tenth}: {}\n",
        count - count / 10,
        count / 10
    );
    for seed in 1..=from_env("MILESTONE_RUNS", 1) {
        tokio.block_on(transfers(name, seed as u64, count, &ends));
    }
}

async fn transfers(name: &'static str, seed: u64, count: usize, ends: &str) {
    let place = Place::new(Kind::MongoDb).await;
    let (proxy, through) = proxy(&place).await;
    let seed_argument = seed.to_string();
    let uri = place.uri();
    let mut command = example(name);
    command.args(["--uri", &uri, "--worker-uri", &through]);
    command.args(["--seed", &seed_argument]);
    command.args(["--transfers", &count.to_string()]);
    let mut process = Process::start(&mut command);
    let began = Instant::now();
    let (mut cuts, mut random) = (0, fastrand::Rng::with_seed(seed));
    while process.runs() {
        assert!(began.elapsed() < PATIENCE, "seed {seed}: it does not end");
        tokio::time::sleep(Duration::from_millis(random.u64(100..900))).await;
        cuts += proxy.cut();
    }
    let output = good(name, &process.end());
    let over = output
        .lines()
        .find(|line| line.starts_with("all are over"))
        .unwrap_or_else(|| panic!("{output}"));
    println!("{name}, seed {seed}: {over}, connections cut: {cuts}");
    let shown = shown(name, &format!("$ cargo xtask example {name}"));
    assert_eq!(shape(&output), shape(&shown), "printed:\n{output}");
    assert!(output.contains(ends), "{output}");
    assert!(output.ends_with("markers left: 0\n"), "{output}");
    assert!(!over.ends_with("killed: 0"), "{output}");
    assert!(cuts > 0);
}

/// A way to the place that is cut now and then.
async fn proxy(place: &Place) -> (Arc<Proxy>, String) {
    let uri = server::uri();
    let options = mongodb::options::ClientOptions::parse(&uri).await;
    let options = options.expect("the server's URI");
    let host = options.hosts.first().expect("a host").to_string();
    let proxy = Proxy::to(host.clone()).await;
    let through = place.uri().replace(&host, &proxy.address().to_string());
    let through = if through.contains("directConnection") {
        through
    } else {
        format!("{through}&directConnection=true")
    };
    (Arc::new(proxy), through)
}
