//! Connecting, and what is made at the start.

use std::time::{Duration, Instant};

use bson::doc;
use futures_util::TryStreamExt as _;
use milestone_runtime::store::{
    Store as _, StoreError,
    mongodb::{DEFAULT_COLLECTION, MongoStore},
};
use milestone_tests::server::Scratch;
use mongodb::{IndexModel, options::IndexOptions};

use super::bench::milestones;

async fn store(scratch: &Scratch) -> MongoStore {
    MongoStore::new(scratch.options().await, scratch.name(), DEFAULT_COLLECTION)
}

async fn index_names(scratch: &Scratch) -> Vec<String> {
    let mut names = milestones(scratch)
        .list_index_names()
        .await
        .expect("the indexes are listed");
    names.sort();
    names
}

#[tokio::test]
async fn an_unreachable_server_is_named_within_the_time_of_the_uri() {
    let store = MongoStore::from_uri(
        "mongodb://ann:s3cret@127.0.0.1:1/bank?serverSelectionTimeoutMS=300",
        None,
    )
    .unwrap();
    let started = Instant::now();
    let error = store.open().await.unwrap_err();
    assert!(
        started.elapsed() < Duration::from_secs(3),
        "{:?}",
        started.elapsed()
    );
    assert!(
        matches!(&error, StoreError::Unreachable { server, .. } if server == "127.0.0.1:1"),
        "{error:?}"
    );
    assert!(
        error
            .to_string()
            .starts_with("the database at 127.0.0.1:1 cannot be reached: "),
        "{error}"
    );
    assert!(!format!("{error} {error:?} {store:?}").contains("s3cret"));
}

#[tokio::test]
async fn a_store_that_was_not_opened_says_so() {
    let store = MongoStore::from_uri("mongodb://127.0.0.1:1", None).unwrap();
    assert_eq!(
        store.now().await.unwrap_err().to_string(),
        "the store has not been opened"
    );
}

#[tokio::test]
async fn opening_tells_what_the_server_is_and_makes_the_indexes() {
    let scratch = Scratch::new().await;
    let (first, second) = (store(&scratch).await, store(&scratch).await);
    let (first_info, second_info) = tokio::join!(first.open(), second.open());
    let info = first_info.unwrap();
    assert!(
        info.description.starts_with("MongoDB ") && info.description.contains(", at "),
        "{info:?}"
    );
    second_info.unwrap();
    assert_eq!(
        index_names(&scratch).await,
        ["_id_", "milestone_expire", "milestone_next"]
    );
    let again = first.open().await.unwrap();
    assert!(again.now >= info.now);
    let mut indexes: Vec<IndexModel> = milestones(&scratch)
        .list_indexes()
        .await
        .unwrap()
        .try_collect()
        .await
        .unwrap();
    indexes.sort_by_key(|index| index.keys.to_string());
    let keys = [
        doc! { "_id": 1 },
        doc! { "expireAt": 1 },
        doc! { "next.queue": 1, "next.at": 1 },
    ];
    assert!(
        indexes.iter().map(|index| &index.keys).eq(&keys),
        "{indexes:?}"
    );
    let options: Vec<&IndexOptions> = indexes
        .iter()
        .filter_map(|index| index.options.as_ref())
        .collect();
    assert_eq!(
        (options[1].expire_after, options[2].sparse),
        (Some(Duration::ZERO), Some(true))
    );
}

#[tokio::test]
async fn a_wrong_index_is_named_and_left_alone() {
    let scratch = Scratch::new().await;
    let by_state = IndexOptions::builder()
        .name("milestone_next".to_owned())
        .build();
    let wrong = IndexModel::builder()
        .keys(doc! { "state": 1 })
        .options(by_state)
        .build();
    milestones(&scratch).create_index(wrong).await.unwrap();
    let store = store(&scratch).await;
    let error = store.open().await.unwrap_err();
    let expected = "it is on state: 1, not on next.queue: 1, next.at: 1, sparse; drop it";
    assert!(
        matches!(&error, StoreError::Index { name, reason, .. } if name == "milestone_next" && reason.starts_with(expected)),
        "{error:?}"
    );
    assert_eq!(index_names(&scratch).await, ["_id_", "milestone_next"]);
    milestones(&scratch)
        .drop_index("milestone_next")
        .await
        .unwrap();
    store.open().await.unwrap();
}

#[tokio::test]
async fn an_index_of_the_same_keys_serves_under_any_name() {
    let scratch = Scratch::new().await;
    let options = IndexOptions::builder()
        .name("mine".to_owned())
        .sparse(true)
        .build();
    let keys = doc! { "next.queue": 1, "next.at": 1 };
    milestones(&scratch)
        .create_index(IndexModel::builder().keys(keys).options(options).build())
        .await
        .unwrap();
    store(&scratch).await.open().await.unwrap();
    assert_eq!(
        index_names(&scratch).await,
        ["_id_", "milestone_expire", "mine"]
    );
}
