//! Accounts, and a ledger that tells what was booked on them: what is in one must be in the other.

use std::collections::BTreeMap;

use bson::{Document, doc};
use futures_util::TryStreamExt as _;
use mongodb::{Collection, Database, error::Error};

use crate::table::{number, table};

/// What each account holds at first.
pub const OPENING: i64 = 1_000;

/// An account that does not exist: what is sent to it goes back.
pub const NOBODY: &str = "nobody";

/// Accounts and their ledger in MongoDB.
#[derive(Clone)]
pub struct Books {
    /// `{ _id: name, balance }`
    pub accounts: Collection<Document>,
    /// `{ account, amount }`, one for each booking.
    pub ledger: Collection<Document>,
}

/// What the books say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// What the accounts hold, and what they should by the ledger.
    pub balances: BTreeMap<String, (i64, i64)>,
    /// How many bookings there are.
    pub bookings: usize,
    /// How many documents still carry markers of milestones.
    pub marked: u64,
}

impl Books {
    /// The books of a database.
    pub fn of(database: &Database) -> Self {
        Self {
            accounts: database.collection("accounts"),
            ledger: database.collection("ledger"),
        }
    }

    /// Opens that many accounts, unless they are there already, and gives their names.
    ///
    /// # Errors
    /// If the database does not answer.
    pub async fn open(&self, accounts: usize) -> Result<Vec<String>, Error> {
        let names: Vec<String> = (0..accounts).map(|n| format!("account-{n}")).collect();
        for name in &names {
            self.accounts
                .update_one(
                    doc! { "_id": name },
                    doc! { "$setOnInsert": { "balance": OPENING } },
                )
                .upsert(true)
                .await?;
        }
        Ok(names)
    }

    /// Compares accounts and ledger.
    ///
    /// # Errors
    /// If the database does not answer.
    pub async fn audit(&self) -> Result<Audit, Error> {
        let mut audit = Audit::default();
        let mut accounts = self.accounts.find(doc! {}).await?;
        while let Some(account) = accounts.try_next().await? {
            let name = account.get_str("_id").unwrap_or_default().to_owned();
            let balance = account.get_i64("balance").unwrap_or_default();
            audit.balances.insert(name, (balance, OPENING));
        }
        let mut ledger = self.ledger.find(doc! {}).await?;
        while let Some(booking) = ledger.try_next().await? {
            let name = booking.get_str("account").unwrap_or_default().to_owned();
            let (_, due) = audit.balances.entry(name).or_default();
            *due += booking.get_i64("amount").unwrap_or_default();
            audit.bookings += 1;
        }
        for collection in [&self.accounts, &self.ledger] {
            let marked = doc! { "pendingMilestones": { "$exists": true } };
            audit.marked += collection.count_documents(marked).await?;
        }
        Ok(audit)
    }
}

impl Audit {
    /// Whether no money has come or gone, and every account holds what the ledger says.
    pub fn is_exact(&self) -> bool {
        let held: i64 = self.balances.values().map(|(held, _)| held).sum();
        let opened: i64 = self.balances.values().map(|_| OPENING).sum();
        held == opened && self.balances.values().all(|(held, due)| held == due)
    }

    /// For people.
    pub fn table(&self) -> comfy_table::Table {
        let mut table = table(["account", "holds", "by the ledger"]);
        for (name, (held, due)) in &self.balances {
            table.add_row([name.into(), number(held), number(due)]);
        }
        let sum = |side: fn(&(i64, i64)) -> i64| self.balances.values().map(side).sum::<i64>();
        table.add_row([
            "sum".into(),
            number(sum(|(held, _)| *held)),
            number(sum(|(_, due)| *due)),
        ]);
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_that_comes_from_nowhere_is_seen() {
        let audit = |balances: [(i64, i64); 2]| Audit {
            balances: [("a".to_owned(), balances[0]), ("b".to_owned(), balances[1])].into(),
            ..Audit::default()
        };
        assert!(audit([(900, 900), (1_100, 1_100)]).is_exact());
        assert!(!audit([(900, 900), (1_101, 1_101)]).is_exact());
        assert!(!audit([(900, 910), (1_100, 1_090)]).is_exact());
    }
}
