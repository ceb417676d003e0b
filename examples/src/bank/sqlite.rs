//! The bank in a SQLite file: a table of accounts, and a table of bookings by their keys.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use super::{Balance, BankError};

/// How long a write waits for those of other processes.
const BUSY: Duration = Duration::from_secs(30);

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS accounts (name TEXT PRIMARY KEY, amount INTEGER NOT NULL CHECK (amount >= 0)) STRICT;
    CREATE TABLE IF NOT EXISTS bookings (key TEXT PRIMARY KEY, amount INTEGER) STRICT;
";

/// The bank in a SQLite file.
#[derive(Clone)]
pub struct SqliteBank {
    connection: Arc<Mutex<Connection>>,
}

impl SqliteBank {
    pub(super) fn open(path: &str) -> Result<Self, BankError> {
        let connection = Connection::open(path)?;
        connection.busy_timeout(BUSY)?;
        // As the store of the milestones has it: readers then do not wait for writers.
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.execute_batch(TABLES)?;
        Ok(Self {
            connection: Arc::new(Mutex::new(connection)),
        })
    }

    pub(super) async fn open_account(&self, account: &str, amount: i64) -> Result<(), BankError> {
        let account = account.to_owned();
        self.write(move |write| {
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
        self.write(move |write| {
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
        self.write(move |write| {
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
        self.write(|read| {
            let mut accounts = read.prepare("SELECT name, amount FROM accounts")?;
            let accounts = accounts.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            Ok(accounts.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// Runs a transaction on a thread that may block.
    async fn write<T, F>(&self, work: F) -> Result<T, BankError>
    where
        T: Send + 'static,
        F: FnOnce(&Transaction<'_>) -> Result<T, BankError> + Send + 'static,
    {
        let connection = Arc::clone(&self.connection);
        let task = tokio::task::spawn_blocking(move || {
            let mut connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
            let write = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let result = work(&write)?;
            write.commit()?;
            Ok(result)
        });
        task.await.expect("work on the bank's file does not panic")
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
