use milestone_runtime::prelude::*;

use std::rc::Rc;

#[action]
async fn debit() {
    let count = Rc::new(1);
    std::future::ready(()).await;
    drop(count);
}

fn main() {}
