//! The function that an action is made of.

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, quote};
use syn::{
    Attribute, FnArg, PathArguments, ReturnType, Safety, Signature, Token, Type, Visibility,
    parse::{ParseStream, Parser},
    visit_mut::{self, VisitMut},
};

use crate::errors::Errors;

/// What is used of a function. Its body is none of it, so a body that is being typed breaks nothing.
pub(super) struct Action {
    pub(super) docs: Vec<Attribute>,
    pub(super) cfgs: Vec<Attribute>,
    pub(super) vis: Visibility,
    pub(super) ident: Ident,
    pub(super) arguments: Vec<Argument>,
    /// What it returns; `()` if nothing is written.
    pub(super) output: TokenStream,
    /// Whether it can be called as an action.
    pub(super) sound: bool,
    /// Whether it has a `self`: then no marker can stand beside it.
    pub(super) method: bool,
}

pub(super) struct Argument {
    pub(super) cfgs: Vec<Attribute>,
    pub(super) ty: Type,
    /// The `T` of `Params<T>`.
    pub(super) params: Option<Type>,
    /// Whether it is the transaction, `&mut Tx`.
    pub(super) transaction: bool,
}

impl Action {
    /// The parameters that it takes.
    pub(super) fn params(&self) -> Option<&Type> {
        self.arguments
            .iter()
            .find_map(|argument| argument.params.as_ref())
    }

    /// The transaction that it takes.
    pub(super) fn transaction(&self) -> Option<&Argument> {
        self.arguments.iter().find(|argument| argument.transaction)
    }

    pub(super) fn read(item: TokenStream, errors: &mut Errors) -> syn::Result<Self> {
        let (attributes, vis, signature) = function.parse2(item)?;
        check_function(&signature, errors);
        let mut arguments = Vec::new();
        for argument in &signature.inputs {
            match argument {
                FnArg::Receiver(receiver) => {
                    errors.push(
                        receiver,
                        "an action is a free function: what it needs comes as `State<T>`",
                    );
                }
                FnArg::Typed(argument) => arguments.push(Argument {
                    cfgs: with_name(&argument.attrs, "cfg"),
                    params: params_of(&argument.ty),
                    transaction: is_transaction(&argument.ty),
                    ty: (*argument.ty).clone(),
                }),
            }
        }
        for argument in arguments.iter().filter(|argument| !argument.transaction) {
            match last_of_path(&argument.ty) {
                Some(last) if last == "Tx" => errors.push(
                    &argument.ty,
                    "a transaction is taken as `&mut Tx`: it is committed once the action has returned",
                ),
                _ => check_type(&argument.ty, "an argument", errors),
            }
        }
        let mut all_params = arguments
            .iter()
            .filter(|argument| argument.params.is_some() && argument.cfgs.is_empty());
        if let (Some(_), Some(second)) = (all_params.next(), all_params.next()) {
            errors.push(
                &second.ty,
                "a second `Params`: a milestone has one value as its parameters, so take it once",
            );
        }
        let mut transactions = arguments
            .iter()
            .filter(|argument| argument.transaction && argument.cfgs.is_empty());
        if let (Some(_), Some(second)) = (transactions.next(), transactions.next()) {
            errors.push(
                &second.ty,
                "a second `&mut Tx`: an action runs in one transaction, so take it once",
            );
        }
        let output = match &signature.output {
            ReturnType::Default => quote!(()),
            ReturnType::Type(_, ty) => {
                check_type(ty, "the output", errors);
                ty.to_token_stream()
            }
        };
        Ok(Self {
            docs: with_name(&attributes, "doc"),
            cfgs: with_name(&attributes, "cfg"),
            vis,
            ident: signature.ident.clone(),
            arguments,
            output,
            sound: errors.is_empty(),
            method: signature
                .inputs
                .iter()
                .any(|argument| matches!(argument, FnArg::Receiver(_))),
        })
    }
}

