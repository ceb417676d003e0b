//! Actions and milestones stand wherever items can.

use milestone_runtime::prelude::*;

#[test]
fn all_in_one_function() {
    #[action(name = "inner.one")]
    async fn one() -> Result<u8, std::fmt::Error> {
        Ok(1)
    }

    #[action]
    async fn two(Output(one): Output<one>) -> Result<u8, Box<dyn std::error::Error + Send + Sync>> {
        Ok(one)
    }

    #[derive(Serialize, Deserialize, Milestone)]
    #[milestone(one -> two)]
    enum Here {
        There,
    }

    let _ = Here::There;
    assert_eq!(Here::GRAPH.nodes[0].method, "inner.one");
    assert_eq!(Here::GRAPH.nodes[0].name, "one");
}
