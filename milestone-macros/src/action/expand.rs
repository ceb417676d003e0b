//! ```text
//! #[action(idempotent)]
//! /// Takes the money.
//! async fn debit(Params(t): Params<Transfer>, bank: State<Bank>) -> Result<Balance, BankError> { .. }
//! ```
//! stays as it is, and behind it comes
//! ```text
//! #[doc(hidden)]
//! /// Takes the money.
//! enum debit {}
//! const _: () = {
//!     use ::milestone_runtime::__private as _milestone;
//!     impl _milestone::Action for debit {
//!         const NAME: &'static str = "debit";
//!         const OPTIONS: _milestone::Options = _milestone::Options::idempotent();
//!         const INPUTS: &'static [_milestone::Input] = &[
//!             <Params<Transfer> as _milestone::Extract>::INPUT,
//!             <State<Bank> as _milestone::Extract>::INPUT,
//!         ];
//!         type Output = <Result<Balance, BankError> as _milestone::Returned>::Output;
//!         fn call(call: _milestone::Call) -> _milestone::ActionFuture {
//!             _milestone::Box::pin(async move {
//!                 let action = debit;
//!                 <Result<Balance, BankError> as _milestone::Returned>::stored(
//!                     action(
//!                         <Params<Transfer> as _milestone::Extract>::extract(&call)?,
//!                         <State<Bank> as _milestone::Extract>::extract(&call)?,
//!                     ).await,
//!                 )
//!             })
//!         }
//!     }
//!     impl _milestone::Accepts<Transfer> for debit {}
//!     _milestone::inventory::submit!(_milestone::Registration::of::<debit>());
//! };
//! ```
//! Types are named by trait paths in both places, since the compiler then says the same error twice and shows it once.

use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::{Path, spanned::Spanned};

use super::{
    options::{Options, Retry},
    signature::{Action, Argument},
};
use crate::{
    duration::Millis,
    names::{self, generated_at, unraw},
};

