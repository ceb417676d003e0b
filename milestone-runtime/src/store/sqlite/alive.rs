//! Who lives: each worker holds a lock on a file of its own, which ends with its process.
//!
//! Workers hold their files shared, so that two stores may serve one worker. Whoever wants to know about another tries to lock its file
//! alone: that works only where nobody holds it, and then the file is of no more use and is removed under that lock. The identity of a
//! worker is new at each start, so only a worker that is about to take its first lease makes a file again.

use std::{
    collections::HashMap,
    fs::{File, OpenOptions, TryLockError},
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use super::{super::StoreError, names::Database};

/// The longest name of a file that all file systems take, less room for a hash.
const MAX_NAME: usize = 200;

/// How often a file is tried that somebody else looks at.
const TRIES: usize = 1_000;

/// What the name of a file ends with that is being made.
const NEW: &str = "new";

/// The locks that this store holds.
#[derive(Debug)]
pub(super) struct Alive {
    database: Arc<Database>,
    held: HashMap<String, (PathBuf, File)>,
}

impl Alive {
    pub(super) fn new(database: Arc<Database>) -> Self {
        Self {
            database,
            held: HashMap::new(),
        }
    }

    /// Says that this worker lives, from now on. It must be said before anything is stored that it holds.
    pub(super) fn hold(&mut self, owner: &str) -> Result<(), StoreError> {
        if self.held.contains_key(owner) {
            return Ok(());
        }
        let Some(folder) = self.database.folder() else {
            return Ok(());
        };
        let path = folder.join(file_name(owner));
        let file = lock(&folder, &path).map_err(|error| StoreError::Unsupported {
            server: self.database.place.to_string(),
            reason: format!("the file `{}`, by which others see that this worker lives, cannot be locked: {error}", path.display()),
        })?;
        self.held.insert(owner.to_owned(), (path, file));
        Ok(())
    }

    /// Says no more that it lives.
    pub(super) fn let_go(&mut self, owner: &str) {
        if let Some((path, file)) = self.held.remove(owner) {
            drop(file);
            is_free(&path);
        }
    }

    /// Removes the files of the dead that had no lease.
    pub(super) fn sweep(&self) {
        let files = self
            .database
            .folder()
            .and_then(|folder| folder.read_dir().ok());
        for file in files.into_iter().flatten().flatten() {
            let path = file.path();
            // One that is being made is not swept away under its maker's hands.
            if path.extension().is_none_or(|extension| extension != NEW) || is_old(&path) {
                is_free(&path);
            }
        }
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        let owners: Vec<String> = self.held.keys().cloned().collect();
        for owner in &owners {
            self.let_go(owner);
        }
        if let (false, Some(folder)) = (owners.is_empty(), self.database.folder()) {
            // It stays where others have files in it.
            let _ = std::fs::remove_dir(folder);
        }
    }
}

/// Whether nobody has touched the file for a minute.
fn is_old(path: &Path) -> bool {
    let modified = path.metadata().and_then(|metadata| metadata.modified());
    modified.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > Duration::from_mins(1)))
}

/// Tells whether a worker is dead for sure.
pub(super) fn is_dead(folder: Option<&Path>, owner: &str) -> bool {
    folder.is_some_and(|folder| is_free(&folder.join(file_name(owner))))
}

/// Tells whether nobody holds the file, and removes it then.
fn is_free(path: &Path) -> bool {
    let file = match OpenOptions::new().read(true).write(true).open(path) {
        Ok(file) => file,
        Err(error) => return error.kind() == ErrorKind::NotFound,
    };
    if file.try_lock().is_err() {
        // Held, or nobody can know.
        return false;
    }
    // Only while locked, so that a worker that has just made the file and waits for the lock sees that it is gone. If it cannot be
    // removed, it stays, and is free.
    let _ = std::fs::remove_file(path);
    true
}

/// Locks the worker's file, and makes it if it is not there.
fn lock(folder: &Path, path: &Path) -> io::Result<File> {
    for _ in 0..TRIES {
        match std::fs::create_dir_all(folder) {
            // It was there, and somebody has just removed it, since it was empty.
            Err(error) if error.kind() == ErrorKind::AlreadyExists && !folder.is_file() => continue,
            made => made?,
        }
        let file = match OpenOptions::new().read(true).write(true).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => match make(path)? {
                Some(file) => return Ok(file),
                None => continue,
            },
            Err(error) => return Err(error),
        };
        match file.try_lock_shared() {
            Ok(()) if is_at(&file, path) => return Ok(file),
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(2)),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Err(io::Error::new(
        ErrorKind::TimedOut,
        "somebody else has it locked",
    ))
}

