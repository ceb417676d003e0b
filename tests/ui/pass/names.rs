use milestone_runtime::prelude::*;

// Names that generated code uses itself, and types that are named like what it refers to.
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

fn main() {
    assert_eq!(Box::TYPE, "Box");
}
