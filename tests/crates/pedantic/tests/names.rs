//! Names that generated code uses itself, and types that are named like what it refers to.

use milestone_runtime::prelude::*;

#[action]
async fn call(Params(call): Params<Box>) -> Result<Box, ActionError> {
    Ok(call)
}

#[action]
async fn action(Output(action): Output<call>) -> Result<Box, ActionError> {
    Ok(action)
}

#[action]
async fn r#loop(output: Output<action>) -> Result<u8, ActionError> {
    Ok(output.0.0)
}

use std::primitive::u8 as Registration;

#[derive(Clone, Serialize, Deserialize, Milestone)]
#[milestone(call -> action)]
struct Box(Registration);

#[test]
fn names_of_the_user_are_the_users() {
    assert_eq!(Box::TYPE, "Box");
    let methods: Vec<&str> = Box::GRAPH.nodes.iter().map(|node| node.method).collect();
    assert_eq!(methods, ["call", "action"]);
    assert_eq!(Box(1).0, 1);
    let other: milestone_runtime::Definition<Box, u8> = milestone!(call -> action -> r#loop);
    assert_eq!(other.graph().nodes[2].name, "loop");
}
