//! Reads the syntax of a graph by hand, since it goes on after every mistake.

mod after;
mod mention;

use std::iter::Peekable;

use proc_macro2::{Delimiter, Group, Punct, TokenStream, TokenTree, token_stream::IntoIter};

use self::after::After;
use super::syntax::{Chain, Step};
use crate::errors::Errors;

/// ```text
/// input := graph | "<" graph ">"
/// graph := chain (";" chain)* ";"?
/// ```
pub(crate) fn graph(tokens: TokenStream, errors: &mut Errors) -> Vec<Chain> {
    let mut tokens: Vec<TokenTree> = tokens.into_iter().collect();
    if let Some(open) = tokens.first().filter(|token| is_punct(token, '<')).cloned() {
        tokens.remove(0);
        // The `>` of an arrow at the end is none that closes the graph.
        let arrow = tokens.len() >= 2 && is_punct(&tokens[tokens.len() - 2], '-');
        if tokens.last().is_some_and(|token| is_punct(token, '>')) && !arrow {
            tokens.pop();
        } else {
            errors.push(
                open,
                "this `<` is not closed: add a `>` at the end, or remove it",
            );
        }
    }
    Parser {
        tokens: tokens
            .into_iter()
            .collect::<TokenStream>()
            .into_iter()
            .peekable(),
        in_group: false,
        errors,
    }
    .chains()
}

struct Parser<'a> {
    tokens: Peekable<IntoIter>,
    in_group: bool,
    errors: &'a mut Errors,
}

impl Parser<'_> {
    fn chains(&mut self) -> Vec<Chain> {
        let mut chains = Vec::new();
        while self.tokens.peek().is_some() {
            let (chain, end) = self.chain();
            if chain.is_none()
                && let Some(separator) = end
            {
                self.errors.push(
                    &separator,
                    format!("an action is missing before this `{}`", separator.as_char()),
                );
            }
            chains.extend(chain);
        }
        chains
    }

    /// `chain := step ("->" step)*`, with the separator behind it. `None` if there was nothing.
    fn chain(&mut self) -> (Option<Chain>, Option<Punct>) {
        let mut steps = Vec::new();
        let mut arrow: Option<TokenStream> = None;
        let mut mistake = false;
        let end = loop {
            match self.step(&mut mistake) {
                Some(step) => {
                    steps.push(step);
                    arrow = None;
                    match self.after() {
                        After::Arrow(tokens) => arrow = Some(tokens),
                        After::Separator(punct) => break Some(punct),
                        After::End => break None,
                    }
                }
                None => match self.after() {
                    After::Arrow(tokens) if !mistake => {
                        self.errors
                            .push(&tokens, "an action is missing before this `->`");
                        mistake = true;
                    }
                    After::Arrow(_) => {}
                    After::Separator(punct) => break Some(punct),
                    After::End => break None,
                },
            }
        };
        if let Some(arrow) = arrow
            && !mistake
        {
            self.errors.push(
                arrow,
                "an action is missing after this `->`: name one, or remove the arrow",
            );
            mistake = true;
        }
        ((mistake || !steps.is_empty()).then_some(Chain(steps)), end)
    }

    /// `step := [alias ":"] path | "(" chain ("," chain)* ")"`. `None` if none stands here; `mistake` tells that this was said.
    fn step(&mut self, mistake: &mut bool) -> Option<Step> {
        loop {
            match self.tokens.peek()? {
                TokenTree::Group(group) if group.delimiter() == Delimiter::None => {
                    // A macro that passed a path or an identifier on has wrapped it.
                    let inner: TokenStream = group.stream();
                    self.tokens.next();
                    let rest: TokenStream = self.tokens.by_ref().collect();
                    self.tokens = inner
                        .into_iter()
                        .chain(rest)
                        .collect::<TokenStream>()
                        .into_iter()
                        .peekable();
                }
                TokenTree::Group(group) => {
                    let group = group.clone();
                    self.tokens.next();
                    return self.group(&group, mistake);
                }
                TokenTree::Ident(_) => return self.mention(mistake),
                TokenTree::Punct(punct) if punct.as_char() == ':' => return self.mention(mistake),
                TokenTree::Punct(punct) if matches!(punct.as_char(), '-' | '=' | ';' | ',') => {
                    return None;
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => {
                    let token = self.tokens.next()?;
                    let message = match &token {
                        TokenTree::Literal(_) => {
                            "an action is named by its function, without quotes: `debit -> credit`"
                        }
                        _ => "an action or a group was expected here",
                    };
                    if !*mistake {
                        self.errors.push(token, message);
                    }
                    *mistake = true;
                }
            }
        }
    }

    fn group(&mut self, group: &Group, mistake: &mut bool) -> Option<Step> {
        if group.delimiter() != Delimiter::Parenthesis {
            self.errors
                .push(group, "a group stands in parentheses: `(a, b)`");
        }
        if group.stream().is_empty() {
            self.errors
                .push(group, "an empty group: put an action into it, or remove it");
            *mistake = true;
            return None;
        }
        let tokens = group.stream().into_iter().peekable();
        Some(Step::Group(
            Parser {
                tokens,
                in_group: true,
                errors: self.errors,
            }
            .chains(),
        ))
    }
}

fn is_punct(token: &TokenTree, punct: char) -> bool {
    matches!(token, TokenTree::Punct(found) if found.as_char() == punct)
}
