//! Actions with every kind of argument, result and option.

use std::time::Duration;

use milestone_runtime::prelude::*;

use crate::transfer::Transfer;

/// What actions share.
#[derive(Debug, Default)]
pub struct Bank {
    /// The fee of a transfer.
    pub fee: i64,
}

/// Why a bank refuses.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BankError {
    /// The account has less than the amount.
    #[error("the account has not enough")]
    NotEnough,
}

/// What is left on an account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Balance(
    /// The amount.
    pub i64,
);

/// Takes the money.
///
/// # Errors
/// If there is not enough.
#[action(
    idempotent,
    undo = refund,
    retry(max = 5, base = "500ms", cap = "1m", factor = 3),
    timeout = "30s",
    queue = "bank",
    concurrency = 4,
    name = "bank.debit"
)]
pub async fn debit(
    Params(transfer): Params<Transfer>,
    bank: State<Bank>,
    context: Context,
) -> Result<Balance, BankError> {
    context.cancelled().await;
    if transfer.amount() < bank.fee {
        return Err(BankError::NotEnough);
    }
    Ok(Balance(transfer.amount() - bank.fee))
}

/// Gives it back.
///
/// # Errors
/// None.
#[action(idempotent)]
pub async fn refund(
    _: Params<Transfer>,
    _taken: Option<Output<debit>>,
) -> Result<(), std::convert::Infallible> {
    Ok(())
}

/// Puts it on the other account.
///
/// # Errors
/// Later, if the balance is negative.
#[action]
pub async fn credit(
    Params(transfer): Params<Transfer>,
    Output(Balance(taken)): Output<debit>,
) -> Result<Balance, ActionError> {
    if taken < 0 {
        return Err(ActionError::retry_after(Duration::from_secs(1), "negative"));
    }
    Ok(Balance(transfer.amount()))
}

/// Writes it down. Some actions have nothing to wait for.
///
/// # Errors
/// None.
#[action(retry(max = 2))]
pub async fn audit(cx: Context) -> anyhow::Result<String> {
    Ok(cx.idempotency_key())
}

/// Tells somebody, whatever the milestone is.
#[action(timeout = "1m")]
pub async fn notify() {}

/// A name that is a keyword.
///
/// # Errors
/// None.
#[action(queue = "a")]
pub async fn r#move(_: Context) -> Result<Vec<u8>, Box<dyn std::error::Error + Send + Sync>> {
    Ok(vec![])
}
