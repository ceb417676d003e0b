//! Insertions.

use bson::{Document, doc};
use milestone_runtime::action::ActionError;
use milestone_tests::{
    place::run_async,
    transfer::{marked, until_clean},
};

use super::bench::{Bench, run};

#[test]
fn an_insertion_without_an_id_is_made_once_and_leaves_no_marker() {
    run_async(async {
        let bench = Bench::new().await;
        let open = bench.action("open", |cx, accounts| async move {
            let first = cx
                .once(&accounts)
                .insert_one(doc! { "owner": "$eve" })
                .await?;
            let second = cx
                .once(&accounts)
                .label("second")
                .insert_one(doc! { "owner": "eve" })
                .await?;
            assert_ne!(first.id, second.id);
            if cx.attempt() < 4 {
                return Err(ActionError::new("again"));
            }
            Ok(first.id)
        });
        let runtime = bench.worker([open]).await;
        for accounts in [2, 4] {
            let id = run(&runtime, "open").await.unwrap();
            assert!(id.as_object_id().is_some());
            let found = bench.accounts.find_one(doc! { "_id": &id }).await.unwrap();
            assert_eq!(found, Some(doc! { "_id": id, "owner": "$eve" }));
            let of_eve = bench
                .accounts
                .count_documents(doc! { "owner": { "$exists": true } });
            assert_eq!(of_eve.await.unwrap(), accounts);
        }
        assert_eq!(marked(&bench.accounts).await, 0);
    });
}

#[test]
fn an_insertion_with_an_id_is_told_from_somebody_elses() {
    run_async(async {
        let bench = Bench::new().await;
        let open = bench.action("open", |cx, accounts| async move {
            cx.once(&accounts)
                .insert_one(doc! { "balance": 7, "_id": "eve" })
                .await?;
            if cx.attempt() < 3 {
                return Err(ActionError::new("again"));
            }
            let foreign = cx
                .once(&accounts)
                .insert_one(doc! { "_id": "ann", "balance": 7 })
                .await;
            Ok(foreign.unwrap_err().code())
        });
        let runtime = bench.worker([open]).await;
        let code = run(&runtime, "open").await.unwrap();
        assert_eq!(code.as_str(), Some("once_exists"));
        assert_eq!(bench.balance("ann").await, 100);
        until_clean(&bench.accounts).await;
        assert_eq!(
            bench.document("eve").await,
            Some(doc! { "_id": "eve", "balance": 7 })
        );
    });
}

/// F20: the key of another index that is taken is no sign that the write was applied before.
#[test]
fn f20_a_unique_index_of_the_application_is_told() {
    run_async(async {
        let bench = Bench::new().await;
        let unique = mongodb::IndexModel::builder()
            .keys(doc! { "email": 1 })
            .options(
                mongodb::options::IndexOptions::builder()
                    .unique(true)
                    .sparse(true)
                    .build(),
            )
            .build();
        bench.accounts.create_index(unique).await.unwrap();
        let with_email = doc! { "_id": "eve", "email": "a@b.example" };
        bench.accounts.insert_one(&with_email).await.unwrap();
        let open = bench.action("open", |cx, accounts| async move {
            let email = || doc! { "email": "a@b.example" };
            let named: Document = [("_id".to_owned(), "mia".into())]
                .into_iter()
                .chain(email())
                .collect();
            let once = || cx.once(&accounts);
            let codes = [
                once().insert_one(email()).await.unwrap_err().code(),
                once().insert_one(named).await.unwrap_err().code(),
                once()
                    .update_one(doc! { "_id": "ann" }, doc! { "$set": email() })
                    .await
                    .unwrap_err()
                    .code(),
                once()
                    .update_one(doc! { "_id": "joe" }, doc! { "$set": email() })
                    .or_insert(email())
                    .await
                    .unwrap_err()
                    .code(),
            ];
            Ok(codes)
        });
        let runtime = bench.worker([open]).await;
        let codes = run(&runtime, "open").await.unwrap();
        assert_eq!(codes, vec!["once_duplicate"; 4].into());
        assert_eq!(bench.accounts.count_documents(doc! {}).await.unwrap(), 3);
    });
}
