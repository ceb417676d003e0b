//! A server behind a URI: asked who it is, with the driver that the framework uses.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use bson::{Document, doc};
use mongodb::options::ClientOptions;
use mongodb::{Client, Database};

use super::next_try;
use crate::process::Daemon;

/// How long to look for a server that should be there, unless its URI says so.
const ELSEWHERE: Duration = Duration::from_secs(10);
/// How long one look at a server of ours may take: in between it is checked that its process lives.
const OWN: Duration = Duration::from_secs(1);

/// The admin database of a server that this program has started.
pub(super) async fn own_admin(uri: &str) -> Result<Database> {
    admin(uri, OWN).await
}

async fn admin(uri: &str, selection: Duration) -> Result<Database> {
    let mut options = ClientOptions::parse(uri).await?;
    options.server_selection_timeout.get_or_insert(selection);
    Ok(Client::with_options(options)?.database("admin"))
}

/// What a server says of itself.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    name: String,
    replica_set: Option<String>,
}

impl Identity {
    /// Asks a server that somebody else runs.
    pub(crate) async fn of(uri: &str) -> Result<Self> {
        let context = || format!("no MongoDB server answers at {}", redacted(uri));
        let admin = admin(uri, ELSEWHERE).await.with_context(context)?;
        let (build, hello) = ask(&admin).await.with_context(context)?;
        Ok(Self::from_replies(&build, &hello))
    }

    /// Asks a server that was just started, once it accepts writes.
    pub(super) async fn of_primary(
        uri: &str,
        daemon: &mut Daemon,
        deadline: Instant,
    ) -> Result<Self> {
        let admin = own_admin(uri).await?;
        loop {
            if let Ok((build, hello)) = ask(&admin).await
                && hello.get_bool("isWritablePrimary").unwrap_or(false)
            {
                return Ok(Self::from_replies(&build, &hello));
            }
            next_try(daemon, deadline).await?;
        }
    }

    fn from_replies(build: &Document, hello: &Document) -> Self {
        let version = build.get_str("version").unwrap_or("of unknown version");
        let name = match build.get_str("secantusVersion") {
            Ok(own) => {
                format!(
                    "secantus-mdb {own}, a compatible server that presents itself as MongoDB {version}"
                )
            }
            Err(_) => format!("MongoDB {version}"),
        };
        Self {
            name,
            replica_set: hello.get_str("setName").ok().map(Into::into),
        }
    }
}

async fn ask(admin: &Database) -> Result<(Document, Document)> {
    let build = admin.run_command(doc! { "buildInfo": 1 }).await?;
    let hello = admin.run_command(doc! { "hello": 1 }).await?;
    Ok((build, hello))
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.replica_set {
            Some(set) => write!(f, "{} (replica set {set})", self.name),
            None => write!(f, "{} (no replica set)", self.name),
        }
    }
}

/// The URI without its password, for printing.
pub(crate) fn redacted(uri: &str) -> String {
    let Some((scheme, rest)) = uri.split_once("://") else {
        return uri.into();
    };
    // Only the part before the path can hold credentials; a password may hold an unescaped `@`.
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    match authority.rsplit_once('@') {
        Some((credentials, hosts)) => {
            let user = credentials.split(':').next().unwrap_or_default();
            format!("{scheme}://{user}:***@{hosts}{path}")
        }
        None => uri.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_printed() {
        let plain = "mongodb://a.example:27017,b.example/bank?x=me@home";
        assert_eq!(redacted(plain), plain);
        assert_eq!(
            redacted("mongodb+srv://ann:secret@a.example/bank?w=1"),
            "mongodb+srv://ann:***@a.example/bank?w=1"
        );
        assert_eq!(
            redacted("mongodb://ann:s@cret@a.example"),
            "mongodb://ann:***@a.example"
        );
        assert_eq!(redacted("nonsense"), "nonsense");
    }

    #[test]
    fn a_compatible_server_is_not_taken_for_mongodb() {
        let hello = doc! { "setName": "rs" };
        let real = Identity::from_replies(&doc! { "version": "8.0.4" }, &hello);
        assert_eq!(real.to_string(), "MongoDB 8.0.4 (replica set rs)");
        let build = doc! { "version": "8.2.11", "secantusVersion": "0.5.3" };
        let compatible = Identity::from_replies(&build, &doc! {}).to_string();
        assert!(compatible.starts_with("secantus-mdb 0.5.3"), "{compatible}");
        assert!(compatible.ends_with("(no replica set)"), "{compatible}");
    }
}