pub(super) fn marker(action: &Action, options: &Options) -> TokenStream {
    let Action {
        docs,
        cfgs,
        vis,
        ident,
        ..
    } = action;
    // The lint on the case of type names looks at where the name was written; so the marker needs no `allow`, which an
    // application's `forbid` would not bear.
    let at = generated_at(ident.span());
    let marker = match ident.to_string().strip_prefix("r#") {
        Some(raw) => Ident::new_raw(raw, at),
        // Where the macro writes, edition 2024 holds, in which this is a keyword.
        None if ident == "gen" => Ident::new_raw("gen", at),
        None => Ident::new(&ident.to_string(), at),
    };
    let use_runtime = names::use_runtime(options.krate.as_ref());
    let name = options.name.as_ref().map_or_else(
        || unraw(ident).into_token_stream(),
        ToTokens::to_token_stream,
    );
    let option_calls = option_calls(options);
    let when = options.retry.as_ref().and_then(|retry| retry.when.as_ref());
    let body = if action.sound && options.transactional.is_some() == action.transaction().is_some()
    {
        body(action, when)
    } else {
        mended_body()
    };
    let accepts = if let Some(params) = action.params().filter(|_| action.sound) {
        quote!(impl _milestone::Accepts<#params> for #ident {})
    } else {
        quote!(impl<P> _milestone::Accepts<P> for #ident {})
    };
    let check = |helper: &Path, check: &str| {
        let at = generated_at(helper.span());
        let check = Ident::new(check, at);
        let takes = action.params().map(
            |params| quote_spanned!(at=> const _: () = _milestone::takes::<#helper, #params>();),
        );
        quote_spanned!(at=> const _: () = _milestone::#check::<#helper, #ident>(); #takes)
    };
    let undo = options.undo.as_ref().map(|undo| check(undo, "check_undo"));
    let verify = options
        .verify
        .as_ref()
        .map(|verify| check(verify, "check_verify"));
    quote! {
        #(#cfgs)*
        #(#docs)*
        #[doc(hidden)]
        #vis enum #marker {}
        #(#cfgs)*
        const _: () = {
            #use_runtime
            impl _milestone::Action for #ident {
                const NAME: &'static str = #name;
                #option_calls
                #body
            }
            #accepts
            #undo
            #verify
            _milestone::inventory::submit!(_milestone::Registration::of::<#ident>());
        };
    }
}

/// A transactional action is called with its transaction, again and again if others come in between:
/// ```text
/// fn call(call: _milestone::Call) -> _milestone::ActionFuture {
///     _milestone::transactional(call, |call, tx| _milestone::Box::pin(async move {
///         let action = pay;
///         <Result<Receipt, PayError> as _milestone::Returned>::stored(
///             action(<Params<Transfer> as _milestone::Extract>::extract(call)?, tx).await,
///         )
///     }))
/// }
/// ```
fn body(action: &Action, when: Option<&Path>) -> TokenStream {
    let Action { ident, output, .. } = action;
    let transactional = action.transaction().is_some();
    let inputs = action
        .arguments
        .iter()
        .filter(|argument| !argument.transaction)
        .map(|Argument { cfgs, ty, .. }| quote!(#(#cfgs)* <#ty as _milestone::Extract>::INPUT));
    // Names of the macro's own, which the user's function may have as well.
    let call = Ident::new("call", Span::mixed_site());
    let run = Ident::new("action", Span::mixed_site());
    let transaction = Ident::new("tx", Span::mixed_site());
    let called = if transactional {
        quote!(#call)
    } else {
        quote!(&#call)
    };
    let extracted = action.arguments.iter().map(|argument| {
        let Argument { cfgs, ty, .. } = argument;
        if argument.transaction {
            quote!(#(#cfgs)* #transaction)
        } else {
            quote!(#(#cfgs)* <#ty as _milestone::Extract>::extract(#called)?)
        }
    });
    let argument = if action.arguments.is_empty() {
        quote!(_)
    } else {
        quote!(#call)
    };
    // All mentions of the output are at the place of its own tokens, so that a mistake in it is shown once, and there.
    let (first, last) = names::ends(output);
    let (open, close) = (
        quote_spanned!(first=> <),
        quote_spanned!(last=> as _milestone::Returned>),
    );
    let returned = quote!(#open #output #close);
    let (item, output) = (
        quote_spanned!(first=> type),
        quote_spanned!(last=> Output =),
    );
    let end = quote_spanned!(last=> ::Output;);
    let stored = quote_spanned!(last=> ::stored);
    // A function that is named as a value keeps clippy from saying that an action without `.await` need not be async.
    let ran = quote!(#run(#(#extracted),*).await);
    let stored = if let Some(when) = when {
        let at = generated_at(when.span());
        quote_spanned!(at=> _milestone::classified(#ran, #when))
    } else {
        quote!(#returned #stored(#ran))
    };
    let body = quote!(let #run = #ident; #stored);
    // A body that cannot be sent between threads is an error at these tokens: it belongs to the function's name.
    let at = generated_at(ident.span());
    let mut body = quote_spanned!(at=> _milestone::Box::pin(async move { #body }));
    if transactional {
        let taken = if action.arguments.len() == 1 {
            quote!(_)
        } else {
            quote!(#call)
        };
        body = quote!(_milestone::transactional(#call, |#taken, #transaction| #body));
    }
    quote! {
        const INPUTS: &'static [_milestone::Input] = &[#(#inputs),*];
        #item #output #returned #end
        fn call(#argument: _milestone::Call) -> _milestone::ActionFuture {
            #body
        }
    }
}

/// Stands in where the function cannot be called, so that graphs with it have no mistake of their own.
fn mended_body() -> TokenStream {
    quote! {
        const INPUTS: &'static [_milestone::Input] = &[];
        type Output = ();
        fn call(_: _milestone::Call) -> _milestone::ActionFuture {
            ::core::unreachable!()
        }
    }
}

/// Nothing for an action without options.
fn option_calls(options: &Options) -> Option<TokenStream> {
    let mode = match (&options.transactional, options.idempotent) {
        (Some(_), _) => quote!(transactional),
        (None, true) => quote!(idempotent),
        (None, false) => quote!(plain),
    };
    let undo = options.undo.as_ref().map(|undo| {
        let at = generated_at(undo.span());
        quote_spanned!(at=> .undo(_milestone::name_of::<#undo>()))
    });
    let verify = options.verify.as_ref().map(|verify| {
        let at = generated_at(verify.span());
        quote_spanned!(at=> .verify(_milestone::name_of::<#verify>()))
    });
    // What only tells errors apart leaves the default of the mode as it is.
    let retry = options
        .retry
        .as_ref()
        .filter(|retry| retry.has_policy())
        .map(|retry| {
            let policy = policy(retry);
            quote!(.retry(#policy))
        });
    let timeout = options.timeout.map(|timeout| {
        let timeout = timeout.tokens();
        quote!(.timeout(#timeout))
    });
    let queue = options.queue.as_ref().map(|queue| quote!(.queue(#queue)));
    let concurrency = options.concurrency.map(|places| {
        let places = Literal::u32_unsuffixed(places);
        quote!(.concurrency(#places))
    });
    let calls = quote!(#undo #verify #retry #timeout #queue #concurrency);
    let repeatable = options.idempotent || options.transactional.is_some();
    (repeatable || !calls.is_empty())
        .then(|| quote!(const OPTIONS: _milestone::Options = _milestone::Options::#mode() #calls;))
}

/// `RetryPolicy::new().max(5).base(Duration::from_secs(1))`
fn policy(retry: &Retry) -> TokenStream {
    let number = |name, value: Option<u32>| {
        value.map(|value| {
            let (name, value) = (
                Ident::new(name, Span::call_site()),
                Literal::u32_unsuffixed(value),
            );
            quote!(.#name(#value))
        })
    };
    let duration = |name, value: Option<Millis>| {
        value.map(|value| {
            let (name, value) = (Ident::new(name, Span::call_site()), value.tokens());
            quote!(.#name(#value))
        })
    };
    let (max, factor) = (number("max", retry.max), number("factor", retry.factor));
    let (base, cap) = (duration("base", retry.base), duration("cap", retry.cap));
    quote!(_milestone::RetryPolicy::new() #max #base #cap #factor)
}
