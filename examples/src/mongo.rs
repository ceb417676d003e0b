//! The database of examples that need MongoDB.

use mongodb::{Client, Database};

/// Where they look for it, if no `--uri` says otherwise.
pub const DEFAULT_URI: &str = "mongodb://localhost:27017/milestone";

/// The database that a URI names, for an application's own collections; it is the one in which a runtime of that URI keeps its milestones.
///
/// # Errors
/// If the URI cannot be understood.
pub async fn database(uri: &str) -> Result<Database, mongodb::error::Error> {
    let client = Client::with_uri_str(uri).await?;
    Ok(client
        .default_database()
        .unwrap_or_else(|| client.database("milestone")))
}
