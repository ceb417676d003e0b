//! What a graph consists of, as it was written.

use proc_macro2::{Ident, Span, TokenStream};
use quote::ToTokens;

use crate::names::unraw;

/// `a -> b -> c`
pub(crate) struct Chain(pub(crate) Vec<Step>);

/// What stands between two arrows.
pub(crate) enum Step {
    Action(Mention),
    /// `(a, b -> c)`
    Group(Vec<Chain>),
}

/// An action where it is mentioned: `path`, or `alias: path`.
#[derive(Clone)]
pub(crate) struct Mention {
    pub(crate) alias: Option<Ident>,
    pub(crate) path: ActionPath,
}

impl Mention {
    /// The identifier that names it in the graph.
    pub(crate) fn ident(&self) -> &Ident {
        self.alias.as_ref().unwrap_or(&self.path.last)
    }

    pub(crate) fn name(&self) -> String {
        unraw(self.ident())
    }

    /// Whether it is a name alone, which may refer to an alias.
    pub(crate) fn is_bare(&self) -> bool {
        self.alias.is_none() && self.path.is_ident()
    }

    pub(crate) fn span(&self) -> Span {
        self.ident().span()
    }
}

/// The path of an action. It is kept as it was written, so that editors find every identifier in it.
#[derive(Clone)]
pub(crate) struct ActionPath {
    pub(crate) tokens: TokenStream,
    pub(crate) last: Ident,
    pub(crate) segments: usize,
}

impl ActionPath {
    pub(crate) fn is_ident(&self) -> bool {
        self.segments == 1
    }

    pub(crate) fn text(&self) -> String {
        self.tokens.to_string().replace(' ', "")
    }
}

impl ToTokens for ActionPath {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        tokens.extend(self.tokens.clone());
    }
}
