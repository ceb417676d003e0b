//! What stands between two steps.

use proc_macro2::{Punct, TokenStream, TokenTree};

use super::Parser;

/// What comes after a step.
pub(super) enum After {
    Arrow(TokenStream),
    Separator(Punct),
    End,
}

impl Parser<'_> {
    /// What comes behind a step; says what is wrong with it.
    pub(super) fn after(&mut self) -> After {
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
}
