//! Files that are not as they should be, and names that are odd.

use std::path::Path;

use milestone_runtime::store::{Filter, Store, StoreError, sqlite::SqliteStore};
use rusqlite::Connection;

use crate::support::{insert, message, opened, record, store};

async fn refused(path: &Path) -> String {
    match store(path).open().await {
        Err(error @ StoreError::Unsupported { .. }) => message(&error, path),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_is_no_database_is_named_and_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("letter.txt");
    let text = "Dear database, ".repeat(1_000);
    std::fs::write(&path, &text).expect("a file");
    assert!(refused(&path).await.contains("it is no SQLite database"));
    assert_eq!(std::fs::read_to_string(&path).expect("the file"), text);
    // Every call says so, not only the first one.
    let store = store(&path);
    for _ in 0..2 {
        let now = store.now().await.expect("the time");
        let told = store.insert(vec![record("a", now).into()]).await;
        assert!(
            matches!(told, Err(StoreError::Unsupported { .. })),
            "{told:?}"
        );
        let told = store.count(Filter::new()).await;
        assert!(
            matches!(told, Err(StoreError::Unsupported { .. })),
            "{told:?}"
        );
    }
}

#[tokio::test]
async fn a_folder_that_is_missing_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("missing").join("bank.db");
    let missing = folder.path().join("missing");
    assert!(
        refused(&path)
            .await
            .contains(&format!("there is no folder `{}`", missing.display()))
    );
    assert!(!missing.exists());
    // The same store works once it is there.
    let store = store(&path);
    store.open().await.expect_err("no folder");
    std::fs::create_dir(&missing).expect("a folder");
    store.open().await.expect("it opens");
    assert!(refused(&missing).await.contains("it is a folder"));
}

#[tokio::test]
async fn a_damaged_database_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bank.db");
    let healthy = opened(&path).await;
    let now = healthy.now().await.expect("the time");
    for number in 0..100 {
        insert(&healthy, record(format!("m{number}"), now)).await;
    }
    drop(healthy);
    let mut bytes = std::fs::read(&path).expect("the file");
    assert!(
        bytes.len() > 8_192,
        "the log is in the file since it was closed"
    );
    bytes[4_096..].fill(0x5A);
    std::fs::write(&path, bytes).expect("the file");
    let damaged = store(&path);
    let error = match damaged.open().await {
        Ok(_) => damaged.count(Filter::new()).await.expect_err("a count"),
        Err(error) => error,
    };
    assert!(matches!(error, StoreError::Unsupported { .. }), "{error:?}");
    assert!(message(&error, &path).contains("it is damaged"));
}

#[tokio::test]
async fn tables_of_a_newer_version_are_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bank.db");
    drop(opened(&path).await);
    Connection::open(&path)
        .expect("a connection")
        .execute("UPDATE _milestone_layout SET version = 2", [])
        .expect("an update");
    assert!(
        refused(&path)
            .await
            .contains("its tables have the layout 2, this version knows 1 and lower")
    );
    // Without a call of `open`, too.
    let told = store(&path).count(Filter::new()).await;
    assert!(
        matches!(told, Err(StoreError::Unsupported { .. })),
        "{told:?}"
    );
    // Another collection of the same file has a version of its own.
    SqliteStore::open_file(&path, "others")
        .expect("a store")
        .open()
        .await
        .expect("it opens");
}

#[tokio::test]
async fn an_index_that_is_wrong_is_named_and_a_missing_one_is_made() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bank.db");
    drop(opened(&path).await);
    let connection = Connection::open(&path).expect("a connection");
    connection
        .execute_batch(r#"DROP INDEX "_milestones_.next""#)
        .expect("it is dropped");
    drop(opened(&path).await);
    let sql: String = connection
        .query_row(
            "SELECT sql FROM sqlite_master WHERE name = '_milestones_.next'",
            [],
            |row| row.get(0),
        )
        .expect("the index");
    assert!(
        sql.contains("(next_queue, next_at) WHERE next_at IS NOT NULL"),
        "{sql}"
    );
    connection
        .execute_batch(r#"DROP INDEX "_milestones_.next"; CREATE INDEX "_milestones_.next" ON "_milestones_" (next_at)"#)
        .expect("it is another one");
    match store(&path).open().await {
        Err(StoreError::Index {
            collection, name, ..
        }) => {
            assert_eq!(
                (collection.as_str(), name.as_str()),
                ("_milestones_", "_milestones_.next")
            );
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn tables_of_the_application_may_stand_beside() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bank.db");
    let connection = Connection::open(&path).expect("a connection");
    connection
        .execute_batch("PRAGMA user_version = 7; CREATE TABLE accounts (id TEXT, balance INTEGER); INSERT INTO accounts VALUES ('a', 5)")
        .expect("a table");
    let store = opened(&path).await;
    let now = store.now().await.expect("the time");
    insert(&store, record("a", now)).await;
    let version: i64 = connection
        .query_row("PRAGMA user_version", [], |row| row.get(0))
        .expect("the version");
    let balance: i64 = connection
        .query_row("SELECT balance FROM accounts", [], |row| row.get(0))
        .expect("the balance");
    assert_eq!((version, balance), (7, 5));
    // But not under the collection's name.
    let told = SqliteStore::open_file(&path, "accounts")
        .expect("a store")
        .open()
        .await;
    match told {
        Err(error @ StoreError::Unsupported { .. }) => {
            assert!(
                message(&error, &path).contains("there is another table of the name `accounts`")
            );
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn files_and_collections_of_any_name() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in [
        "a bank.db",
        ":memory:",
        "file:x?mode=memory",
        "it's \"quoted\" %20 #1.db",
        "ü\u{1F600}",
    ] {
        let path = folder.path().join(name);
        for collection in ["_milestones_", "we\"ird; name--", "select", "MixedCase"] {
            let store = SqliteStore::open_file(&path, collection).expect("a store");
            store.open().await.expect("it opens");
            let now = store.now().await.expect("the time");
            insert(&store, record("a", now)).await;
            let again = SqliteStore::open_file(&path, collection).expect("a store");
            again.open().await.expect("it opens");
            assert_eq!(
                again.count(Filter::new()).await.expect("a count"),
                1,
                "{name} {collection}"
            );
        }
        assert!(path.is_file(), "{name} is a file");
    }
    for collection in ["", "a\0b", "sqlite_things"] {
        assert!(SqliteStore::memory(collection).is_err(), "{collection:?}");
    }
}

#[tokio::test]
async fn what_is_dropped_leaves_nothing_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bank.db");
    let store = opened(&path).await;
    let now = store.now().await.expect("the time");
    insert(&store, crate::support::held("a", now, "w1")).await;
    let names = || {
        let entries = folder
            .path()
            .read_dir()
            .expect("the folder")
            .map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<String> = entries
            .map(|name| name.to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    };
    assert_eq!(
        names(),
        ["bank.db", "bank.db-shm", "bank.db-wal", "bank.db-workers"]
    );
    drop(store);
    assert_eq!(names(), ["bank.db"]);
}

/// Threads are listed by the system there.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_threads_end_with_the_store() {
    let count = || {
        std::fs::read_dir("/proc/self/task")
            .expect("the threads")
            .count()
    };
    let before = count();
    for _ in 0..50 {
        let store = SqliteStore::memory("m").expect("a store");
        store.open().await.expect("it opens");
    }
    let after = count();
    assert!(
        after < before + 50,
        "{before} threads before, {after} after 50 stores that are gone"
    );
}
