use milestone_runtime::prelude::*;

#[action]
async fn debit<T: Send>(Params(_): Params<T>) {}

fn main() {}
