//! Transactional actions that the macro makes. They stand apart, since a worker without transactions refuses all of its binary.

use bson::{Document, doc};
use milestone_runtime::{Runtime, action::Retry, prelude::*};
use milestone_tests::{
    payments::{BEGINS_WITH, balances, open},
    place::{Kind, Place, run},
};

#[derive(Clone, Serialize, Deserialize, Milestone)]
#[milestone(pay -> thank)]
struct Payment {
    amount: i64,
}

#[derive(Debug, thiserror::Error)]
enum PayError {
    #[error("there is not enough on the account")]
    Poor,
    #[error("the database does not take it")]
    Database(#[from] mongodb::error::Error),
}

impl PayError {
    fn retry(&self) -> Retry {
        match self {
            Self::Poor => Retry::Never,
            Self::Database(_) => Retry::Again,
        }
    }
}

/// Where the amount goes.
struct Receiver {
    account: &'static str,
}

#[action(name = "toolkit.pay", transactional, undo = pay_back, retry(base = "10ms", when = PayError::retry))]
async fn pay(
    Params(payment): Params<Payment>,
    tx: &mut Tx,
    receiver: State<Receiver>,
    cx: Context,
) -> Result<i64, PayError> {
    let accounts = tx.collection::<Document>("accounts");
    let covered = doc! { "_id": "a", "balance": { "$gte": payment.amount } };
    let take =
        doc! { "$inc": { "balance": -payment.amount }, "$set": { "by": cx.idempotency_key() } };
    let left = tx.run(
        accounts
            .find_one_and_update(covered, take)
            .return_document(mongodb::options::ReturnDocument::After),
    );
    let left = left.await?.ok_or(PayError::Poor)?;
    let put = doc! { "$inc": { "balance": payment.amount } };
    tx.run(accounts.update_one(doc! { "_id": receiver.account }, put))
        .await?;
    Ok(left.get_i64("balance").unwrap_or_default())
}

#[action(name = "toolkit.pay_back", transactional)]
async fn pay_back(
    Params(payment): Params<Payment>,
    paid: Option<Output<pay>>,
    receiver: State<Receiver>,
    tx: &mut Tx,
) -> Result<(), ActionError> {
    if paid.is_none() {
        return Ok(());
    }
    let accounts = tx.collection::<Document>("accounts");
    for (id, amount) in [("a", payment.amount), (receiver.account, -payment.amount)] {
        let back = doc! { "$inc": { "balance": amount } };
        tx.run(accounts.update_one(doc! { "_id": id }, back))
            .await?;
    }
    Ok(())
}

#[action(name = "toolkit.thank", transactional)]
async fn thank(Output(left): Output<pay>, tx: &mut Tx) -> Result<i64, ActionError> {
    // All of what reads: as lists, as counts, as one.
    let accounts = tx.collection::<Document>("accounts");
    let found = tx
        .run(
            accounts
                .find(doc! { "balance": { "$gt": 0 } })
                .sort(doc! { "_id": 1 }),
        )
        .await?;
    let counted = tx.run(accounts.count_documents(doc! {})).await?;
    let names = tx.run(accounts.distinct("_id", doc! {})).await?;
    let summed = tx
        .run(
            accounts.aggregate([doc! { "$group": { "_id": null, "sum": { "$sum": "$balance" } } }]),
        )
        .await?;
    let sum = summed.first().map_or(Ok(0), |sum| sum.get_i64("sum"));
    if (found.len(), counted, names.len(), sum.or_fail()?) != (2, 2, 2, 2 * BEGINS_WITH) {
        return Err(ActionError::fatal("the books are wrong"));
    }
    // And what writes.
    let notes = tx.collection::<Document>("notes");
    tx.run(notes.insert_many([doc! { "_id": 1 }, doc! { "_id": 2 }, doc! { "_id": 3 }]))
        .await?;
    tx.run(notes.replace_one(doc! { "_id": 1 }, doc! { "text": "thank you" }))
        .await?;
    tx.run(notes.find_one_and_replace(doc! { "_id": 2 }, doc! { "text": "you" }))
        .await?;
    tx.run(notes.find_one_and_delete(doc! { "_id": 3 })).await?;
    tx.run(notes.update_many(doc! {}, doc! { "$set": { "left": left } }))
        .await?;
    let deleted = tx
        .run(notes.delete_many(doc! { "_id": { "$gt": 2 } }))
        .await?;
    if deleted.deleted_count != 0 {
        return Err(ActionError::fatal("it was deleted before"));
    }
    if left > 900 {
        return Err(ActionError::fatal("not worth it"));
    }
    Ok(left)
}

#[test]
fn from_one_end_to_the_other() {
    run(Kind::MongoDb, |place: Place| async move {
        let database = place.scratch().unwrap().database();
        open(&database, ["a", "b"]).await;
        // Not every server makes a collection inside of a transaction.
        database.create_collection("notes").await.unwrap();
        let runtime = Runtime::builder(place.uri())
            .actions(["toolkit.pay", "toolkit.pay_back", "toolkit.thank"])
            .state(Receiver { account: "b" })
            .build()
            .await
            .unwrap();
        runtime.spawn();
        let paid = Payment { amount: 600 }.start(&runtime).await.unwrap();
        assert_eq!(paid.outcome().await.unwrap(), 400);
        let now = balances(&database).await;
        assert_eq!((now["a"], now["b"]), (400, 1_600));
        // There is not so much left.
        let poor = Payment { amount: 600 }.start(&runtime).await.unwrap();
        let error = poor.outcome().await.unwrap_err().to_string();
        assert!(error.contains("not enough on the account"), "{error}");
        assert_eq!(balances(&database).await, now);
        // The second action fails, so the first one is undone.
        let back = doc! { "$set": { "balance": BEGINS_WITH } };
        let accounts = database.collection::<Document>("accounts");
        accounts.update_many(doc! {}, back).await.unwrap();
        database
            .collection::<Document>("notes")
            .delete_many(doc! {})
            .await
            .unwrap();
        let small = Payment { amount: 1 }.start(&runtime).await.unwrap();
        let error = small.outcome().await.unwrap_err().to_string();
        assert!(error.contains("not worth it"), "{error}");
        let now = balances(&database).await;
        assert_eq!((now["a"], now["b"]), (BEGINS_WITH, BEGINS_WITH));
    });
}

/// Where there are no transactions, those of the binary are refused, but for those that are left out.
#[test]
fn those_of_the_binary_are_refused_without_transactions() {
    run(Kind::Memory, |_| async {
        let all = || Runtime::builder("memory:").state(Receiver { account: "b" });
        let error = all().build().await.unwrap_err();
        assert_eq!(error.code(), "no_transactions");
        assert!(
            error.to_string().contains("the action `toolkit.pay`"),
            "{error}"
        );
        all().actions(["toolkit.none"]).build().await.unwrap();
        all().client().build().await.unwrap();
    });
}

/// An action that needs nothing.
#[action(name = "toolkit.none")]
async fn none() {}
