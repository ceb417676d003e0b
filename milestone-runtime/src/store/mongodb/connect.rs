//! The client of the driver, and what the server says of itself.

use std::{sync::OnceLock, time::Duration};

use bson::{DateTime, Document, RawDocumentBuf, doc};
use mongodb::{
    Client, Collection, Database,
    error::Error,
    options::{ClientOptions, ReadPreference, SelectionCriteria, WriteConcern},
};

use super::{
    errors,
    uri::{self, Address},
};
use crate::store::{DEFAULT_SERVER_TIMEOUT, ServerInfo, StoreError};

/// MongoDB 5.0: the first that stores `$` and `.` in field names.
const LOWEST_WIRE_VERSION: i32 = 13;

/// How long a server may look for its majority before it says that it has none, where the URI does not say.
const MAJORITY_PATIENCE: Duration = Duration::from_secs(10);

/// Where the options come from.
pub(super) enum Source {
    Options(Box<ClientOptions>),
    Uri(Address),
}

impl Source {
    /// The hosts, for people.
    pub(super) fn servers(&self) -> String {
        match self {
            Self::Options(options) => hosts(options),
            Self::Uri(address) => address.servers.clone(),
        }
    }

    /// The driver's options with what the store needs of them, and how long a server may look for its majority.
    async fn options(&self) -> Result<(ClientOptions, Duration), StoreError> {
        let mut options = self.options_as_given().await?;
        let patience = options
            .write_concern
            .as_ref()
            .and_then(|concern| concern.w_timeout)
            .unwrap_or(MAJORITY_PATIENCE);
        options.write_concern = Some(durable(patience));
        options.read_concern = None;
        options.selection_criteria =
            Some(SelectionCriteria::ReadPreference(ReadPreference::Primary));
        options
            .server_selection_timeout
            .get_or_insert(DEFAULT_SERVER_TIMEOUT);
        options
            .app_name
            .get_or_insert_with(|| "milestone".to_owned());
        Ok((options, patience))
    }

    /// A client for other calls than the store's own, bound to the tokio runtime that makes it.
    pub(super) async fn client(&self) -> Result<Client, StoreError> {
        let (options, _) = self.options().await?;
        Client::with_options(options).map_err(|error| errors::store_error(&self.servers(), error))
    }

    async fn options_as_given(&self) -> Result<ClientOptions, StoreError> {
        match self {
            Self::Options(options) => Ok((**options).clone()),
            Self::Uri(address) => {
                ClientOptions::parse(&address.uri)
                    .await
                    .map_err(|error| match errors::store_error(&address.servers, error) {
                        StoreError::MongoDb(error) => uri::unacceptable(&address.uri, &error),
                        other => other,
                    })
            }
        }
    }
}

/// Acknowledged by a majority that has it in its journal.
fn durable(patience: Duration) -> WriteConcern {
    let mut concern = WriteConcern::majority();
    concern.journal = Some(true);
    concern.w_timeout = Some(patience);
    concern
}

fn hosts(options: &ClientOptions) -> String {
    let hosts: Vec<String> = options.hosts.iter().map(ToString::to_string).collect();
    hosts.join(",")
}

/// What stands behind the address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Topology {
    Standalone,
    ReplicaSet(String),
    Sharded,
}

/// A client, bound to the tokio runtime that made it.
pub(super) struct Connection {
    pub(super) milestones: Collection<RawDocumentBuf>,
    pub(super) workers: Collection<RawDocumentBuf>,
    pub(super) witnesses: Collection<RawDocumentBuf>,
    /// The collections in which documents are marked, see `traces.rs`.
    pub(super) marked: Collection<RawDocumentBuf>,
    pub(super) database: Database,
    pub(super) server: String,
    topology: OnceLock<Topology>,
    patience: Duration,
    pub(super) client: Client,
}

impl Connection {
    /// Connects to nothing yet.
    pub(super) async fn new(
        source: &Source,
        database: &str,
        collection: &str,
    ) -> Result<Self, StoreError> {
        let server = source.servers();
        let (options, patience) = source.options().await?;
        let client =
            Client::with_options(options).map_err(|error| errors::store_error(&server, error))?;
        let database = client.database(database);
        Ok(Self {
            milestones: database.collection(collection),
            workers: database.collection(&format!("{collection}.workers")),
            witnesses: database.collection(&format!("{collection}.witnesses")),
            marked: database.collection(&format!("{collection}.marked")),
            database,
            server,
            topology: OnceLock::new(),
            patience,
            client,
        })
    }

    pub(super) fn error(&self, error: Error) -> StoreError {
        errors::store_error(&self.server, error)
    }

    /// A command without arguments that every server has.
    pub(super) async fn ask(&self, command: &str) -> Result<Document, StoreError> {
        let admin = self.client.database("admin");
        admin
            .run_command(doc! { command: 1 })
            .await
            .map_err(|error| self.error(error))
    }

