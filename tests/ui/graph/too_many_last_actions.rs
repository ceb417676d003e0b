use milestone_runtime::prelude::*;

#[action]
async fn a() {}

fn main() {
    let _ = milestone!(a -> (
        a1: a, a2: a, a3: a, a4: a, a5: a, a6: a, a7: a, a8: a, a9: a, a10: a, a11: a, a12: a, a13: a, a14: a, a15: a, a16: a, a17: a
    ));
}
