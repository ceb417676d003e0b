//! Options that are separated by commas, as `#[action(..)]` and `#[milestone(..)]` have them.

use proc_macro2::{Ident, TokenStream, TokenTree};
use syn::{
    LitInt, LitStr, Token,
    ext::IdentExt,
    parse::{Parse, ParseStream, Parser},
};

use crate::errors::Errors;

/// Reads options that are separated by commas, and goes on behind each that is wrong. `read` gives `false` for an unknown one.
pub(crate) fn each(
    tokens: TokenStream,
    known: &str,
    errors: &mut Errors,
    mut read: impl FnMut(&Ident, ParseStream<'_>, &mut Errors) -> syn::Result<bool>,
) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let is_comma =
        |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ',');
    let mut seen: Vec<Ident> = Vec::new();
    for (index, option) in tokens.split(is_comma).enumerate() {
        let Some(first) = option.first() else {
            // Behind the last comma nothing needs to stand.
            if let Some(comma) = tokens.iter().filter(|token| is_comma(token)).nth(index) {
                errors.push(comma, "an option is missing before this comma");
            }
            continue;
        };
        let parser = |input: ParseStream<'_>| {
            let key = Ident::parse_any(input).map_err(|_| {
                syn::Error::new_spanned(first, format!("an option was expected here: {known}"))
            })?;
            if seen.contains(&key) {
                skip(input)?;
                return Err(syn::Error::new_spanned(
                    &key,
                    format!("`{key}` stands twice: remove one of them"),
                ));
            }
            let found = read(&key, input, errors)?;
            if !found {
                skip(input)?;
                return Err(syn::Error::new_spanned(
                    &key,
                    format!("unknown option `{key}`: known are {known}"),
                ));
            }
            seen.push(key);
            if input.is_empty() {
                Ok(())
            } else {
                Err(input.error("a comma is missing before this"))
            }
        };
        if let Err(error) = parser.parse2(option.iter().cloned().collect()) {
            errors.add(error);
        }
    }
}

/// `"=" value`
pub(crate) fn value<T>(
    key: &Ident,
    input: ParseStream<'_>,
    example: &str,
    read: impl FnOnce(ParseStream<'_>) -> syn::Result<T>,
) -> syn::Result<T> {
    if !input.peek(Token![=]) || input.peek(Token![=>]) {
        skip(input)?;
        return Err(syn::Error::new_spanned(
            key,
            format!("`{key}` needs a value: `{example}`"),
        ));
    }
    input.parse::<Token![=]>()?;
    if input.is_empty() {
        return Err(syn::Error::new_spanned(
            key,
            format!("`{key}` needs a value: `{example}`"),
        ));
    }
    read(input)
}

pub(crate) fn string(input: ParseStream<'_>) -> syn::Result<LitStr> {
    literal(input, "a text in quotes")
}

pub(crate) fn at_least_one(input: ParseStream<'_>) -> syn::Result<u32> {
    let number: LitInt = literal(input, "a whole number")?;
    match number.base10_parse() {
        Ok(0) => Err(syn::Error::new_spanned(number, "this is at least 1")),
        Ok(number) => Ok(number),
        Err(_) => Err(syn::Error::new_spanned(
            number,
            format!("this is at most {}", u32::MAX),
        )),
    }
}

fn literal<T: Parse>(input: ParseStream<'_>, what: &str) -> syn::Result<T> {
    input.parse().map_err(|error: syn::Error| {
        syn::Error::new(error.span(), format!("{what} was expected here"))
    })
}

/// Takes what is left, since it was told what is wrong.
pub(crate) fn skip(input: ParseStream<'_>) -> syn::Result<()> {
    input.parse::<TokenStream>().map(drop)
}
