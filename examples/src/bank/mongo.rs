//! The bank in MongoDB: an account is a document, which also lists the keys of its bookings.

use std::collections::BTreeMap;

use bson::{Document, doc};
use mongodb::Collection;
use serde::{Deserialize, Serialize};

use super::{Balance, BankError};

/// The bank in a collection of MongoDB.
#[derive(Clone)]
pub struct MongoBank {
    accounts: Collection<Account>,
}

#[derive(Serialize, Deserialize)]
struct Account {
    #[serde(rename = "_id")]
    name: String,
    amount: i64,
    /// The keys of the bookings that were made. (A bank that lives for years would remove those whose milestones are over.)
    booked: Vec<String>,
    /// The keys of those that were cancelled.
    cancelled: Vec<String>,
}

impl MongoBank {
    pub(super) async fn open(uri: &str) -> Result<Self, BankError> {
        let database = crate::mongo::database(uri).await?;
        Ok(Self {
            accounts: database.collection("accounts"),
        })
    }

    pub(super) async fn open_account(&self, account: &str, amount: i64) -> Result<(), BankError> {
        let new = doc! { "amount": amount, "booked": [], "cancelled": [] };
        self.accounts
            .update_one(doc! { "_id": account }, doc! { "$setOnInsert": new })
            .upsert(true)
            .await?;
        Ok(())
    }

    pub(super) async fn book(
        &self,
        key: &str,
        name: &str,
        amount: i64,
    ) -> Result<Balance, BankError> {
        loop {
            // The key is looked for and added in the same write: whoever comes second finds it.
            let open = doc! { "booked": { "$ne": key }, "cancelled": { "$ne": key }, "amount": { "$gte": -amount } };
            let change = doc! { "$inc": { "amount": amount }, "$push": { "booked": key } };
            let made = self.update(name, open, change).await?;
            let account = self.account(name).await?;
            if account.cancelled.iter().any(|cancelled| cancelled == key) {
                return Err(BankError::Cancelled(key.to_owned()));
            }
            if made || account.booked.iter().any(|booked| booked == key) {
                return Ok(Balance {
                    account: account.name,
                    amount: account.amount,
                });
            }
            if account.amount + amount < 0 {
                return Err(BankError::TooLittle {
                    account: account.name,
                    holds: account.amount,
                    amount: -amount,
                });
            }
            // Something was booked between the write and the read, and now it would do.
        }
    }

    pub(super) async fn cancel(&self, key: &str, name: &str, amount: i64) -> Result<(), BankError> {
        loop {
            let made = doc! { "booked": key, "cancelled": { "$ne": key } };
            let back = doc! { "$inc": { "amount": -amount }, "$push": { "cancelled": key } };
            let never = doc! { "booked": { "$ne": key }, "cancelled": { "$ne": key } };
            let mark = doc! { "$push": { "cancelled": key } };
            if self.update(name, made, back).await? || self.update(name, never, mark).await? {
                return Ok(());
            }
            match self.account(name).await {
                Ok(account) if account.cancelled.iter().any(|cancelled| cancelled == key) => {
                    return Ok(());
                }
                // It was booked between the two writes.
                Ok(_) => {}
                // Without an account, nothing was booked on it.
                Err(BankError::NoAccount(_)) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    pub(super) async fn balances(&self) -> Result<BTreeMap<String, i64>, BankError> {
        let mut balances = BTreeMap::new();
        let mut accounts = self.accounts.find(doc! {}).await?;
        while accounts.advance().await? {
            let account = accounts.deserialize_current()?;
            balances.insert(account.name, account.amount);
        }
        Ok(balances)
    }

    async fn update(
        &self,
        account: &str,
        mut open: Document,
        change: Document,
    ) -> Result<bool, BankError> {
        open.insert("_id", account);
        Ok(self.accounts.update_one(open, change).await?.matched_count > 0)
    }

    async fn account(&self, name: &str) -> Result<Account, BankError> {
        let account = self.accounts.find_one(doc! { "_id": name }).await?;
        account.ok_or_else(|| BankError::NoAccount(name.to_owned()))
    }
}
