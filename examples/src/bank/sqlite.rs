//! The bank in a SQLite file: a table of accounts, and a table of bookings by their keys.

use std::collections::BTreeMap;

use rusqlite::{OptionalExtension, Transaction, params};

use super::{Balance, BankError};
use crate::file::File;

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS accounts (name TEXT PRIMARY KEY, amount INTEGER NOT NULL CHECK (amount >= 0)) STRICT;
    CREATE TABLE IF NOT EXISTS bookings (key TEXT PRIMARY KEY, amount INTEGER) STRICT;
";

/// The bank in a SQLite file.
#[derive(Clone)]
pub struct SqliteBank {
    file: File,
}

impl SqliteBank {
    pub(super) fn open(path: &str) -> Result<Self, BankError> {
        let file = File::open(path, TABLES)?;
        Ok(Self { file })
    }

    pub(super) async fn open_account(&self, account: &str, amount: i64) -> Result<(), BankError> {
        let account = account.to_owned();
        self.file
            .write(move |write| {
                write.execute(
                    "INSERT INTO accounts VALUES (?1, ?2) ON CONFLICT DO NOTHING",
                    params![account, amount],
                )?;
                Ok(())
            })
            .await
    }

    pub(super) async fn book(
        &self,
        key: &str,
        account: &str,
        amount: i64,
    ) -> Result<Balance, BankError> {
        let (key, account) = (key.to_owned(), account.to_owned());
        self.file
            .write(move |write| {
                let holds = holds(write, &account)?;
                match booking(write, &key)? {
                    Booking::Made(_) => {
                        return Ok(Balance {
                            account,
                            amount: holds,
                        });
                    }
                    Booking::Cancelled => return Err(BankError::Cancelled(key)),
                    Booking::Unknown => {}
                }
                if holds + amount < 0 {
                    return Err(BankError::TooLittle {
                        account,
                        holds,
                        amount: -amount,
                    });
                }
                write.execute("INSERT INTO bookings VALUES (?1, ?2)", params![key, amount])?;
                write.execute(
                    "UPDATE accounts SET amount = amount + ?2 WHERE name = ?1",
                    params![account, amount],
                )?;
                Ok(Balance {
                    account,
                    amount: holds + amount,
                })
            })
            .await
    }

    pub(super) async fn cancel(&self, key: &str, account: &str) -> Result<(), BankError> {
        let (key, account) = (key.to_owned(), account.to_owned());
        self.file
            .write(move |write| {
                if let Booking::Made(amount) = booking(write, &key)? {
                    write.execute(
                        "UPDATE accounts SET amount = amount - ?2 WHERE name = ?1",
                        params![account, amount],
                    )?;
                }
                write.execute(
                    "INSERT OR REPLACE INTO bookings VALUES (?1, NULL)",
                    params![key],
                )?;
                Ok(())
            })
            .await
    }

    pub(super) async fn balances(&self) -> Result<BTreeMap<String, i64>, BankError> {
        self.file
            .write(|read| {
                let mut accounts = read.prepare("SELECT name, amount FROM accounts")?;
                let accounts = accounts.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
                Ok(accounts.collect::<Result<_, _>>()?)
            })
            .await
    }
}

fn holds(read: &Transaction<'_>, account: &str) -> Result<i64, BankError> {
    let query = "SELECT amount FROM accounts WHERE name = ?1";
    let holds = read
        .query_row(query, params![account], |row| row.get(0))
        .optional()?;
    holds.ok_or_else(|| BankError::NoAccount(account.to_owned()))
}

/// What is known of a key.
enum Booking {
    Unknown,
    Made(i64),
    Cancelled,
}

fn booking(read: &Transaction<'_>, key: &str) -> Result<Booking, BankError> {
    let query = "SELECT amount FROM bookings WHERE key = ?1";
    let amount = read.query_row(query, params![key], |row| row.get::<_, Option<i64>>(0));
    Ok(match amount.optional()? {
        None => Booking::Unknown,
        Some(None) => Booking::Cancelled,
        Some(Some(amount)) => Booking::Made(amount),
    })
}
