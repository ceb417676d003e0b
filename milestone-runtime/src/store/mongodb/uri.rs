//! A URI of a MongoDB deployment, and how it is shown to people: never with its password.

use mongodb::options::{ConnectionString, HostInfo};

use super::DEFAULT_DATABASE;
use crate::store::StoreError;

const DELIMITERS: [char; 11] = [':', '/', '?', '#', '[', ']', '@', '%', ',', '&', '='];

/// A URI that was understood.
pub(super) struct Address {
    /// As it was given, with the password.
    pub(super) uri: String,
    /// The database in its path.
    pub(super) database: String,
    /// The hosts in it, for people.
    pub(super) servers: String,
}

impl Address {
    pub(super) fn parse(uri: &str) -> Result<Self, StoreError> {
        let parsed = ConnectionString::parse(uri).map_err(|error| unacceptable(uri, &error))?;
        let servers = match &parsed.host_info {
            HostInfo::HostIdentifiers(hosts) => {
                let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
                hosts.join(",")
            }
            HostInfo::DnsRecord(host) => host.clone(),
            _ => redacted(uri),
        };
        let database = parsed.default_database.filter(|name| !name.is_empty());
        Ok(Self {
            uri: uri.to_owned(),
            database: database.unwrap_or_else(|| DEFAULT_DATABASE.to_owned()),
            servers,
        })
    }
}

/// The error for a URI that the driver does not take.
pub(super) fn unacceptable(uri: &str, error: &mongodb::error::Error) -> StoreError {
    let said = error.kind.to_string();
    // The driver takes a password that is not escaped for something else, and then shows a part of it.
    let shows_password = password(uri).is_some_and(|password| {
        password
            .split(DELIMITERS)
            .any(|part| !part.is_empty() && said.contains(part))
    });
    let reason = if shows_password {
        "user and password must be percent-encoded where they hold one of : / ? # [ ] @ %"
    } else {
        &said
    };
    StoreError::Uri {
        uri: redacted(uri),
        reason: format!(
            "{reason}; accepted is mongodb://[user:password@]host[:port][,..][/database][?options] or mongodb+srv://.."
        ),
    }
}

/// The part before the hosts, where user and password may stand. A password may hold characters that should have been escaped.
fn credentials(uri: &str) -> Option<&str> {
    let rest = uri.split_once("://")?.1;
    let end = rest.find('?').unwrap_or(rest.len());
    let before_options = &rest[..end];
    let port = before_options.split_once(':').map_or("", |(_, port)| port);
    let is_password =
        !before_options.starts_with('[') && port.starts_with(|first: char| !first.is_ascii_digit());
    let place = if is_password { rest } else { before_options };
    place.rsplit_once('@').map(|(credentials, _)| credentials)
}

fn password(uri: &str) -> Option<&str> {
    credentials(uri)?
        .split_once(':')
        .map(|(_, password)| password)
}

/// The URI without its password.
pub(super) fn redacted(uri: &str) -> String {
    match (credentials(uri), password(uri)) {
        (Some(credentials), Some(password)) => {
            let user = &credentials[..credentials.len() - password.len()];
            uri.replacen(credentials, &format!("{user}***"), 1)
        }
        _ => uri.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(uri: &str) -> String {
        match Address::parse(uri) {
            Ok(_) => panic!("{uri} was accepted"),
            Err(error) => format!("{error} {error:?}"),
        }
    }

    #[test]
    fn the_path_is_the_database() {
        let address =
            Address::parse("mongodb://ann:secret@a.example,b.example:1/bank?w=1").unwrap();
        assert_eq!(
            (&*address.database, &*address.servers),
            ("bank", "a.example:27017,b.example:1")
        );
        assert_eq!(
            Address::parse("mongodb://a.example").unwrap().database,
            "milestone"
        );
        assert_eq!(
            Address::parse("mongodb+srv://a.example.com/")
                .unwrap()
                .servers,
            "a.example.com"
        );
    }

    #[test]
    fn passwords_are_never_shown() {
        assert_eq!(
            redacted("mongodb://a.example/x?y=me@home"),
            "mongodb://a.example/x?y=me@home"
        );
        assert_eq!(
            redacted("mongodb://ann@a.example"),
            "mongodb://ann@a.example"
        );
        assert_eq!(
            redacted("mongodb+srv://ann:secret@a.example/x?w=1"),
            "mongodb+srv://ann:***@a.example/x?w=1"
        );
        for uri in [
            "mongodb://ann:s3cr/t@a.example/bank",
            "mongodb://ann:s3cr@t@a.example",
            "mongodb://ann:%zs3cr@a.example",
            "mongodb://ann:s3cr?t@a.example:x",
        ] {
            let error = refused(uri);
            assert!(
                !error.contains("s3cr") && error.contains("ann:***"),
                "{error}"
            );
        }
    }

    #[test]
    fn what_is_accepted_is_said() {
        let error = refused("http://a.example");
        assert!(
            error.contains("unsupported connection string scheme: http; accepted is mongodb://"),
            "{error}"
        );
    }
}
