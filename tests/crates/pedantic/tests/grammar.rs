//! The grammar of graphs, from one action to several chains.

use milestone_runtime::prelude::*;

#[action]
async fn a() {}

#[action]
async fn b() {}

mod more {
    #[milestone_runtime::prelude::action]
    pub(crate) async fn wait() {}

    #[milestone_runtime::prelude::action]
    pub(crate) async fn c() {}
}

fn edges<P, O>(definition: milestone_runtime::Definition<P, O>) -> &'static [(usize, usize)] {
    definition.graph().edges
}

#[test]
fn every_form() {
    assert!(edges::<(), ()>(milestone!(a)).is_empty());
    assert!(edges::<(), ()>(milestone!((a))).is_empty());
    assert_eq!(edges::<(), ()>(milestone!(a -> b;)), [(0, 1)]);
    assert_eq!(edges::<(), ()>(milestone!(<a -> b>)), [(0, 1)]);
    assert_eq!(
        edges::<(), ()>(milestone!(a -> (b, more::c,) -> more::wait)),
        [(0, 1), (0, 2), (1, 3), (2, 3)]
    );
    assert_eq!(
        edges::<(), ((), ())>(milestone!(a -> (b, more::c))),
        [(0, 1), (0, 2)]
    );
    assert_eq!(
        edges::<(), ()>(milestone!(first: a -> b; more::c -> b)),
        [(0, 2), (1, 2)]
    );
    assert_eq!(
        edges::<(), ()>(milestone!(first: a -> b -> then: a; first -> then)),
        [(0, 1), (0, 2), (1, 2)]
    );
}
