//! Reads the syntax of a graph by hand, since it goes on after every mistake.

use std::iter::Peekable;

use proc_macro2::{
    Delimiter, Group, Ident, Punct, Spacing, TokenStream, TokenTree, token_stream::IntoIter,
};
use quote::ToTokens;

use super::syntax::{ActionPath, Chain, Mention, Step};
use crate::{errors::Errors, names};

const RESERVED: [&str; 6] = ["wait", "signal", "each", "run", "if", "else"];

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

/// What comes after a step.
enum After {
    Arrow(TokenStream),
    Separator(Punct),
    End,
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

    /// `[alias ":"] path`
    fn mention(&mut self, mistake: &mut bool) -> Option<Step> {
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

    /// What comes behind a step; says what is wrong with it.
    fn after(&mut self) -> After {
        let Some(token) = self.tokens.peek().cloned() else {
            return After::End;
        };
        match token {
            TokenTree::Punct(punct) if punct.as_char() == '-' => self.arrow(),
            TokenTree::Punct(punct) if punct.as_char() == '=' => {
                let arrow = self.two(&['>']);
                if arrow.clone().into_iter().count() < 2 {
                    let message = "what runs before what is written with `->`; options of a derive stand behind the graph and a comma";
                    self.errors.push(&arrow, message);
                    return self.after_mistake();
                }
                self.errors
                    .push(&arrow, "what runs before what is written with `->`");
                After::Arrow(arrow)
            }
            TokenTree::Punct(punct) if matches!(punct.as_char(), ',' | ';') => {
                self.tokens.next();
                if punct.as_char() == ',' && !self.in_group {
                    self.errors.push(&punct, "chains are separated by `;`, and actions that run side by side stand in parentheses: `(a, b)`");
                } else if punct.as_char() == ';' && self.in_group {
                    self.errors
                        .push(&punct, "within a group, chains are separated by `,`");
                }
                After::Separator(punct)
            }
            token => {
                let separator = if self.in_group { ',' } else { ';' };
                if matches!(token, TokenTree::Ident(_) | TokenTree::Group(_)) {
                    self.errors.push(
                        &token,
                        format!("`->` or `{separator}` is missing before this"),
                    );
                    After::Arrow(TokenStream::new())
                } else {
                    self.errors
                        .push(&token, format!("`->` or `{separator}` was expected here"));
                    self.tokens.next();
                    self.after_mistake()
                }
            }
        }
    }

    /// Skips to where the chain can go on, silently: the mistake was told.
    fn after_mistake(&mut self) -> After {
        while let Some(token) = self.tokens.peek() {
            match token {
                TokenTree::Punct(punct) if matches!(punct.as_char(), '-' | ',' | ';') => {
                    return self.after();
                }
                TokenTree::Ident(_) | TokenTree::Group(_) => {
                    return After::Arrow(TokenStream::new());
                }
                _ => {
                    self.tokens.next();
                }
            }
        }
        After::End
    }

    fn arrow(&mut self) -> After {
        let arrow = self.two(&['>']);
        if arrow.clone().into_iter().count() < 2 {
            self.errors
                .push(&arrow, "what runs before what is written with `->`");
        }
        After::Arrow(arrow)
    }

    /// The next token, and the one behind it if it is one of `second`.
    fn two(&mut self, second: &[char]) -> TokenStream {
        let mut tokens: TokenStream = self.tokens.next().into_iter().collect();
        if matches!(self.tokens.peek(), Some(TokenTree::Punct(punct)) if second.contains(&punct.as_char()))
        {
            tokens.extend(self.tokens.next());
        }
        tokens
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

fn is_punct(token: &TokenTree, punct: char) -> bool {
    matches!(token, TokenTree::Punct(found) if found.as_char() == punct)
}

fn is_keyword(ident: &Ident) -> bool {
    syn::parse2::<Ident>(ident.to_token_stream()).is_err()
}
