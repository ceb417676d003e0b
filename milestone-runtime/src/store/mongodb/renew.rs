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

/// Notes which are lost and, of the others, which do not last as long as they should, and what mail they have had.
fn compare(
    holds: &[(MilestoneId, String)],
    until: DateTime,
    now: &HashMap<MilestoneId, Held>,
    renewed: &mut Renewed,
) {
    for (id, token) in holds {
        match now.get(id) {
            Some(held) if held.token.as_ref() == Some(token) => {
                if held.until.is_none_or(|stored| stored < until) {
                    renewed.unrenewed.push(id.clone());
                }
                if held.mail > 0 {
                    renewed.mail.push((id.clone(), held.mail));
                }
            }
            _ => renewed.lost.push(id.clone()),
        }
    }
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

/// That a majority does not have it.
fn unsure(reason: &str) -> StoreError {
    StoreError::Other(format!("the leases may not be renewed: {reason}"))
}

/// Renews leases.
pub(super) async fn renew(
    connection: &Connection,
    request: &RenewRequest,
) -> Result<Renewed, StoreError> {
    let mut renewed = Renewed {
        lost: Vec::new(),
        unrenewed: Vec::new(),
        mail: Vec::new(),
        now: request.until,
    };
    for holds in request.holds.chunks(CHUNK) {
        let reply = send(connection, request, [holds]).await?;
        if let Some(reason) = reply.failure() {
            if reply.write_errors.is_empty() {
                return Err(unsure(reason));
            }
            // The server refuses to change one of them. It ended the statement, so each of the others gets one of its own.
            tracing::warn!(%reason, "a lease cannot be renewed");
            let reply = send(connection, request, holds.chunks(1)).await?;
            if let Some(reason) = &reply.concern {
                return Err(unsure(reason));
            }
        }
        let ids: Vec<_> = holds.iter().map(|(id, _)| id.clone()).collect();
        let now = read::held(connection, &ids)
            .await
            .map_err(|error| connection.error(error))?;
        compare(holds, request.until, &now, &mut renewed);
    }
    renewed.now = connection.now().await?;
    Ok(renewed)
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
        let until = DateTime::from_millis(5);
        let held = |token: Option<&str>, mail| Held {
            token: token.map(ToOwned::to_owned),
            until: Some(until),
            rev: 1,
            mail,
        };
        let now = HashMap::from([
            (
                "a".into(),
                Held {
                    until: Some(DateTime::from_millis(4)),
                    ..held(Some("t"), 0)
                },
            ),
            ("b".into(), held(Some("u"), 1)),
            ("c".into(), held(Some("u"), 2)),
        ]);
        let mut renewed = Renewed {
            lost: Vec::new(),
            unrenewed: Vec::new(),
            mail: Vec::new(),
            now: until,
        };
        compare(&holds(), until, &now, &mut renewed);
        assert_eq!(renewed.lost, ["b".into(), "d".into()]);
        assert_eq!(renewed.unrenewed, ["a".into()]);
        assert_eq!(renewed.mail, [("c".into(), 2)]);
    }
}
