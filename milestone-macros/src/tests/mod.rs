//! What the macros give: as snapshots, and as `docs/expansion.md` shows it.

mod docs;
mod expansion;

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Expr, Item, ItemFn, parse_quote};

/// What `#[action(options)]` gives for a function.
pub(crate) fn action(options: &str, item: &str) -> String {
    pretty(crate::action::expand(tokens(options), &tokens(item)))
}

/// What `#[derive(Milestone)]` gives for a type.
pub(crate) fn derive(item: &str) -> String {
    pretty(crate::milestone::derive::expand(tokens(item)))
}

/// What `milestone!(graph)` gives, with the runtime's name for `$crate`, which only the compiler can write.
pub(crate) fn milestone(graph: &str) -> String {
    let graph = tokens(graph);
    let value: Expr = syn::parse2(crate::milestone::in_place::expand(
        quote!(milestone_runtime #graph),
    ))
    .unwrap();
    let Expr::Block(value) = value else {
        panic!("a block")
    };
    let block = value.block;
    let function: ItemFn = parse_quote!(fn value() #block);
    pretty(quote!(#function))
}

fn pretty(items: TokenStream) -> String {
    prettyplease::unparse(&syn::parse2(items).unwrap())
}

fn tokens(text: &str) -> TokenStream {
    text.parse().unwrap()
}

/// The items without the first one.
fn without_first(items: &str) -> String {
    let mut file: syn::File = syn::parse_str(items).unwrap();
    assert!(
        matches!(file.items.remove(0), Item::Fn(_)),
        "the function comes first"
    );
    prettyplease::unparse(&file)
}
