//! Users, whose names stand in their comments.

use std::time::{Duration, Instant};

use bson::{Document, doc};
use milestone_runtime::mongo::FieldSync;
use mongodb::{Collection, Database, error::Error};
use serde::{Deserialize, Serialize};

/// The name of the field sync.
pub const SYNC: &str = "user-name";

/// A user, with what the field sync writes beside.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct User {
    /// The key.
    #[serde(rename = "_id")]
    pub id: String,
    /// What is copied.
    pub name: String,
}

/// The collections of a database.
#[derive(Clone, Debug)]
pub struct Blog {
    /// The users.
    pub users: Collection<User>,
    /// The comments, with the names of their users.
    pub comments: Collection<Document>,
}

impl Blog {
    /// Those of a database.
    pub fn new(database: &Database) -> Self {
        Self {
            users: database.collection("users"),
            comments: database.collection("comments"),
        }
    }

    /// A user with that many comments.
    ///
    /// # Panics
    /// If the database does not take them.
    pub async fn write(&self, id: &str, comments: i32) {
        let name = id.to_owned();
        let user = User {
            id: id.to_owned(),
            name,
        };
        self.users.insert_one(user).await.expect("a user");
        let comments =
            (0..comments).map(|number| doc! { "user": id, "userName": id, "number": number });
        self.comments.insert_many(comments).await.expect("comments");
    }

    /// A field sync that copies names into comments, and after some of them waits for `pause`.
    pub fn names<F>(&self, pause: impl Fn(User) -> F + Send + Sync + 'static) -> FieldSync
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let blog = self.clone();
        FieldSync::new(SYNC, &self.users, move |user: User| {
            let blog = blog.clone();
            let pause = pause(user.clone());
            async move {
                blog.copy(doc! { "user": &user.id, "number": { "$lt": 2 } }, &user)
                    .await?;
                pause.await;
                blog.copy(doc! { "user": &user.id }, &user).await
            }
        })
    }

    async fn copy(&self, filter: Document, user: &User) -> Result<(), Error> {
        let name = doc! { "$set": { "userName": &user.name } };
        self.comments.update_many(filter, name).await.map(drop)
    }

    /// The document of a user as it is.
    ///
    /// # Panics
    /// If it is not there.
    pub async fn user(&self, id: &str) -> Document {
        let users = self.users.clone_with_type::<Document>();
        let user = users.find_one(doc! { "_id": id }).await;
        user.expect("it is read").expect("it is there")
    }

    /// How many comments of a user have another name than that.
    ///
    /// # Panics
    /// If they cannot be counted.
    pub async fn others(&self, id: &str, name: &str) -> u64 {
        let others = doc! { "user": id, "userName": { "$ne": name } };
        self.comments
            .count_documents(others)
            .await
            .expect("a count")
    }

    /// Whether a user is marked.
    pub async fn is_marked(&self, id: &str) -> bool {
        let user = self.user(id).await;
        let marks = user.get_document("syncing").ok();
        marks.is_some_and(|marks| marks.contains_key(SYNC))
    }

    /// Waits until a user is not marked any more.
    ///
    /// # Panics
    /// If that takes too long.
    pub async fn unmarked(&self, id: &str) {
        let began = Instant::now();
        while self.is_marked(id).await {
            assert!(
                began.elapsed() < Duration::from_secs(40),
                "{:?}",
                self.user(id).await
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
