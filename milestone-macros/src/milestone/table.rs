//! What a graph becomes, for a type as well as in place.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};

use crate::{
    graph::{Model, Node},
    names::generated_at,
};

/// `Graph { nodes: &[node::<debit>("debit"), node::<credit>("credit")], edges: &[(0, 1)] }`
pub(super) fn graph(model: &Model) -> TokenStream {
    let nodes = model
        .nodes
        .iter()
        .map(|Node { name, path, .. }| quote!(_milestone::node::<#path>(#name)));
    let edges = model.edges.iter().map(|(from, to)| {
        let (from, to) = (
            proc_macro2::Literal::usize_unsuffixed(*from),
            proc_macro2::Literal::usize_unsuffixed(*to),
        );
        quote!((#from, #to))
    });
    quote!(_milestone::Graph { nodes: &[#(#nodes),*], edges: &[#(#edges),*] })
}

/// The output of the last action, of several a tuple of them.
pub(super) fn outcome(model: &Model) -> TokenStream {
    let outputs: Vec<TokenStream> = model
        .ends()
        .into_iter()
        .map(|end| {
            let Node { path, ident, .. } = &model.nodes[end];
            let span = generated_at(ident.span());
            quote_spanned!(span=> _milestone::OutputOf<#path>)
        })
        .collect();
    match &outputs[..] {
        [output] => output.clone(),
        outputs => quote!((#(#outputs),*)),
    }
}

/// For every node something that names it and its index, at its place.
pub(super) fn each(
    model: &Model,
    item: impl Fn(&Node, proc_macro2::Literal, proc_macro2::Span) -> TokenStream,
) -> TokenStream {
    model
        .nodes
        .iter()
        .enumerate()
        .map(|(index, node)| {
            item(
                node,
                proc_macro2::Literal::usize_unsuffixed(index),
                generated_at(node.ident.span()),
            )
        })
        .collect()
}
