//! The books of the card service in MongoDB: a charge is a document, whose `_id` is the key.

use bson::{Document, doc};
use mongodb::{
    Collection,
    error::{Error, ErrorKind, WriteFailure},
};

use super::CardError;

/// What the server says when there is a document with that `_id`.
const DUPLICATE_KEY: i32 = 11000;

#[derive(Clone)]
pub(super) struct MongoCards {
    charges: Collection<Document>,
    requests: Collection<Document>,
}

impl MongoCards {
    pub(super) async fn open(uri: &str) -> Result<Self, CardError> {
        let database = crate::mongo::database(uri).await?;
        Ok(Self {
            charges: database.collection("charges"),
            requests: database.collection("charge_requests"),
        })
    }

    /// Whether it was charged now; otherwise the key was used before.
    pub(super) async fn charge(&self, key: &str, amount: i64) -> Result<bool, CardError> {
        self.requests.insert_one(doc! { "key": key }).await?;
        let charge = doc! { "_id": key, "amount": amount };
        match self.charges.insert_one(charge).await {
            Ok(_) => Ok(true),
            Err(error) if is_duplicate(&error) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) async fn find(&self, key: &str) -> Result<Option<i64>, CardError> {
        let charge = self.charges.find_one(doc! { "_id": key }).await?;
        Ok(charge.and_then(|charge| charge.get_i64("amount").ok()))
    }

    pub(super) async fn requests(&self, key: &str) -> Result<u64, CardError> {
        Ok(self.requests.count_documents(doc! { "key": key }).await?)
    }
}

fn is_duplicate(error: &Error) -> bool {
    matches!(&*error.kind, ErrorKind::Write(WriteFailure::WriteError(error)) if error.code == DUPLICATE_KEY)
}
