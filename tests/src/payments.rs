//! Transfers between accounts by a transactional action, and what must be true of them.

use std::{collections::BTreeMap, time::Duration};

use bson::{Document, doc, oid::ObjectId};
use futures_util::TryStreamExt as _;
use milestone_runtime::{
    Method,
    action::{Call, Options, RetryPolicy},
    mongo::Tx,
    prelude::*,
};
use mongodb::Database;

/// What each account begins with.
pub const BEGINS_WITH: i64 = 1_000;

/// The parameters of a transfer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Transfer {
    /// The first account.
    pub from: String,
    /// The second one.
    pub to: String,
    /// What goes from the first one to the second one.
    pub amount: i64,
}

/// A transfer from `a` to `b`.
pub fn from_a_to_b(amount: i64) -> Transfer {
    Transfer {
        from: "a".to_owned(),
        to: "b".to_owned(),
        amount,
    }
}

/// Options of a transactional action that is retried at once.
pub const fn quick() -> Options {
    Options::transactional().retry(
        RetryPolicy::new()
            .base(Duration::from_millis(10))
            .cap(Duration::from_millis(20)),
    )
}

/// A transactional method `pay` that moves money as its parameters say, and gives what the first account then has.
pub fn pay() -> Method {
    Method::transactional("pay", |call: &Call, tx| Box::pin(transfer(call, tx))).options(quick())
}

/// Moves money as the parameters say.
///
/// # Errors
/// What the database says.
pub async fn transfer(call: &Call, tx: &mut Tx) -> Result<i64, ActionError> {
    let Params(transfer) = call.extract::<Params<Transfer>>()?;
    take(tx, &transfer.from, transfer.amount).await?;
    put(tx, call, &transfer).await
}

/// Takes money from an account.
///
/// # Errors
/// What the database says.
pub async fn take(tx: &mut Tx, account: &str, amount: i64) -> Result<(), ActionError> {
    let accounts = tx.collection::<Document>("accounts");
    // A transfer of nothing touches no account, so that two of them collide nowhere but in what the runtime does.
    if amount != 0 {
        let take = doc! { "$inc": { "balance": -amount } };
        tx.run(accounts.update_one(doc! { "_id": account }, take))
            .await?;
    }
    Ok(())
}

/// Puts it on another one, notes the transfer, and gives what the first account has.
///
/// # Errors
/// What the database says.
pub async fn put(tx: &mut Tx, call: &Call, transfer: &Transfer) -> Result<i64, ActionError> {
    let accounts = tx.collection::<Document>("accounts");
    if transfer.amount != 0 {
        let put = doc! { "$inc": { "balance": transfer.amount } };
        tx.run(accounts.update_one(doc! { "_id": &transfer.to }, put))
            .await?;
    }
    // Each commit leaves one of its own.
    let entry = doc! {
        "_id": ObjectId::new(),
        "milestone": call.context().milestone_id().clone(),
        "action": call.context().action(),
        "from": &transfer.from,
        "to": &transfer.to,
        "amount": transfer.amount,
    };
    let ledger = tx.collection::<Document>("ledger");
    tx.run(ledger.insert_one(entry)).await?;
    let account = tx
        .run(accounts.find_one(doc! { "_id": &transfer.from }))
        .await?;
    account
        .and_then(|account| account.get_i64("balance").ok())
        .ok_or_else(|| ActionError::fatal("there is no such account"))
}

/// Opens accounts.
///
/// # Panics
/// If the database does not answer.
pub async fn open(database: &Database, accounts: impl IntoIterator<Item = &str>) {
    let accounts = accounts
        .into_iter()
        .map(|id| doc! { "_id": id, "balance": BEGINS_WITH });
    database
        .collection::<Document>("accounts")
        .insert_many(accounts)
        .await
        .expect("accounts are opened");
    // Not every server makes a collection inside of a transaction.
    database
        .create_collection("ledger")
        .await
        .expect("a ledger is made");
}

/// What each account has.
///
/// # Panics
/// If the database does not answer.
pub async fn balances(database: &Database) -> BTreeMap<String, i64> {
    let accounts: Vec<Document> = all(database, "accounts").await;
    let balance = |account: &Document| {
        let id = account.get_str("_id").expect("an account has a name");
        (
            id.to_owned(),
            account.get_i64("balance").expect("and a balance"),
        )
    };
    accounts.iter().map(balance).collect()
}

/// All documents of a collection.
///
/// # Panics
/// If the database does not answer.
pub async fn all(database: &Database, collection: &str) -> Vec<Document> {
    let found = database
        .collection::<Document>(collection)
        .find(doc! {})
        .await
        .expect("the database answers");
    found.try_collect().await.expect("the database answers")
}

/// The witnesses that there are.
///
/// # Panics
/// If the database does not answer.
pub async fn witnesses(database: &Database) -> Vec<Document> {
    all(database, "_milestones_.witnesses").await
}

/// Each account has what the ledger says, and each milestone has one entry at the most. Gives the number of entries.
///
/// # Panics
/// If it is not so.
pub async fn audit(database: &Database) -> usize {
    let ledger = all(database, "ledger").await;
    let mut expected = balances(database).await;
    for balance in expected.values_mut() {
        *balance = BEGINS_WITH;
    }
    let mut seen = std::collections::BTreeSet::new();
    for entry in &ledger {
        let text = |key| entry.get_str(key).expect("a text").to_owned();
        let amount = entry.get_i64("amount").expect("an amount");
        *expected.entry(text("from")).or_default() -= amount;
        *expected.entry(text("to")).or_default() += amount;
        let once = (
            entry.get("milestone").map(ToString::to_string),
            text("action"),
        );
        assert!(seen.insert(once), "{entry} is there twice");
    }
    assert_eq!(balances(database).await, expected);
    ledger.len()
}
