//! secantusd-rs, a MongoDB-compatible server that cargo can build where no `mongod` can be had.
//!
//! It runs as a process of its own and is not linked with anything here (it is under the GPL).

use std::env;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use tokio::time::sleep;

use super::{Options, next_try};
use crate::process::Daemon;
use crate::tools::{cache_folder, cargo_elsewhere, install_cmake, on_path, run};

const CRATE: &str = "secantus-mdb";
const VERSION: &str = "0.5.3-beta.196";
const BINARY: &str = "bin/secantusd-rs";
const BUILD_PREFIX: &str = ".build-";

/// The path of the binary, and how long the build took if there was one.
pub(super) async fn obtain() -> Result<(PathBuf, Option<Duration>)> {
    let servers = cache_folder()?.join("servers");
    let home = servers.join(format!("{CRATE}-{VERSION}"));
    let binary = home.join(BINARY);
    if binary.is_file() {
        return Ok((binary, None));
    }
    fs::create_dir_all(&servers)
        .with_context(|| format!("could not create {}", servers.display()))?;
    // Held until the end of this function: two checkouts do not build at once.
    let _lock = lock(&servers.join(".lock")).await?;
    if binary.is_file() {
        return Ok((binary, None));
    }
    let started = Instant::now();
    build(&servers, &home).await?;
    if !binary.is_file() {
        bail!("cargo install made no {}", binary.display());
    }
    Ok((binary, Some(started.elapsed())))
}

async fn lock(path: &Path) -> Result<File> {
    let file =
        File::create(path).with_context(|| format!("could not create {}", path.display()))?;
    let mut told = false;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("could not lock {}", path.display()));
            }
        }
        if !told {
            eprintln!("another process builds the server; waiting for it");
            told = true;
        }
        sleep(Duration::from_millis(500)).await;
    }
}

/// Builds in a folder beside the final one, so that only a finished build is ever seen there.
async fn build(servers: &Path, home: &Path) -> Result<()> {
    eprintln!(
        "no MongoDB server found: building {CRATE} {VERSION} into {} (once, about 4 minutes on 2 cores)",
        home.display()
    );
    remove_killed_builds(servers)?;
    let work = tempfile::Builder::new()
        .prefix(BUILD_PREFIX)
        .tempdir_in(servers)?;
    let root = work.path().join("root");
    let mut install = cargo_elsewhere(work.path());
    install
        .args(["install", CRATE, "--version", VERSION, "--locked"])
        .args([
            "--ignore-rust-version",
            "--no-default-features",
            "--features",
            "bin",
        ])
        .arg("--root")
        .arg(&root)
        .arg("--target-dir")
        .arg(work.path().join("target"));
    // With the folder of the result on its PATH, cargo does not advise to put it there.
    let mut path = vec![root.join("bin")];
    if on_path("cmake").is_none() {
        path.push(install_cmake(&work.path().join("cmake")).await?);
    }
    path.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
    install.env("PATH", env::join_paths(path)?);
    run(install).await.with_context(|| {
        format!("could not build {CRATE} (it needs a C compiler, make and cmake)")
    })?;
    if home.exists() {
        fs::remove_dir_all(home)?;
    }
    fs::rename(&root, home)?;
    Ok(())
}

/// What a build leaves behind when it is killed. The lock says that none is running.
fn remove_killed_builds(servers: &Path) -> Result<()> {
    for entry in fs::read_dir(servers)? {
        let entry = entry?;
        if entry
            .file_name()
            .to_string_lossy()
            .starts_with(BUILD_PREFIX)
        {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

/// Adds the arguments to the command.
pub(super) fn arguments(command: &mut Command, options: &Options, storage: &Path) {
    command
        .args(["--host", "127.0.0.1", "--port"])
        .arg(options.port.unwrap_or(0).to_string())
        .arg("--storage-path")
        .arg(storage)
        .args(["--log-file-max", "8MB", "--enable-test-commands"]);
    if options.durable {
        command.arg("--sync-on-commit");
    }
}

/// Waits until it says where it listens.
pub(super) async fn address(daemon: &mut Daemon, deadline: Instant) -> Result<String> {
    loop {
        if let Some(address) = daemon.printed().lines().find_map(listening_on) {
            return Ok(address);
        }
        next_try(daemon, deadline).await?;
    }
}

fn listening_on(line: &str) -> Option<String> {
    let (_, address) = line.split_once("listening on ")?;
    let address = address.split_whitespace().next()?;
    let (host, port) = address.rsplit_once(':')?;
    let port: u16 = port.parse().ok()?;
    (!host.is_empty() && port != 0).then(|| format!("{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_that_names_the_port() {
        let found = |line: &str| listening_on(line);
        assert_eq!(
            found("secantusd-rs listening on 127.0.0.1:40123").as_deref(),
            Some("127.0.0.1:40123")
        );
        assert_eq!(found("secantusd-rs listening on 127.0.0.1:"), None);
        assert_eq!(found("secantusd-rs listening on 127.0.0.1:0"), None);
        assert_eq!(found("secantusd-rs listening on "), None);
        assert_eq!(found("[INFO] recovered 3 tables"), None);
    }

    #[test]
    fn writes_are_synced_only_where_that_is_asked_for() {
        let synced = |durable| {
            let mut command = Command::new("secantusd-rs");
            let options = Options {
                durable,
                ..Options::default()
            };
            arguments(&mut command, &options, Path::new("/data"));
            command.get_args().any(|arg| arg == "--sync-on-commit")
        };
        assert!(synced(true));
        assert!(!synced(false));
    }

    #[test]
    fn leftovers_of_killed_builds_go_and_nothing_else() {
        let servers = tempfile::tempdir().expect("a temporary folder");
        let folder = |name: &str| servers.path().join(name);
        for name in [".build-Xy12", "secantus-mdb-1.0.0"] {
            fs::create_dir_all(folder(name).join("bin")).expect("a folder");
        }
        remove_killed_builds(servers.path()).expect("they can be removed");
        assert!(!folder(".build-Xy12").exists());
        assert!(folder("secantus-mdb-1.0.0").exists());
    }
}
