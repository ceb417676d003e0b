//! `#[derive(Milestone)] #[milestone(debit -> credit)] struct Transfer { .. }` →
//! ```text
//! const _: () = {
//!     use ::milestone_runtime::__private as _milestone;
//!     impl _milestone::Milestone for Transfer {
//!         const TYPE: &'static str = "Transfer";
//!         const GRAPH: &'static _milestone::Graph = &_milestone::Graph { nodes: &[..], edges: &[(0, 1)] };
//!     }
//!     enum Outcome {}
//!     impl _milestone::Outcome for Outcome {
//!         type Output = _milestone::OutputOf<credit>;
//!     }
//!     impl _milestone::Yields<_milestone::OutcomeOf<Outcome>> for Transfer {}
//!     const _: () = _milestone::check::<debit, Transfer>(0);
//!     const _: () = _milestone::check::<credit, Transfer>(1);
//!     _milestone::inventory::submit!(_milestone::TypeRegistration::of::<Transfer>());
//! };
//! ```

use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::{quote, quote_spanned};
use syn::{Data, DeriveInput, LitStr, Meta, Path, parse::ParseStream};

use super::table;
use crate::{
    duration::{Millis, duration},
    errors::Errors,
    graph::{self, Model},
    names::{self, generated_at, unraw},
    options::{each, string, value},
};

const OPTIONS: &str = "`name = \"..\"`, `deadline = \"1h\"`, `crate = path`";

pub(crate) fn expand(item: TokenStream) -> TokenStream {
    match syn::parse2::<DeriveInput>(item) {
        Ok(input) => milestone(&input),
        Err(error) => error.to_compile_error(),
    }
}

fn milestone(input: &DeriveInput) -> TokenStream {
    let mut errors = Errors::default();
    if let Data::Union(data) = &input.data {
        errors.push(
            data.union_token,
            "a union cannot be a milestone: use a struct or an enum",
        );
    }
    let Options {
        model,
        name,
        deadline,
        krate,
    } = Options::read(input, &mut errors);
    let is_union = matches!(input.data, Data::Union(_));
    if !input.generics.params.is_empty() {
        errors.push(
            &input.generics,
            "a milestone cannot be generic: its name, which is stored, stands for one type",
        );
    }
    if is_union || !input.generics.params.is_empty() {
        return quote!(#errors);
    }
    let ident = &input.ident;
    let name = name.unwrap_or_else(|| {
        let name = unraw(ident);
        names::check("a milestone type", &name, ident, &mut errors);
        name
    });
    let use_runtime = names::use_runtime(krate.as_ref());
    let deadline = deadline.map(|deadline| {
        let deadline = deadline.tokens();
        quote!(const DEADLINE: ::core::option::Option<_milestone::Duration> = ::core::option::Option::Some(#deadline);)
    });
    let table = table::graph(&model);
    let outcome = table::outcome(&model);
    // An outcome that cannot be read back is an error at this token: it belongs to that action.
    let at = model
        .ends()
        .first()
        .map_or(ident.span(), |end| model.nodes[*end].ident.span());
    // In an associated type, a name that does not exist is the same error as in the table, and is shown once.
    let output = quote_spanned!(generated_at(at)=> type Output = #outcome;);
    let yields = quote_spanned!(generated_at(at)=> impl _milestone::Yields<_milestone::OutcomeOf<Outcome>> for #ident {});
    let checks = table::each(&model, |node, index, at| {
        let path = &node.path;
        let check = quote_spanned!(at=> _milestone::check::<#path, #ident>(#index));
        // The name of the constant stands where the macro does: behind one of the user's, type parameters would be proposed.
        quote!(const _: () = #check;)
    });
    // What the checks could say after a mistake would only repeat it in other words.
    let checks = errors.is_empty().then_some(checks);
    quote! {
        const _: () = {
            #use_runtime
            impl _milestone::Milestone for #ident {
                const TYPE: &'static str = #name;
                const GRAPH: &'static _milestone::Graph = &#table;
                #deadline
            }
            enum Outcome {}
            impl _milestone::Outcome for Outcome {
                #output
            }
            #yields
            #checks
            _milestone::inventory::submit!(_milestone::TypeRegistration::of::<#ident>());
        };
        #errors
    }
}

/// What stands in `#[milestone(..)]`.
#[derive(Default)]
struct Options {
    model: Model,
    name: Option<String>,
    deadline: Option<Millis>,
    krate: Option<Path>,
}

impl Options {
    /// `"milestone" "(" graph ("," option)* ","? ")"`
    fn read(input: &DeriveInput, errors: &mut Errors) -> Self {
        let mut options = Self::default();
        let mut attributes = input
            .attrs
            .iter()
            .filter(|attribute| attribute.path().is_ident("milestone"));
        let Some(attribute) = attributes.next() else {
            let message = format!(
                "`{0}` has no graph: add `#[milestone(first -> second)]` to it",
                unraw(&input.ident)
            );
            errors.push(&input.ident, message);
            return options;
        };
        for attribute in attributes {
            errors.push(attribute, "a milestone has one graph: write all of it in one `#[milestone(..)]`, chains separated by `;`");
        }
        let Meta::List(list) = &attribute.meta else {
            errors.push(
                attribute,
                "the graph is missing: `#[milestone(first -> second)]`",
            );
            return options;
        };
        let (graph, rest) = split(list.tokens.clone());
        let before = errors.is_empty();
        options.model = graph::read(graph, errors);
        if options.model.nodes.is_empty() && before && errors.is_empty() {
            errors.push(
                attribute,
                "the graph has no action: name at least one, `#[milestone(first -> second)]`",
            );
        }
        each(rest, OPTIONS, errors, |key, input, errors| {
            options.option(key, input, errors)
        });
        options
    }

    /// `option := "name" "=" string | "deadline" "=" duration | "crate" "=" path`
    fn option(
        &mut self,
        key: &Ident,
        input: ParseStream<'_>,
        errors: &mut Errors,
    ) -> syn::Result<bool> {
        match key.to_string().as_str() {
            "name" => {
                let name: LitStr = value(key, input, "name = \"transfer\"", string)?;
                names::check("a milestone type", &name.value(), &name, errors);
                self.name = Some(name.value());
            }
            "deadline" => {
                self.deadline = Some(value(key, input, "deadline = \"1h\"", duration)?);
            }
            "crate" => {
                self.krate = Some(value(
                    key,
                    input,
                    "crate = my_milestone",
                    Path::parse_mod_style,
                )?);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// The graph, and the options behind it: they begin behind the first comma with a `key =` after it.
fn split(tokens: TokenStream) -> (TokenStream, TokenStream) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let is_punct = |index: usize, punct| matches!(tokens.get(index), Some(TokenTree::Punct(found)) if found.as_char() == punct);
    let is_option = |index: usize| {
        matches!(tokens.get(index), Some(TokenTree::Ident(_)))
            && is_punct(index + 1, '=')
            && !is_punct(index + 2, '>')
    };
    let comma = (0..tokens.len())
        .find(|index| is_punct(*index, ',') && (is_option(index + 1) || index + 1 == tokens.len()));
    let (graph, rest) = match comma {
        _ if is_option(0) => (0, 0),
        Some(comma) => (comma, comma + 1),
        None => (tokens.len(), tokens.len()),
    };
    (
        tokens[..graph].iter().cloned().collect(),
        tokens[rest..].iter().cloned().collect(),
    )
}
