//! Witnesses of transactions: a transaction that was committed has left one with its output, in the same transaction. One that never was,
//! and never will be, can be refused by a witness without an output: the two would collide.

use bson::{Bson, DateTime, RawDocumentBuf, doc};
use mongodb::{
    error::{Error, ErrorKind},
    options::{ReadConcern, ReadPreference, SelectionCriteria, TransactionOptions},
};

use super::{
    MongoStore,
    connect::Connection,
    errors,
    traces::{output_of, read_witness},
};
use crate::{mongo::trace::WitnessKey, store::StoreError};

const NAMESPACE_EXISTS: i32 = 48;

/// What became of a transaction.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    /// It was committed, and its action gave that.
    Committed(Bson),
    /// It was not, and cannot be any more.
    Refused,
}

impl MongoStore {
    /// What became of a transaction; `None`: nothing is known of one.
    pub(crate) async fn outcome(&self, key: &WitnessKey) -> Result<Option<Outcome>, StoreError> {
        let connection = self.connection()?;
        let witness = read_witness(&connection, key).await?;
        witness.as_ref().map(outcome_of).transpose()
    }

    /// Sees to it that a transaction which was not committed never will be.
    pub(crate) async fn refuse(
        &self,
        key: &WitnessKey,
        at: DateTime,
    ) -> Result<Outcome, StoreError> {
        let connection = self.connection()?;
        loop {
            match insert_refusal(&connection, key, at).await {
                Ok(()) => return Ok(Outcome::Refused),
                Err(error) if errors::is_duplicate_key(&error) => {
                    // One that is gone again was of no more use.
                    if let Some(witness) = read_witness(&connection, key).await? {
                        return outcome_of(&witness);
                    }
                }
                Err(error) => return Err(connection.error(error)),
            }
        }
    }

    /// Makes the collection of the witnesses, since not every server makes one inside of a transaction.
    pub(crate) async fn make_witnesses(&self) -> Result<(), StoreError> {
        let connection = self.connection()?;
        let name = connection.witnesses.name();
        match connection.database.create_collection(name).await {
            Err(error) if !is_there(&error) => Err(connection.error(error)),
            _ => Ok(()),
        }
    }

    /// How transactions are made: from a snapshot of what a majority has, durable as all that the store writes.
    pub(crate) fn transaction_options(&self) -> Result<TransactionOptions, StoreError> {
        let primary = SelectionCriteria::ReadPreference(ReadPreference::Primary);
        Ok(TransactionOptions::builder()
            .read_concern(ReadConcern::snapshot())
            .write_concern(self.connection()?.durable())
            .selection_criteria(primary)
            .build())
    }
}

fn is_there(error: &Error) -> bool {
    matches!(&*error.kind, ErrorKind::Command(command) if command.code == NAMESPACE_EXISTS)
}

async fn insert_refusal(
    connection: &Connection,
    key: &WitnessKey,
    at: DateTime,
) -> Result<(), Error> {
    let witness = doc! { "_id": key.to_bson(), "refused": true, "at": at };
    let witness = RawDocumentBuf::try_from(&witness).map_err(Error::custom)?;
    connection.witnesses.insert_one(witness).await.map(|_| ())
}

/// What a witness of a transaction says.
pub(crate) fn outcome_of(witness: &RawDocumentBuf) -> Result<Outcome, StoreError> {
    if witness.get_bool("refused").unwrap_or(false) {
        return Ok(Outcome::Refused);
    }
    output_of(witness).map(Outcome::Committed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_witness_tells_what_became_of_a_transaction() {
        let outcome = |witness| outcome_of(&RawDocumentBuf::try_from(&witness).unwrap()).unwrap();
        assert_eq!(
            outcome(doc! { "_id": 1, "output": 7 }),
            Outcome::Committed(Bson::Int32(7))
        );
        assert_eq!(
            outcome(doc! { "_id": 1, "output": null }),
            Outcome::Committed(Bson::Null)
        );
        assert_eq!(
            outcome(doc! { "_id": 1, "refused": true }),
            Outcome::Refused
        );
    }
}
