//! A user is renamed, and the name in all comments follows. The process is killed in the middle of that, and what it had stored of its work is
//! removed, too: only the mark on the user tells that something is left, and a sweep finishes it. Then the user is renamed
//! again and again while the comments are still being written; in the end they have the last name.
//!
//! ```text
//! $ cargo xtask example rename_user
//! MongoDB 8.2.11, replica set secantus, at 127.0.0.1:41777
//! killed in the middle of the renaming
//! the user is Ann B., marked 1 times; 50 of 100 comments have that name
//! a worker finds the mark by its sweep
//! the user is Ann B., marked 0 times; 100 of 100 comments have that name
//! renamed 10 times more, each time before the comments have followed
//! the user is Ann B. 10, marked 0 times; 100 of 100 comments have that name
//! ```

use std::{env, process::Command, time::Duration};

use bson::{Document, doc};
use clap::Parser;
use milestone_examples::{kill::KillAfter, mongo};
use milestone_runtime::{Filter, Page, mongo::FieldSync, prelude::*};
use mongodb::{Collection, error::Error};

#[derive(Serialize, Deserialize)]
struct User {
    #[serde(rename = "_id")]
    id: String,
    name: String,
}

/// Writes the name of a user into their comments, and dies in the middle of it if it is told to.
async fn copy(comments: Collection<Document>, user: User, kill: bool) -> Result<(), Error> {
    let name = doc! { "$set": { "userName": &user.name } };
    let some = doc! { "user": &user.id, "number": { "$lt": 50 } };
    comments.update_many(some, name.clone()).await?;
    KillAfter(kill.then(|| "half of the comments".to_owned())).reached("half of the comments");
    comments
        .update_many(doc! { "user": &user.id }, name)
        .await?;
    Ok(())
}

/// Renames a user, with a kill in the middle of it.
#[derive(Parser)]
struct Args {
    /// Where users, comments and milestones are: `mongodb://HOST/DATABASE`
    #[arg(long, default_value = mongo::DEFAULT_URI)]
    uri: String,
    /// Dies when half of the comments are written; the example starts itself with that
    #[arg(long)]
    die: bool,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let database = mongo::database(&args.uri).await?;
    let users = database.collection::<User>("users");
    let comments = database.collection::<Document>("comments");

    let written = comments.clone();
    let names = FieldSync::new("user-name", &users, move |user| {
        copy(written.clone(), user, args.die)
    });
    let names = names
        .every(Duration::from_millis(500))
        .older_than(Duration::from_secs(1));
    let runtime = Runtime::builder(&args.uri)
        .field_sync(&names)
        .build()
        .await?;
    if args.die {
        runtime.spawn();
        let rename = doc! { "$set": { "name": "Ann B." } };
        names
            .update(&runtime, "ann", rename)
            .await?
            .outcome()
            .await?;
        anyhow::bail!("it should have died");
    }

    println!("{}", runtime.server());
    let [id, name] = ["ann", "Ann"].map(str::to_owned);
    users.insert_one(User { id, name }).await?;
    let hundred =
        (0..100).map(|number| doc! { "user": "ann", "userName": "Ann", "number": number });
    comments.insert_many(hundred).await?;
    let dead = Command::new(env::current_exe()?)
        .args(["--die", "--uri", &args.uri])
        .output()?;
    anyhow::ensure!(dead.status.code().is_none(), "it was not killed: {dead:?}");
    println!("killed in the middle of the renaming");
    for left in runtime
        .list(Filter::default(), Page::default())
        .await?
        .records
    {
        runtime.remove(left.id).await?;
    }
    tell(&users, &comments).await?;

    println!("a worker finds the mark by its sweep");
    runtime.spawn();
    in_sync(&users).await?;
    tell(&users, &comments).await?;

    println!("renamed 10 times more, each time before the comments have followed");
    for number in 1..=10 {
        let rename = doc! { "$set": { "name": format!("Ann B. {number}") } };
        names.update(&runtime, "ann", rename).await?;
    }
    in_sync(&users).await?;
    let same = tell(&users, &comments).await?;
    anyhow::ensure!(same == 100, "comments have another name than their user");
    Ok(())
}

/// Waits until the user is not marked any more.
async fn in_sync(users: &Collection<User>) -> anyhow::Result<()> {
    let marked = doc! { "syncing.user-name": { "$exists": true } };
    while users.count_documents(marked.clone()).await? > 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

async fn tell(users: &Collection<User>, comments: &Collection<Document>) -> anyhow::Result<u64> {
    let user = users
        .clone_with_type::<Document>()
        .find_one(doc! { "_id": "ann" })
        .await?;
    let user = user.ok_or_else(|| anyhow::anyhow!("the user is gone"))?;
    let marks = user.get_document("syncing").map_or(0, Document::len);
    let name = user.get_str("name")?;
    let same = comments.count_documents(doc! { "userName": name }).await?;
    println!("the user is {name}, marked {marks} times; {same} of 100 comments have that name");
    Ok(same)
}
