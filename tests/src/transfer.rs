//! A transfer between two accounts in two phases, without transactions: both writes by `cx.once(..)`, and the first one is taken back where
//! the second one cannot be made.

use std::time::Duration;

use bson::{Bson, Document, doc};
use futures_util::TryStreamExt as _;
use milestone_runtime::{
    Method, RuntimeBuilder,
    action::{ActionError, Call, Context},
    dynamic::Action,
};
use mongodb::Collection;

use crate::{ledger::quick, place::bare};

/// The lease of workers that die.
pub const LEASE: Duration = Duration::from_secs(1);

/// How far the clocks of servers may be apart: markers go one and a half times as long after they are of no more use.
pub const SKEW: Duration = Duration::from_millis(800);

/// A runtime that takes over soon and cleans soon.
pub fn builder(uri: impl Into<String>) -> RuntimeBuilder {
    bare(uri).lease(LEASE).clock_skew(SKEW)
}

/// What a transfer is of.
pub fn parameters(from: &str, to: &str, amount: i32) -> Document {
    doc! { "from": from, "to": to, "amount": amount }
}

/// Debit and credit.
pub fn graph() -> Action {
    // A client does not know what the actions are.
    let credit = Action::new("credit").idempotent();
    Action::new("debit").idempotent().next([credit])
}

/// The actions: `debit`, which `refund` takes back, and `credit`, which fails for good where there is no such account.
pub fn with_actions(builder: RuntimeBuilder, accounts: &Collection<Document>) -> RuntimeBuilder {
    let debit = method("debit", accounts, |cx, accounts, transfer| async move {
        let Transfer { from, amount, .. } = transfer;
        let enough = doc! { "_id": from, "balance": { "$gte": amount } };
        let written = cx
            .once(&accounts)
            .update_one(enough, doc! { "$inc": { "balance": -amount } })
            .await?;
        Ok(format!("{written:?}"))
    });
    let credit = method("credit", accounts, |cx, accounts, transfer| async move {
        let Transfer { to, amount, .. } = transfer;
        let more = doc! { "$inc": { "balance": amount } };
        // Fatal, if there is no such account.
        let written = cx
            .once(&accounts)
            .update_one(doc! { "_id": to }, more)
            .await?;
        Ok(format!("{written:?}"))
    });
    let refund = method("refund", accounts, |cx, accounts, transfer| async move {
        let Transfer { from, amount, .. } = transfer;
        let back = doc! { "$inc": { "balance": amount } };
        let undone = cx
            .once(&accounts)
            .undo()
            .update_one(doc! { "_id": from }, back)
            .await?;
        Ok(format!("{undone:?}"))
    });
    builder
        .register(debit.options(quick().undo("refund")))
        .register(credit.options(quick()))
        .register(refund.options(quick()))
}

struct Transfer {
    from: String,
    to: String,
    amount: i32,
}

fn method<F>(
    name: &str,
    accounts: &Collection<Document>,
    body: impl Fn(Context, Collection<Document>, Transfer) -> F + Send + Sync + 'static,
) -> Method
where
    F: Future<Output = Result<String, ActionError>> + Send + 'static,
{
    let accounts = accounts.clone();
    Method::new(name, move |call: Call| {
        let parameters = call.parameters().as_document().cloned().unwrap_or_default();
        let text = |key: &str| parameters.get_str(key).unwrap_or_default().to_owned();
        let transfer = Transfer {
            from: text("from"),
            to: text("to"),
            amount: parameters.get_i32("amount").unwrap_or(0),
        };
        body(call.context().clone(), accounts.clone(), transfer)
    })
}

/// Opens accounts of 100 each.
///
/// # Panics
/// If they cannot be inserted.
pub async fn open(accounts: &Collection<Document>, names: &[&str]) {
    let names = names
        .iter()
        .map(|name| doc! { "_id": name, "balance": 100 });
    accounts
        .insert_many(names)
        .await
        .expect("accounts are opened");
}

/// What is in the accounts, by name.
///
/// # Panics
/// If they cannot be read.
pub async fn balances(accounts: &Collection<Document>) -> Vec<(String, i32)> {
    let found = accounts
        .find(doc! {})
        .sort(doc! { "_id": 1 })
        .await
        .expect("a find");
    let found: Vec<Document> = found.try_collect().await.expect("accounts");
    let balance = |account: &Document| {
        let name = account.get_str("_id").unwrap_or_default().to_owned();
        (name, account.get_i32("balance").unwrap_or(i32::MIN))
    };
    found.iter().map(balance).collect()
}

/// How many documents have markers.
///
/// # Panics
/// If they cannot be counted.
pub async fn marked(accounts: &Collection<Document>) -> u64 {
    let filter = doc! { "pendingMilestones": { "$exists": true } };
    accounts.count_documents(filter).await.expect("a count")
}

/// The markers of a document.
///
/// # Panics
/// If it cannot be read.
pub async fn markers(accounts: &Collection<Document>, id: impl Into<Bson>) -> Vec<Document> {
    let found = accounts
        .find_one(doc! { "_id": id.into() })
        .await
        .expect("a find");
    let markers = found.and_then(|found| found.get_array("pendingMilestones").ok().cloned());
    let markers = markers.unwrap_or_default().into_iter();
    markers
        .filter_map(|marker| marker.as_document().cloned())
        .collect()
}

/// Waits until no document is marked any more.
///
/// # Panics
/// If that takes too long.
pub async fn until_clean(accounts: &Collection<Document>) {
    let began = std::time::Instant::now();
    while marked(accounts).await > 0 {
        assert!(
            began.elapsed() < Duration::from_secs(40),
            "markers stay: {:?}",
            accounts.namespace()
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