    /// What the server says of itself; an error if it cannot be used.
    pub(super) async fn introduce(&self) -> Result<ServerInfo, StoreError> {
        let build = self.ask("buildInfo").await?;
        let hello = self.ask("hello").await?;
        let info = examine(&self.server, &build, &hello)?;
        self.topology.get_or_init(|| topology(&hello));
        Ok(info)
    }

    pub(super) fn is_standalone(&self) -> bool {
        self.topology.get() == Some(&Topology::Standalone)
    }

    /// The time of the server.
    pub(super) async fn now(&self) -> Result<DateTime, StoreError> {
        local_time(&self.server, &self.ask("hello").await?)
    }

    /// The write concern of a transaction.
    pub(super) fn durable(&self) -> WriteConcern {
        durable(self.patience)
    }

    /// How long a read may look for a majority.
    pub(super) const fn patience(&self) -> Duration {
        self.patience
    }

    /// The write concern of a command that is written out.
    pub(super) fn write_concern(&self) -> Document {
        let patience = i64::try_from(self.patience.as_millis()).unwrap_or(i64::MAX);
        doc! { "w": "majority", "j": true, "wtimeout": patience }
    }
}

fn topology(hello: &Document) -> Topology {
    match (hello.get_str("msg"), hello.get_str("setName")) {
        (Ok("isdbgrid"), _) => Topology::Sharded,
        (_, Ok(name)) => Topology::ReplicaSet(name.to_owned()),
        _ => Topology::Standalone,
    }
}

fn local_time(server: &str, hello: &Document) -> Result<DateTime, StoreError> {
    hello
        .get_datetime("localTime")
        .copied()
        .map_err(|_| StoreError::Unsupported {
            server: server.to_owned(),
            reason: "it does not tell its time (`localTime`)".to_owned(),
        })
}

/// Whether a server can be used, and what it is.
fn examine(server: &str, build: &Document, hello: &Document) -> Result<ServerInfo, StoreError> {
    let version = build.get_str("version").unwrap_or("of unknown version");
    let wire_version = hello.get_i32("maxWireVersion").unwrap_or(0);
    if wire_version < LOWEST_WIRE_VERSION {
        return Err(StoreError::Unsupported {
            server: server.to_owned(),
            reason: format!(
                "it is MongoDB {version} (wire version {wire_version}); MongoDB 5.0 (wire version {LOWEST_WIRE_VERSION}) or later is needed"
            ),
        });
    }
    if !hello.get_bool("isWritablePrimary").unwrap_or(false) {
        let primary = hello.get_str("primary").unwrap_or("not known now");
        return Err(StoreError::Unreachable {
            server: server.to_owned(),
            sent: false,
            reason: format!(
                "it takes no writes, since it is not the primary, which is {primary}; a URI that names the replica set finds it"
            ),
        });
    }
    let kind = match topology(hello) {
        Topology::Standalone => "standalone".to_owned(),
        Topology::ReplicaSet(name) => format!("replica set {name}"),
        Topology::Sharded => "sharded cluster".to_owned(),
    };
    let info = ServerInfo::new(
        format!("MongoDB {version}, {kind}, at {server}"),
        local_time(server, hello)?,
    );
    Ok(match topology(hello) {
        Topology::Standalone => info,
        Topology::ReplicaSet(_) | Topology::Sharded => info.with_transactions(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Document {
        let now = DateTime::from_millis(7);
        doc! { "isWritablePrimary": true, "setName": "rs0", "maxWireVersion": 21, "localTime": now }
    }

    #[test]
    fn a_server_is_described() {
        let info = examine("a:1", &doc! { "version": "7.0.1" }, &hello()).unwrap();
        assert_eq!(
            info,
            ServerInfo::new(
                "MongoDB 7.0.1, replica set rs0, at a:1",
                DateTime::from_millis(7)
            )
            .with_transactions()
        );
        let mut mongos = hello();
        mongos.insert("msg", "isdbgrid");
        mongos.remove("setName");
        assert_eq!(topology(&mongos), Topology::Sharded);
        mongos.remove("msg");
        assert_eq!(topology(&mongos), Topology::Standalone);
    }

    #[test]
    fn an_old_server_is_refused_with_what_is_needed() {
        let mut old = hello();
        old.insert("maxWireVersion", 9);
        let error = examine("a:1", &doc! { "version": "4.4.2" }, &old).unwrap_err();
        let expected = "the database at a:1 cannot be used: it is MongoDB 4.4.2 (wire version 9); MongoDB 5.0 (wire version 13) or later \
                        is needed";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn a_secondary_names_the_primary() {
        let mut secondary = hello();
        secondary.insert("isWritablePrimary", false);
        secondary.insert("primary", "b:1");
        let error = examine("a:1", &doc! {}, &secondary).unwrap_err();
        assert_eq!(error.code(), "store_unreachable");
        assert!(
            error.to_string().contains("not the primary, which is b:1"),
            "{error}"
        );
    }
}
