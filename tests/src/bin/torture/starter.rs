//! Starts milestones of all kinds, as many as keep the workers busy.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bson::Document;
use fastrand::Rng;
use milestone_runtime::Filter;
use milestone_tests::load::{Kind, parameters, parts_of};

use crate::stage::Stage;

/// How many milestones there are at once, about.
const AT_ONCE: u64 = 60;
const BATCH: usize = 15;
const ACCOUNTS: usize = 100;
const OPENING: i64 = 1_000_000;

/// What was started, and what the bank must hold when all of it is over.
#[derive(Default)]
pub(crate) struct Started {
    pub(crate) milestones: BTreeMap<String, Kind>,
    pub(crate) balances: BTreeMap<String, i64>,
}

pub(crate) async fn run(stage: Arc<Stage>, seed: u64, over: Arc<AtomicBool>) -> Started {
    let mut rng = Rng::with_seed(seed ^ 1);
    let mut started = Started::default();
    open_accounts(&stage, &mut started).await;
    while !over.load(Ordering::SeqCst) {
        let unfinished = stage.client.count(Filter::unfinished()).await;
        if unfinished.is_ok_and(|unfinished| unfinished < AT_ONCE) {
            let mut starts = Vec::new();
            for _ in 0..BATCH {
                let id = format!("t{}", started.milestones.len() + starts.len());
                let (kind, parameters) = choose(&mut rng, &mut started.balances);
                starts.push(start(&stage, id, kind, parameters));
            }
            for (id, kind) in futures_util::future::join_all(starts).await {
                started.milestones.insert(id, kind);
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let batches = started.milestones.iter();
    let batches = batches.filter(|(_, kind)| **kind == Kind::Batch);
    let parts: Vec<String> = batches.flat_map(|(id, _)| parts_of(id)).collect();
    started
        .milestones
        .extend(parts.into_iter().map(|id| (id, Kind::Retry)));
    started
}

async fn open_accounts(stage: &Stage, started: &mut Started) {
    loop {
        let mut opened = stage.bank.balances().await;
        for number in 0..ACCOUNTS {
            if opened.is_ok()
                && let Err(error) = stage.bank.open_account(&account(number), OPENING).await
            {
                opened = Err(error);
            }
        }
        // The server may have been killed already.
        if opened.is_ok()
            && let Ok(balances) = stage.bank.balances().await
        {
            started.balances = balances;
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn account(number: usize) -> String {
    format!("account-{number:02}")
}

fn choose(rng: &mut Rng, balances: &mut BTreeMap<String, i64>) -> (Kind, Document) {
    let kind = Kind::ALL[rng.usize(..Kind::ALL.len())];
    let pace = Duration::from_millis(rng.u64(5..80));
    let (from, to) = (
        account(rng.usize(..ACCOUNTS)),
        account(rng.usize(..ACCOUNTS)),
    );
    let amount = rng.i64(1..100);
    if kind == Kind::Transfer {
        *balances.entry(from.clone()).or_default() -= amount;
        *balances.entry(to.clone()).or_default() += amount;
    }
    let parameters = parameters(pace, rng.i64(0..4), &from, &to, amount);
    (kind, parameters)
}

/// A start that failed or whose reply was lost is made again with its id, as the docs say, until it is known to be stored.
async fn start(stage: &Stage, id: String, kind: Kind, parameters: Document) -> (String, Kind) {
    loop {
        let start = stage.client.start(kind.name(), kind.graph(), &parameters);
        match start.id(&*id).await {
            Ok(_) => return (id, kind),
            Err(error) if error.code() == "conflict" => panic!("{id}: {error}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Waits until there is nothing that has not ended.
pub(crate) async fn until_ended(stage: &Stage) {
    while stage.client.count(Filter::unfinished()).await.ok() != Some(0) {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
