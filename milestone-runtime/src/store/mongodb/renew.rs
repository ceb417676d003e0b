//! Renewing leases.

use std::collections::HashMap;

use bson::{DateTime, Document, doc};
use milestone_core::record::MilestoneId;

use super::{
    connect::Connection,
    read::{self, Held, among},
    update::{self, Reply, Statement},
};
use crate::store::{RenewRequest, Renewed, StoreError};

/// How many are renewed by one statement.
const CHUNK: usize = 1000;

/// Those that the worker holds. It asks for all tokens at once, since one claim gives many milestones the same one.
fn filter(owner: &str, holds: &[(MilestoneId, String)]) -> Document {
    let ids: Vec<_> = holds.iter().map(|(id, _)| id.clone()).collect();
    let mut tokens: Vec<&str> = holds.iter().map(|(_, token)| token.as_str()).collect();
    tokens.sort_unstable();
    tokens.dedup();
    let mut filter = among(&ids);
    filter.insert("lease.owner", owner);
    filter.insert("lease.token", doc! { "$in": tokens });
    filter
}

/// By `$max`, so that a late copy shortens nothing.
fn renewal(until: DateTime) -> Document {
    doc! { "$max": { "lease.until": until, "next.at": until } }
}

/// Which are lost, and what mail the others have had.
fn compare(
    holds: &[(MilestoneId, String)],
    now: &HashMap<MilestoneId, Held>,
) -> (Vec<MilestoneId>, Vec<(MilestoneId, i64)>) {
    let (mut lost, mut mail) = (Vec::new(), Vec::new());
    for (id, token) in holds {
        match now.get(id) {
            Some(held) if held.token.as_ref() == Some(token) => {
                if held.mail > 0 {
                    mail.push((id.clone(), held.mail));
                }
            }
            _ => lost.push(id.clone()),
        }
    }
    (lost, mail)
}

/// Sends a statement for each part.
async fn send(
    connection: &Connection,
    request: &RenewRequest,
    parts: impl IntoIterator<Item = &[(MilestoneId, String)]>,
) -> Result<Reply, StoreError> {
    let statements = parts.into_iter().map(|holds| {
        let mut statement = Document::new();
        statement.insert("q", filter(&request.owner, holds));
        statement.insert("u", renewal(request.until));
        statement.insert("multi", true);
        update::raw(&statement).map_err(|error| StoreError::Other(error.to_string()))
    });
    let statements: Vec<Statement> = statements.collect::<Result<_, _>>()?;
    update::send(connection, &statements)
        .await
        .map_err(|error| connection.error(error))
}

/// Renews leases.
pub(super) async fn renew(
    connection: &Connection,
    request: &RenewRequest,
) -> Result<Renewed, StoreError> {
    let (mut lost, mut mail) = (Vec::new(), Vec::new());
    for holds in request.holds.chunks(CHUNK) {
        let reply = send(connection, request, [holds]).await?;
        if let Some(reason) = reply.failure() {
            if reply.write_errors.is_empty() {
                return Err(StoreError::Other(format!(
                    "the leases may not be renewed: {reason}"
                )));
            }
            // The server refuses to change one of them. It ended the statement, so each of the others gets one of its own.
            tracing::warn!(%reason, "a lease cannot be renewed");
            send(connection, request, holds.chunks(1)).await?;
        }
        let ids: Vec<_> = holds.iter().map(|(id, _)| id.clone()).collect();
        let now = read::held(connection, &ids)
            .await
            .map_err(|error| connection.error(error))?;
        let (chunk_lost, chunk_mail) = compare(holds, &now);
        lost.extend(chunk_lost);
        mail.extend(chunk_mail);
    }
    Ok(Renewed {
        lost,
        mail,
        now: connection.now().await?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds() -> Vec<(MilestoneId, String)> {
        [("a", "t"), ("b", "t"), ("c", "u"), ("d", "u")]
            .map(|(id, token)| (id.into(), token.to_owned()))
            .to_vec()
    }

    #[test]
    fn tokens_are_asked_for_once() {
        let expected = doc! {
            "_id": { "$in": ["a", "b", "c", "d"] }, "lease.owner": "w", "lease.token": { "$in": ["t", "u"] },
        };
        assert_eq!(filter("w", &holds()), expected);
    }

    #[test]
    fn a_late_copy_shortens_nothing() {
        let until = DateTime::from_millis(5);
        assert_eq!(
            renewal(until),
            doc! { "$max": { "lease.until": until, "next.at": until } }
        );
    }

    #[test]
    fn pairs_are_compared_since_the_filter_takes_any_token() {
        let held = |token: Option<&str>, mail| Held {
            token: token.map(ToOwned::to_owned),
            rev: 1,
            mail,
        };
        let now = HashMap::from([
            ("a".into(), held(Some("t"), 0)),
            ("b".into(), held(Some("u"), 1)),
            ("c".into(), held(Some("u"), 2)),
        ]);
        assert_eq!(
            compare(&holds(), &now),
            (vec!["b".into(), "d".into()], vec![("c".into(), 2)])
        );
    }
}
