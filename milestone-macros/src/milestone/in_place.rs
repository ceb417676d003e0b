//! `milestone!(debit -> credit)` →
//! ```text
//! {
//!     use $crate::__private as _milestone;
//!     const GRAPH: &_milestone::Graph = &_milestone::Graph { nodes: &[..], edges: &[(0, 1)] };
//!     const _: () = GRAPH.check_inputs(0);
//!     const _: () = GRAPH.check_inputs(1);
//!     _milestone::Definition::<_, _milestone::OutputOf<credit>>::new(GRAPH).takes::<debit>().takes::<credit>()
//! }
//! ```

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};

use super::table;
use crate::{errors::Errors, graph};

/// The input is the runtime's `$crate`, and behind it the graph.
pub(crate) fn expand(input: TokenStream) -> TokenStream {
    let mut input = input.into_iter();
    let krate = input.next();
    let graph: TokenStream = input.collect();
    let mut errors = Errors::default();
    let model = graph::read(graph, &mut errors);
    if model.nodes.is_empty() && errors.is_empty() {
        errors.push(
            TokenStream::new(),
            "the graph has no action: name at least one, `debit -> credit`",
        );
    }
    let table = table::graph(&model);
    let value = if errors.is_empty() {
        let checks = table::each(
            &model,
            |_, index, at| quote_spanned!(at=> const _: () = GRAPH.check_inputs(#index);),
        );
        let takes = table::each(&model, |node, _, at| {
            let path = &node.path;
            quote_spanned!(at=> .takes::<#path>())
        });
        let outcome = table::outcome(&model);
        quote!(#checks _milestone::Definition::<_, #outcome>::new(GRAPH) #takes)
    } else {
        // As the value of the block, an error fits every type, so that no other error follows from it.
        quote!(#errors)
    };
    quote!({
        use #krate::__private as _milestone;
        const GRAPH: &_milestone::Graph = &#table;
        #value
    })
}
