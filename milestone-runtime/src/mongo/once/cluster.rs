//! The first use of a collection: whether it is where the milestones are, and the index by which its markers are found.

use std::{
    collections::HashSet,
    sync::{Mutex, PoisonError},
};

use bson::{Bson, Document};
use mongodb::Namespace;

/// The collections that this process has used.
#[derive(Debug, Default)]
pub(crate) struct Known(Mutex<HashSet<(String, String)>>);

impl Known {
    pub(super) fn has(&self, namespace: &Namespace) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.contains(&key(namespace))
    }

    pub(super) fn add(&self, namespace: &Namespace) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(key(namespace));
    }
}

fn key(namespace: &Namespace) -> (String, String) {
    (namespace.db.clone(), namespace.coll.clone())
}

/// Whether two servers, by their replies to `hello`, are of one cluster. Of two routers it cannot be told, and is believed.
pub(super) fn is_same(one: &Document, other: &Document) -> bool {
    let process = |hello: &Document| {
        let version = hello.get_document("topologyVersion").ok()?;
        version.get_object_id("processId").ok()
    };
    if let (Some(one), Some(other)) = (process(one), process(other))
        && one == other
    {
        return true;
    }
    let is_router = |hello: &Document| matches!(hello.get_str("msg"), Ok("isdbgrid"));
    if is_router(one) || is_router(other) {
        return is_router(one) && is_router(other);
    }
    match (one.get_str("setName"), other.get_str("setName")) {
        (Ok(name), Ok(other_name)) if name == other_name => {
            let others = hosts(other);
            hosts(one).iter().any(|host| others.contains(host))
        }
        _ => false,
    }
}

fn hosts(hello: &Document) -> Vec<&str> {
    let hosts = hello.get_array("hosts").map(Vec::as_slice);
    hosts
        .unwrap_or_default()
        .iter()
        .filter_map(Bson::as_str)
        .collect()
}

/// What a server says of itself, for people.
pub(super) fn describe(hello: &Document) -> String {
    match (hello.get_str("msg"), hello.get_str("setName")) {
        (Ok("isdbgrid"), _) => "a sharded cluster".to_owned(),
        (_, Ok(name)) => format!("the replica set {name} of {}", hosts(hello).join(",")),
        _ => "a standalone server".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use bson::{doc, oid::ObjectId};

    use super::*;

    fn set(name: &str, hosts: &[&str]) -> Document {
        doc! { "setName": name, "hosts": hosts, "topologyVersion": { "processId": ObjectId::new() } }
    }

    #[test]
    fn members_of_one_replica_set_know_each_other() {
        let a = set("rs", &["a:1", "b:1"]);
        assert!(is_same(&a, &set("rs", &["b:1", "c:1"])));
        assert!(!is_same(&a, &set("rs", &["c:1"])), "two sets of one name");
        assert!(!is_same(&a, &set("other", &["a:1"])));
        assert_eq!(describe(&a), "the replica set rs of a:1,b:1");
    }

    #[test]
    fn a_standalone_server_is_its_process() {
        let process = doc! { "processId": ObjectId::new() };
        let one = doc! { "topologyVersion": &process };
        assert!(is_same(&one, &one));
        assert!(!is_same(
            &one,
            &doc! { "topologyVersion": { "processId": ObjectId::new() } }
        ));
        assert!(!is_same(&one, &set("rs", &["a:1"])));
    }

    #[test]
    fn routers_are_believed() {
        let router =
            || doc! { "msg": "isdbgrid", "topologyVersion": { "processId": ObjectId::new() } };
        assert!(is_same(&router(), &router()));
        assert!(!is_same(&router(), &set("rs", &["a:1"])));
    }
}
