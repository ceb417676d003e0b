//! Names that are stored, spans that errors and lints need, and the path of the runtime.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::ext::IdentExt;

use crate::errors::Errors;

/// The text of a name without `r#`.
pub(crate) fn unraw(ident: &Ident) -> String {
    ident.unraw().to_string()
}

/// The place of `span`, but marked as written by the macro, so that lints for people's code stay quiet.
pub(crate) fn generated_at(span: Span) -> Span {
    Span::call_site().located_at(span)
}

/// Checks a name that is going to be stored, by the rules of the plan that is made of it at run time.
pub(crate) fn check(what: &str, name: &str, at: impl ToTokens, errors: &mut Errors) {
    let reason = if name.is_empty() {
        "a name needs at least one character"
    } else if name == "milestone" {
        "the parameters go by that name in an attempt's input"
    } else if name.starts_with('$') {
        "names that start with `$` are the database's"
    } else if name.contains('\0') {
        "a name cannot hold a NUL character"
    } else if name.len() > 256 {
        "a name may have 256 bytes"
    } else {
        return;
    };
    let name: String = name.chars().take(64).collect();
    errors.push(
        at,
        format!(
            "{what} cannot be named `{}`: {reason}",
            name.escape_default()
        ),
    );
}

/// The line that brings the runtime into reach, so that all paths behind it are short.
pub(crate) fn use_runtime(krate: Option<&syn::Path>) -> TokenStream {
    if let Some(path) = krate {
        quote!(use #path::__private as _milestone;)
    } else {
        quote!(
            use ::milestone_runtime::__private as _milestone;
        )
    }
}

/// The spans of the first and of the last token: tokens that are put around others with them point at the same place.
pub(crate) fn ends(tokens: impl ToTokens) -> (Span, Span) {
    let mut spans = tokens
        .into_token_stream()
        .into_iter()
        .map(|token| match token {
            TokenTree::Group(group) => (group.span_open(), group.span_close()),
            token => (token.span(), token.span()),
        });
    let first = spans
        .next()
        .unwrap_or((Span::call_site(), Span::call_site()));
    (first.0, spans.last().unwrap_or(first).1)
}
