//! Two documents change together without a transaction: Ann and Bob become friends by two writes that can be repeated. The process that makes
//! the first of them is killed before the second, and another one finishes what it left.
//!
//! ```text
//! $ cargo xtask example add_friend
//! MongoDB 8.2.11, replica set secantus, at 127.0.0.1:41777
//! killed between the two writes
//! ann has the friends [bob], bob has the friends []
//! another worker takes over when the lease of the dead one is over
//! ann has the friends [bob], bob has the friends [ann]
//! the milestone ann+bob is completed
//! ┌────────────┬─────────┬───────────┬──────────────┬─────────┬───────────────────┬───────┐
//! │ action     ┆ attempt ┆ success   ┆ began        ┆ took    ┆ worker            ┆ error │
//! ╞════════════╪═════════╪═══════════╪══════════════╪═════════╪═══════════════════╪═══════╡
//! │ add_friend ┆       1 ┆ abandoned ┆ 18:51:00.162 ┆ 2104 ms ┆ vm-19608-e9dc3593 ┆       │
//! │ add_friend ┆       2 ┆ yes       ┆ 18:51:02.266 ┆ 4 ms    ┆ vm-19616-1e937378 ┆       │
//! └────────────┴─────────┴───────────┴──────────────┴─────────┴───────────────────┴───────┘
//! ```

use std::{env, process::Command, time::Duration};

use bson::{Document, doc};
use clap::Parser;
use milestone_examples::{kill::KillAfter, mongo, table::report};
use milestone_runtime::prelude::*;
use mongodb::{Collection, Database};

#[derive(Clone, Serialize, Deserialize, Milestone)]
#[milestone(add_friend)]
struct Friendship {
    one: String,
    other: String,
}

/// Two writes, each of which changes nothing when it is made again: so the action may be repeated from its beginning.
#[action(idempotent)]
async fn add_friend(
    Params(friendship): Params<Friendship>,
    database: State<Database>,
    kill: State<KillAfter>,
) -> Result<(), mongodb::error::Error> {
    let Friendship { one, other } = friendship;
    befriend(&people(&database), &one, &other).await?;
    kill.reached("the first write");
    befriend(&people(&database), &other, &one).await
}

async fn befriend(
    people: &Collection<Document>,
    one: &str,
    other: &str,
) -> Result<(), mongodb::error::Error> {
    let add = doc! { "$addToSet": { "friends": other } };
    people
        .update_one(doc! { "_id": one }, add)
        .upsert(true)
        .await
        .map(|_| ())
}

fn people(database: &Database) -> Collection<Document> {
    database.collection("people")
}

/// Makes two people friends, with a kill in the middle of it.
#[derive(Parser)]
struct Args {
    /// Where people and milestones are: `mongodb://HOST/DATABASE`
    #[arg(long, default_value = mongo::DEFAULT_URI)]
    uri: String,
    /// Dies between the two writes; the example starts itself with that
    #[arg(long)]
    die: bool,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let database = mongo::database(&args.uri).await?;
    let runtime = Runtime::builder(&args.uri)
        .state(database.clone())
        .state(KillAfter(args.die.then(|| "the first write".to_owned())))
        .lease(Duration::from_secs(2))
        .build()
        .await?;
    let [one, other] = ["ann", "bob"].map(str::to_owned);
    let id = format!("{one}+{other}");
    let friendship = Friendship { one, other };
    if args.die {
        runtime.spawn();
        let _ = friendship
            .start_with_id(&runtime, id)
            .await?
            .outcome()
            .await;
        anyhow::bail!("it should have died");
    }

    println!("{}", runtime.server());
    let dead = Command::new(env::current_exe()?)
        .args(["--die", "--uri", &args.uri])
        .output()?;
    anyhow::ensure!(dead.status.code().is_none(), "it was not killed: {dead:?}");
    println!("killed between the two writes");
    println!("{}", friends(&database).await?);

    println!("another worker takes over when the lease of the dead one is over");
    runtime.spawn();
    let milestone = friendship.start_with_id(&runtime, id).await?;
    milestone.outcome().await?;
    println!("{}", friends(&database).await?);
    println!("{}", report(&*milestone.ended().await?));
    Ok(())
}

async fn friends(database: &Database) -> anyhow::Result<String> {
    let mut all = Vec::new();
    for name in ["ann", "bob"] {
        let person = people(database).find_one(doc! { "_id": name }).await?;
        let friends = person
            .as_ref()
            .and_then(|person| person.get_array("friends").ok());
        let friends: Vec<&str> = friends
            .into_iter()
            .flatten()
            .filter_map(|name| name.as_str())
            .collect();
        all.push(format!("{name} has the friends [{}]", friends.join(", ")));
    }
    Ok(all.join(", "))
}
