//! Actions where they are mentioned: names, paths, aliases.

use proc_macro2::{Ident, Spacing, TokenStream, TokenTree};
use quote::ToTokens;

use super::{Parser, is_punct};
use crate::{
    graph::syntax::{ActionPath, Mention, Step},
    names,
};

const RESERVED: [&str; 6] = ["wait", "signal", "each", "run", "if", "else"];

impl Parser<'_> {
    /// `[alias ":"] path`
    pub(super) fn mention(&mut self, mistake: &mut bool) -> Option<Step> {
        let path = self.path(mistake)?;
        if !matches!(self.tokens.peek(), Some(TokenTree::Punct(punct)) if punct.as_char() == ':') {
            let path = self.checked(path, mistake)?;
            return Some(Step::Action(Mention { alias: None, path }));
        }
        let colon = self.tokens.next()?;
        if !path.is_ident() {
            self.errors
                .push(&path, "an alias is a name, not a path: `warn: notify`");
            *mistake = true;
        }
        let alias = self.checked(path, mistake).map(|path| path.last);
        if !matches!(
            self.tokens.peek(),
            Some(TokenTree::Ident(_) | TokenTree::Punct(_))
        ) || matches!(self.tokens.peek(), Some(TokenTree::Punct(punct)) if punct.as_char() != ':')
        {
            self.errors.push(
                colon,
                "an alias stands for one action: name it behind the colon, `warn: notify`",
            );
            *mistake = true;
            return None;
        }
        let path = self.path(mistake)?;
        // With an alias in front the action's own name is none of the graph, so no word is reserved.
        let path = if path.is_ident() && is_keyword(&path.last) {
            self.checked(path, mistake)?
        } else {
            path
        };
        Some(Step::Action(Mention { alias, path }))
    }

    /// `path := "::"? ident ("::" ident)*`
    fn path(&mut self, mistake: &mut bool) -> Option<ActionPath> {
        let mut tokens = TokenStream::new();
        let mut last = None;
        let mut segments = usize::from(self.take_colons(&mut tokens));
        let mut whole = TokenStream::new();
        loop {
            match self.tokens.peek() {
                Some(TokenTree::Ident(ident)) => {
                    last = Some(ident.clone());
                    tokens.extend(self.tokens.next());
                    segments += 1;
                    whole = tokens.clone();
                }
                Some(token) if is_punct(token, '<') && last.is_some() => break,
                _ => {
                    self.errors.push(
                        tokens.into_iter().last(),
                        "a name is missing behind this `::`",
                    );
                    *mistake = true;
                    return None;
                }
            }
            if !self.take_colons(&mut tokens) {
                break;
            }
        }
        if self.tokens.peek().is_some_and(|token| is_punct(token, '<')) {
            let arguments = self.take_angles();
            self.errors
                .push(arguments, "an action has no type arguments: remove them");
            *mistake = true;
        }
        last.map(|last| ActionPath {
            tokens: whole,
            last,
            segments,
        })
    }

    fn take_colons(&mut self, tokens: &mut TokenStream) -> bool {
        match self.tokens.peek() {
            Some(TokenTree::Punct(punct))
                if punct.as_char() == ':' && punct.spacing() == Spacing::Joint =>
            {
                tokens.extend(self.tokens.by_ref().take(2));
                true
            }
            _ => false,
        }
    }

    fn checked(&mut self, path: ActionPath, mistake: &mut bool) -> Option<ActionPath> {
        if path.is_ident() {
            let word = path.last.to_string();
            if RESERVED.contains(&word.as_str()) {
                let raw = if is_keyword(&path.last) { "r#" } else { "" };
                let message = format!(
                    "`{word}` is reserved for a step of a later version: an action of that name needs an alias and a path, `other: self::{raw}{word}`"
                );
                self.errors.push(&path, message);
                *mistake = true;
                return None;
            }
            if is_keyword(&path.last) {
                self.errors.push(
                    &path,
                    format!("`{word}` is a keyword of Rust, not the name of an action"),
                );
                *mistake = true;
                return None;
            }
        }
        names::check(
            "an action of a graph",
            &names::unraw(&path.last),
            &path,
            self.errors,
        );
        Some(path)
    }

    /// `<..>` with what is in it.
    fn take_angles(&mut self) -> TokenStream {
        let mut taken = TokenStream::new();
        let mut depth = 0;
        for token in self.tokens.by_ref() {
            depth += i32::from(is_punct(&token, '<')) - i32::from(is_punct(&token, '>'));
            taken.extend([token]);
            if depth == 0 {
                break;
            }
        }
        taken
    }
}

fn is_keyword(ident: &Ident) -> bool {
    syn::parse2::<Ident>(ident.to_token_stream()).is_err()
}
