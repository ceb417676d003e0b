//! A `mongod`, run as a one-node replica set: transactions and change streams need one.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use bson::{Document, doc};
use mongodb::error::{Error, ErrorKind};

use super::{Options, next_try, uri};
use crate::process::Daemon;

const SET: &str = "milestone";
const ALREADY_INITIALIZED: i32 = 23;

/// Adds the arguments to the command and returns the address that it will listen on.
pub(super) fn arguments(
    command: &mut Command,
    options: &Options,
    storage: &Path,
) -> Result<String> {
    let port = options.port.map_or_else(free_port, Ok)?;
    command
        .args(["--replSet", SET, "--bind_ip", "127.0.0.1", "--port"])
        .arg(port.to_string())
        .arg("--dbpath")
        .arg(storage)
        // The tests set fail points.
        .args(["--setParameter", "enableTestCommands=1"]);
    Ok(format!("127.0.0.1:{port}"))
}

fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?.port())
}

/// Makes it a replica set, as soon as it answers. A storage folder that was used before is one already.
pub(super) async fn initiate(daemon: &mut Daemon, address: &str, deadline: Instant) -> Result<()> {
    // Direct: without a replica set there is no primary that the driver could discover.
    let admin = uri::own_admin(&format!("mongodb://{address}/?directConnection=true")).await?;
    while admin.run_command(doc! { "ping": 1 }).await.is_err() {
        next_try(daemon, deadline).await?;
    }
    let config = doc! { "_id": SET, "members": [{ "_id": 0, "host": address }] };
    match admin.run_command(doc! { "replSetInitiate": config }).await {
        Ok(_) => Ok(()),
        Err(error) if code(&error) == Some(ALREADY_INITIALIZED) => {
            let config = admin.run_command(doc! { "replSetGetConfig": 1 }).await?;
            match only_member(&config) {
                Some(host) if host != address => bail!(
                    "the storage folder holds a replica set with the member {host}, not {address}: start it with that port"
                ),
                _ => Ok(()),
            }
        }
        Err(error) => Err(error).context("replSetInitiate"),
    }
}

fn code(error: &Error) -> Option<i32> {
    match error.kind.as_ref() {
        ErrorKind::Command(command) => Some(command.code),
        _ => None,
    }
}

fn only_member(reply: &Document) -> Option<&str> {
    let members = reply
        .get_document("config")
        .ok()?
        .get_array("members")
        .ok()?;
    members.first()?.as_document()?.get_str("host").ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_member_of_a_configuration() {
        let reply =
            doc! { "config": { "_id": "a", "members": [{ "_id": 0, "host": "127.0.0.1:27018" }] } };
        assert_eq!(only_member(&reply), Some("127.0.0.1:27018"));
        assert_eq!(only_member(&doc! { "ok": 1 }), None);
    }

    #[test]
    fn the_address_is_the_port_that_was_asked_for() {
        let mut command = Command::new("mongod");
        let options = Options {
            port: Some(27_018),
            ..Options::default()
        };
        let address = arguments(&mut command, &options, Path::new("/data"));
        assert_eq!(address.expect("no port is looked for"), "127.0.0.1:27018");
        let arguments: Vec<_> = command.get_args().collect();
        assert!(arguments.windows(2).any(|pair| pair == ["--port", "27018"]));
        assert!(
            arguments
                .windows(2)
                .any(|pair| pair == ["--dbpath", "/data"])
        );
    }
}
