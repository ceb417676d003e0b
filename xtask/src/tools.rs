//! The machine's programs and folders.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::process::Group;

/// The first file of that name on the PATH.
pub(crate) fn on_path(program: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// The folder of this project in the user's cache.
pub(crate) fn cache_folder() -> Result<PathBuf> {
    cache_folder_in(env::var_os("XDG_CACHE_HOME"), env::var_os("HOME"))
        .context("neither XDG_CACHE_HOME nor HOME names a folder for the test server")
}

fn cache_folder_in(xdg: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    // The XDG specification says that a relative path is to be ignored.
    let absolute = |folder: Option<OsString>| folder.map(PathBuf::from).filter(|f| f.is_absolute());
    let cache = absolute(xdg).or_else(|| Some(absolute(home)?.join(".cache")))?;
    Some(cache.join("milestone"))
}

/// The cargo that runs this program, or the one on the PATH.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // `cargo run` describes this package to this program. Build scripts that watch those variables (ring's does)
    // would run again each time that `cargo test` is started from here and then by hand.
    remove(&mut command, |name| {
        name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
    });
    command
}

fn remove(command: &mut Command, unwanted: impl Fn(&str) -> bool) {
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(&unwanted) {
            command.env_remove(name);
        }
    }
}

/// A cargo for something outside this workspace: the settings made for the workspace do not reach it.
pub(crate) fn cargo_elsewhere(folder: &Path) -> Command {
    let mut command = cargo();
    command.current_dir(folder);
    remove(&mut command, is_of_the_workspace);
    command
}

fn is_of_the_workspace(variable: &str) -> bool {
    const OF_THE_MACHINE: [&str; 8] = [
        "CARGO_HOME",
        "CARGO_HTTP_",
        "CARGO_NET_",
        "CARGO_REGISTR",
        "CARGO_SOURCE_",
        "CARGO_TERM_",
        "CARGO_INSTALL_",
        "CARGO_BUILD_JOBS",
    ];
    let flags = [
        "RUSTFLAGS",
        "RUSTDOCFLAGS",
        "RUSTC_WORKSPACE_WRAPPER",
        "RUST_LOG",
    ];
    flags.contains(&variable)
        || variable.starts_with("CARGO_")
            && !OF_THE_MACHINE
                .iter()
                .any(|prefix| variable.starts_with(prefix))
}

/// Runs it to its end with its output on stderr, since stdout is for results.
pub(crate) async fn run(mut command: Command) -> Result<()> {
    let program = command.get_program().display().to_string();
    command.stdout(std::io::stderr());
    let status = Group::spawn(command)?.wait().await?;
    if !status.success() {
        bail!("{program} failed: {status}");
    }
    Ok(())
}

/// Installs cmake with pip into a new Python environment and returns the folder of the binary.
pub(crate) async fn install_cmake(environment: &Path) -> Result<PathBuf> {
    const WITHOUT: &str = "there is no cmake on the PATH, and getting it from PyPI failed: install cmake (or python3 with venv)";
    let bin = environment.join("bin");
    let mut venv = Command::new("python3");
    venv.args(["-m", "venv"]).arg(environment);
    run(venv).await.context(WITHOUT)?;
    let mut pip = Command::new(bin.join("pip"));
    pip.args(["install", "--quiet", "cmake==4.*"]);
    run(pip).await.context(WITHOUT)?;
    Ok(bin)
}

/// A duration for people: `3.2 s`, `4 min 12 s`.
pub(crate) fn readable(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds < 60 {
        format!("{:.1} s", time.as_secs_f64())
    } else {
        format!("{} min {} s", seconds / 60, seconds % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_the_one_of_xdg_or_that_of_home() {
        let folder = |xdg: Option<&str>, home: Option<&str>| {
            cache_folder_in(xdg.map(Into::into), home.map(Into::into))
        };
        let at_home = Some(PathBuf::from("/home/a/.cache/milestone"));
        assert_eq!(
            folder(Some("/x"), Some("/home/a")),
            Some("/x/milestone".into())
        );
        assert_eq!(folder(None, Some("/home/a")), at_home);
        assert_eq!(folder(Some(""), Some("/home/a")), at_home);
        assert_eq!(folder(Some("relative"), Some("/home/a")), at_home);
        assert_eq!(folder(None, Some("")), None);
    }

    #[test]
    fn only_settings_of_the_machine_reach_another_cargo() {
        for gone in [
            "CARGO_TARGET_DIR",
            "CARGO_BUILD_TARGET",
            "CARGO_ENCODED_RUSTFLAGS",
            "CARGO_PKG_NAME",
            "CARGO_PROFILE_RELEASE_LTO",
            "RUSTFLAGS",
            "RUSTC_WORKSPACE_WRAPPER",
        ] {
            assert!(is_of_the_workspace(gone), "{gone}");
        }
        for kept in [
            "CARGO_HOME",
            "CARGO_HTTP_CAINFO",
            "CARGO_REGISTRIES_CRATES_IO_PROTOCOL",
            "CARGO_NET_OFFLINE",
            "RUSTUP_TOOLCHAIN",
            "PATH",
            "CC",
        ] {
            assert!(!is_of_the_workspace(kept), "{kept}");
        }
    }

    #[test]
    fn durations_are_short() {
        assert_eq!(readable(Duration::from_millis(3_210)), "3.2 s");
        assert_eq!(readable(Duration::from_millis(252_900)), "4 min 12 s");
    }
}
