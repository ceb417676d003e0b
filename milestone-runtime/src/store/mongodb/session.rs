//! Storing a milestone in the transaction of somebody else's session.

use bson::{Bson, Document, RawDocumentBuf, doc};
use milestone_core::record::{MilestoneRecord, Unreadable};
use mongodb::{
    Client, ClientSession,
    error::Error,
    options::{ReadPreference, SelectionCriteria},
};

use super::{MongoStore, insert, read};
use crate::store::StoreError;

/// Where the milestones are, for another client.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    database: String,
    collection: String,
    /// What the server says of itself; absent, if it does not answer.
    hello: Option<Document>,
}

/// What became of a milestone in a transaction, which goes on.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "it is short-lived")]
pub(crate) enum SessionInsertion {
    Inserted,
    /// One with its id exists.
    Exists(Result<MilestoneRecord, Unreadable>),
    /// No server would take it, so it was not sent.
    Refused(String),
}

impl MongoStore {
    /// Where the milestones are, for another client.
    pub(crate) async fn target(&self) -> Result<Target, StoreError> {
        let connection = self.connection()?;
        Ok(Target {
            database: self.database.clone(),
            collection: self.collection.clone(),
            hello: hello(&connection.client).await.ok(),
        })
    }
}

async fn hello(client: &Client) -> Result<Document, Error> {
    let primary = SelectionCriteria::ReadPreference(ReadPreference::Primary);
    let admin = client.database("admin");
    let hello = admin.run_command(doc! { "hello": 1 });
    hello.selection_criteria(primary).await
}

impl Target {
    /// Whether a client is one of another cluster, for sure. A server that does not answer now is not known to be another.
    pub(crate) async fn is_elsewhere(&self, client: &Client) -> bool {
        match (&self.hello, hello(client).await) {
            (Some(ours), Ok(theirs)) => are_apart(ours, &theirs),
            _ => false,
        }
    }

    /// Stores a milestone, unless there is one with its id. An error is one by which the transaction is over.
    pub(crate) async fn insert(
        &self,
        record: &MilestoneRecord,
        session: &mut ClientSession,
    ) -> Result<SessionInsertion, Error> {
        let document = match insert::encode(record) {
            Ok(document) => document,
            Err(reason) => return Ok(SessionInsertion::Refused(reason)),
        };
        let milestones = session
            .client()
            .database(&self.database)
            .collection::<RawDocumentBuf>(&self.collection);
        // A duplicate key would end the transaction, so it is looked for first. What others store after that is a conflict of the insert.
        let existing = milestones
            .find_one(doc! { "_id": Bson::from(record.id.clone()) })
            .session(&mut *session)
            .await?;
        if let Some(existing) = existing {
            return Ok(SessionInsertion::Exists(read::record(&existing)));
        }
        milestones.insert_one(document).session(session).await?;
        Ok(SessionInsertion::Inserted)
    }
}

/// Whether two servers belong to two clusters, for sure. One process is one server. The members of a replica set give its name and
/// its hosts, whomever one asks; routers of a sharded cluster have nothing in common that all may read.
fn are_apart(one: &Document, other: &Document) -> bool {
    let process = |hello: &Document| {
        let version = hello.get_document("topologyVersion").ok()?;
        version.get_object_id("processId").ok()
    };
    if process(one).is_some() && process(one) == process(other) {
        return false;
    }
    match (one.get_str("setName"), other.get_str("setName")) {
        (Ok(one_name), Ok(other_name)) => {
            let hosts = |hello: &Document| hello.get_array("hosts").cloned().unwrap_or_default();
            let (ours, others) = (hosts(one), hosts(other));
            let none_in_common = !ours.iter().any(|host| others.contains(host));
            let are_told = !ours.is_empty() && !others.is_empty();
            one_name != other_name || (are_told && none_in_common)
        }
        (Ok(_), Err(_)) | (Err(_), Ok(_)) => true,
        (Err(_), Err(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;

    use super::*;

    fn member(set: &str, hosts: &[&str], process: Option<ObjectId>) -> Document {
        let hosts: Vec<Bson> = hosts.iter().map(|host| Bson::from(*host)).collect();
        let mut hello = doc! { "setName": set, "hosts": hosts };
        if let Some(process) = process {
            hello.insert("topologyVersion", doc! { "processId": process });
        }
        hello
    }

    #[test]
    fn clusters_are_told_apart_by_process_name_and_hosts() {
        let [one, other] = [ObjectId::new(), ObjectId::new()];
        let rs0 = member("rs0", &["a:1", "b:1"], Some(one));
        // Seen from outside, its hosts have other names.
        assert!(!are_apart(&rs0, &member("rs0", &["x:1", "y:1"], Some(one))));
        // After a failover.
        assert!(!are_apart(
            &rs0,
            &member("rs0", &["b:1", "a:1"], Some(other))
        ));
        assert!(are_apart(
            &rs0,
            &member("rs1", &["a:1", "b:1"], Some(other))
        ));
        assert!(are_apart(&rs0, &member("rs0", &["c:1"], Some(other))));
        assert!(are_apart(
            &member("rs0", &["a:1"], None),
            &member("rs0", &["c:1"], None)
        ));
        let router = doc! { "msg": "isdbgrid" };
        assert!(!are_apart(&router, &router));
        assert!(are_apart(&router, &rs0) && are_apart(&rs0, &router));
    }
}
