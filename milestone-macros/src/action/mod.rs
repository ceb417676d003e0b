//! `#[action]`: options (`options`) and signature (`signature`) → the marker with its trait (`expand`).

mod expand;
mod options;
mod signature;

use proc_macro2::TokenStream;
use quote::quote;

use crate::errors::Errors;

/// The function comes first and untouched, whatever is wrong with it.
pub(crate) fn expand(options: TokenStream, item: &TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let action = match signature::Action::read(item.clone(), &mut errors) {
        Ok(action) => {
            let options = options::Options::read(options, &action, &mut errors);
            (!action.method).then(|| expand::marker(&action, &options))
        }
        Err(error) => {
            errors.add(error);
            None
        }
    };
    quote!(#item #action #errors)
}