/// Makes the file, locked: it comes to its place only once it is, so that nobody finds it free. `None`: somebody was faster, or has removed
/// the folder.
fn make(path: &Path) -> io::Result<Option<File>> {
    let new = path.with_extension(format!("{:08x}.{NEW}", fastrand::u32(..)));
    let file = match OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&new)
    {
        Ok(file) => file,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::AlreadyExists) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let placed = match file.try_lock_shared() {
        Ok(()) => match std::fs::hard_link(&new, path) {
            // A file system without links.
            Err(error) if error.kind() == ErrorKind::Unsupported => std::fs::rename(&new, path),
            linked => linked,
        },
        Err(TryLockError::WouldBlock) => Err(ErrorKind::AlreadyExists.into()),
        Err(TryLockError::Error(error)) => Err(error),
    };
    // If it cannot be removed, a sweep does it later.
    let _ = std::fs::remove_file(&new);
    match placed {
        Ok(()) => Ok(Some(file)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::AlreadyExists) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Whether the open file is the one at the path.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    match (file.metadata(), path.metadata()) {
        (Ok(open), Ok(there)) => (open.dev(), open.ino()) == (there.dev(), there.ino()),
        _ => false,
    }
}

/// Whether the open file is the one at the path: one that was removed is not replaced, as only its worker makes it.
#[cfg(not(unix))]
fn is_at(_file: &File, path: &Path) -> bool {
    path.exists()
}

/// The name of a worker's file. Every system takes it, and no other worker's is the same.
fn file_name(owner: &str) -> String {
    use std::fmt::Write;
    let mut name = String::new();
    for byte in owner.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_".contains(&byte) {
            name.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(name, "%{byte:02x}");
        }
    }
    if name.len() > MAX_NAME {
        name.truncate(MAX_NAME);
        let _ = write!(name, "%-{:016x}", hash(owner));
    }
    name.push_str(".lock");
    name
}

/// FNV-1a, which is the same in every build.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn alive(folder: &Path) -> Alive {
        let database = Database::file(&folder.join("bank.db"), "m").unwrap();
        Alive::new(Arc::new(database))
    }

    fn folder_of(alive: &Alive) -> PathBuf {
        alive.database.folder().unwrap()
    }

    fn scratch(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("milestone-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn whoever_holds_is_alive_however_others_sweep() {
        let scratch = scratch("sweep");
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let sweeper = alive(&scratch);
                    let folder = folder_of(&sweeper);
                    while !done.load(Ordering::Relaxed) {
                        sweeper.sweep();
                        // An empty folder goes, too.
                        let _ = std::fs::remove_dir(&folder);
                    }
                });
            }
            let holders: Vec<_> = (0..3)
                .map(|number| {
                    let scratch = &scratch;
                    scope.spawn(move || {
                        let mut holder = alive(scratch);
                        let folder = folder_of(&holder);
                        for round in 0..200 {
                            let owner = format!("w{number}-{round}");
                            assert!(is_dead(Some(&folder), &owner), "{owner} has not begun");
                            holder.hold(&owner).unwrap();
                            assert!(!is_dead(Some(&folder), &owner), "{owner} lives");
                            std::thread::yield_now();
                            assert!(!is_dead(Some(&folder), &owner), "{owner} lives on");
                            holder.let_go(&owner);
                            // While somebody else looks at it, nobody can know.
                            let looks =
                                || std::iter::repeat_with(|| is_dead(Some(&folder), &owner));
                            assert!(looks().take(10_000).any(|dead| dead), "{owner} has ended");
                        }
                    })
                })
                .collect();
            let ended: Vec<_> = holders
                .into_iter()
                .map(std::thread::ScopedJoinHandle::join)
                .collect();
            done.store(true, Ordering::Relaxed);
            assert!(
                ended.iter().all(Result::is_ok),
                "a holder was taken for dead"
            );
        });
        std::fs::remove_dir_all(scratch).unwrap();
    }

    #[test]
    fn every_worker_has_a_file_of_its_own() {
        let long = "w".repeat(1_000);
        let names = [
            "a",
            "a/b",
            "a%2fb",
            "../a",
            "..",
            "",
            "a b",
            "\u{e4}",
            &long,
            &format!("{long}2"),
            "host/1: x",
        ];
        let files: std::collections::HashSet<String> =
            names.iter().map(|name| file_name(name)).collect();
        assert_eq!(files.len(), names.len());
        for file in files {
            assert!(
                file.len() < 240 && file.is_ascii() && !file.contains(['/', '\\', ':']),
                "{file}"
            );
        }
    }
}
