//! Graphs: tokens → syntax (`parse`) → nodes and edges (`model`), in order (`order`).

mod model;
mod order;
mod parse;
mod syntax;
#[cfg(test)]
mod tests;

pub(crate) use model::{Model, Node};

use proc_macro2::TokenStream;

use crate::errors::Errors;

/// Reads a graph. It never stops at a mistake: what can be understood is in the model.
pub(crate) fn read(tokens: TokenStream, errors: &mut Errors) -> Model {
    let chains = parse::graph(tokens, errors);
    Model::new(&chains, errors)
}