/// `attribute* visibility signature`; the body behind it is left alone.
fn function(input: ParseStream<'_>) -> syn::Result<(Vec<Attribute>, Visibility, Signature)> {
    let attributes = input.call(Attribute::parse_outer)?;
    let vis = input.parse()?;
    let is_function =
        input.peek(Token![async]) || input.peek(Token![fn]) || input.peek(Token![unsafe]);
    if !is_function && !input.peek(Token![extern]) && !input.peek(Token![const]) {
        return Err(input.error("an action is an async function: `#[action] async fn`"));
    }
    let signature = input.parse()?;
    input.parse::<TokenStream>()?;
    Ok((attributes, vis, signature))
}

fn check_function(signature: &Signature, errors: &mut Errors) {
    if signature.asyncness.is_none() {
        errors.push(signature.fn_token, "an action is async: write `async fn`");
    }
    if !matches!(signature.safety, Safety::Default) {
        errors.push(
            &signature.safety,
            "an action cannot be `unsafe`: the runtime calls it, and knows of no conditions",
        );
    }
    if let Some(abi) = &signature.abi {
        errors.push(abi, "an action cannot be `extern`: remove it");
    }
    if !signature.generics.params.is_empty() {
        errors.push(
            &signature.generics,
            "an action cannot be generic: its name, which is stored, stands for one function",
        );
    }
    if let Some(variadic) = &signature.variadic {
        errors.push(variadic, "an action has a fixed number of arguments");
    }
}

fn check_type(ty: &Type, what: &'static str, errors: &mut Errors) {
    Check { what, errors }.visit_type_mut(&mut ty.clone());
}

/// Finds what cannot stand outside of a signature.
struct Check<'a> {
    what: &'static str,
    errors: &'a mut Errors,
}

impl VisitMut for Check<'_> {
    fn visit_type_mut(&mut self, ty: &mut Type) {
        let what = self.what;
        match ty {
            Type::Reference(reference)
                if reference
                    .lifetime
                    .as_ref()
                    .is_none_or(|lifetime| lifetime.ident != "static") =>
            {
                let message = format!(
                    "{what} of an action cannot be a reference, since an attempt may outlive its caller: take it by value, or as `State<T>`"
                );
                self.errors.push(ty, message);
            }
            Type::ImplTrait(_) => {
                let message = format!("{what} of an action cannot be `impl Trait`: name the type");
                self.errors.push(ty, message);
            }
            // The lifetimes in the signature of a function type are its own.
            Type::FnPtr(_) => {}
            _ => visit_mut::visit_type_mut(self, ty),
        }
    }

    fn visit_parenthesized_generic_arguments_mut(
        &mut self,
        _: &mut syn::ParenthesizedGenericArguments,
    ) {
    }
}

/// Whether a type is written as `&mut Tx`, with any path in front of it.
fn is_transaction(ty: &Type) -> bool {
    match ty {
        Type::Reference(reference) => {
            reference.mutability.is_some()
                && reference.lifetime.is_none()
                && last_of_path(&reference.elem).is_some_and(|last| last == "Tx")
        }
        Type::Group(group) => is_transaction(&group.elem),
        _ => false,
    }
}

/// The name at the end of a path that is a type; of a reference, of what it is to.
fn last_of_path(ty: &Type) -> Option<&Ident> {
    match ty {
        Type::Path(path) => path.path.segments.last().map(|last| &last.ident),
        Type::Group(group) => last_of_path(&group.elem),
        Type::Reference(reference) => last_of_path(&reference.elem),
        _ => None,
    }
}

/// The `T` of a type that is written as `Params<T>`, with any path in front of it.
fn params_of(ty: &Type) -> Option<Type> {
    let path = match ty {
        Type::Path(path) => path,
        // A type that a macro passed on is wrapped.
        Type::Group(group) => return params_of(&group.elem),
        _ => return None,
    };
    let last = path
        .path
        .segments
        .last()
        .filter(|last| last.ident == "Params")?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else {
        return None;
    };
    match arguments.args.first() {
        Some(syn::GenericArgument::Type(ty)) => Some(ty.clone()),
        _ => None,
    }
}

fn with_name(attributes: &[Attribute], name: &str) -> Vec<Attribute> {
    attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident(name))
        .cloned()
        .collect()
}
