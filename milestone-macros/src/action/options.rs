//! What stands in `#[action(..)]`.

use proc_macro2::{Ident, TokenStream};
use syn::{LitStr, Path, Token, parse::ParseStream, token::Paren};

use super::signature::Action;
use crate::{
    duration::{Millis, duration},
    errors::Errors,
    names::{self, unraw},
    options::{at_least_one, each, skip, string, value},
};

const KNOWN: &str = "`idempotent`, `transactional`, `undo = action`, `verify = action`, `retry(..)`, `timeout = \"30s\"`, `queue = \"..\"`, `concurrency = n`, `name = \"..\"`, \
                     `crate = path`";
const KNOWN_RETRY: &str =
    "`max = n`, `base = \"1s\"`, `cap = \"5m\"`, `factor = n`, `when = function`";

/// The longest wait where no `cap` is written, as core has it.
const DEFAULT_CAP: Millis = Millis(300_000);

/// Only what was written is here; what is left out is core's to say.
#[derive(Default)]
pub(super) struct Options {
    pub(super) idempotent: bool,
    /// Where it stands.
    pub(super) transactional: Option<Ident>,
    pub(super) undo: Option<Path>,
    pub(super) verify: Option<Path>,
    pub(super) retry: Option<Retry>,
    pub(super) timeout: Option<Millis>,
    pub(super) queue: Option<LitStr>,
    pub(super) concurrency: Option<u32>,
    pub(super) name: Option<LitStr>,
    pub(super) krate: Option<Path>,
}

#[derive(Default)]
pub(super) struct Retry {
    pub(super) max: Option<u32>,
    pub(super) base: Option<Millis>,
    pub(super) cap: Option<Millis>,
    pub(super) factor: Option<u32>,
    /// Tells of an error whether a retry may mend it.
    pub(super) when: Option<Path>,
}

impl Options {
    /// `options := (option ("," option)* ","?)?`
    pub(super) fn read(tokens: TokenStream, action: &Action, errors: &mut Errors) -> Self {
        let mut options = Self::default();
        each(tokens, KNOWN, errors, |key, input, errors| {
            options.option(key, input, action, errors)
        });
        if options.idempotent && options.verify.is_some() {
            let message = "`verify` is for plain actions: an idempotent one is simply run again, so leave one of them out";
            errors.push(options.verify.as_ref(), message);
        }
        options.check_transaction(action, errors);
        if options.name.is_none() {
            names::check("an action", &unraw(&action.ident), &action.ident, errors);
        }
        options
    }

    /// A transaction goes with an argument that gives it, and with no other promise.
    fn check_transaction(&self, action: &Action, errors: &mut Errors) {
        match (&self.transactional, action.transaction()) {
            (Some(option), None) if action.sound => errors.push(
                option,
                "a transactional action takes its transaction as an argument: add `tx: &mut Tx`",
            ),
            // An option that could not be read may have said so.
            (None, Some(argument)) if errors.is_empty() => errors.push(
                &argument.ty,
                "`&mut Tx` is for transactional actions: write `#[action(transactional)]`",
            ),
            _ => {}
        }
        let Some(option) = &self.transactional else {
            return;
        };
        if self.idempotent {
            let message = "an action is `idempotent` or `transactional`, not both: what a transaction writes is there once, so leave `idempotent` out";
            errors.push(option, message);
        }
        if self.verify.is_some() {
            let message = "`verify` is for plain actions: whether a transaction was committed is known, so leave one of them out";
            errors.push(self.verify.as_ref(), message);
        }
    }

    /// ```text
    /// option := "idempotent" | "transactional" | "undo" "=" path | "verify" "=" path | "retry" "(" .. ")" | "timeout" "=" duration
    ///         | "queue" "=" string | "concurrency" "=" integer | "name" "=" string | "crate" "=" path
    /// ```
    fn option(
        &mut self,
        key: &Ident,
        input: ParseStream<'_>,
        action: &Action,
        errors: &mut Errors,
    ) -> syn::Result<bool> {
        match key.to_string().as_str() {
            "idempotent" => {
                no_value(key, input)?;
                self.idempotent = true;
            }
            "transactional" => {
                no_value(key, input)?;
                self.transactional = Some(key.clone());
            }
            "undo" => {
                let undo: Path = value(key, input, "undo = refund", Path::parse_mod_style)?;
                if undo.is_ident(&action.ident) {
                    return Err(syn::Error::new_spanned(
                        undo,
                        "an action cannot undo itself: name another one",
                    ));
                }
                self.undo = Some(undo);
            }
            "retry" => self.retry = Some(Retry::read(key, input, errors)?),
            "timeout" => self.timeout = Some(value(key, input, "timeout = \"30s\"", duration)?),
            "queue" => {
                let queue: LitStr = value(key, input, "queue = \"mail\"", string)?;
                names::check("a queue", &queue.value(), &queue, errors);
                self.queue = Some(queue);
            }
            "concurrency" => {
                self.concurrency = Some(value(key, input, "concurrency = 4", at_least_one)?);
            }
            "name" => {
                let name: LitStr = value(key, input, "name = \"debit\"", string)?;
                names::check("an action", &name.value(), &name, errors);
                self.name = Some(name);
            }
            "crate" => {
                self.krate = Some(value(
                    key,
                    input,
                    "crate = my_milestone",
                    Path::parse_mod_style,
                )?);
            }
            "verify" => {
                let verify: Path =
                    value(key, input, "verify = was_charged", Path::parse_mod_style)?;
                if verify.is_ident(&action.ident) {
                    return Err(syn::Error::new_spanned(
                        verify,
                        "an action cannot verify itself: name another one",
                    ));
                }
                self.verify = Some(verify);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// For an option that is only named.
fn no_value(key: &Ident, input: ParseStream<'_>) -> syn::Result<()> {
    if !input.peek(Token![=]) {
        return Ok(());
    }
    let value: TokenStream = input.parse()?;
    let message = format!("`{key}` has no value: write it alone, or leave it out");
    Err(syn::Error::new_spanned(value, message))
}

impl Retry {
    /// Whether it says anything of the waits or of their number.
    pub(super) const fn has_policy(&self) -> bool {
        self.max.is_some() || self.base.is_some() || self.cap.is_some() || self.factor.is_some()
    }

    /// `retry := "(" (key "=" value ("," key "=" value)* ","?)? ")"`
    fn read(key: &Ident, input: ParseStream<'_>, errors: &mut Errors) -> syn::Result<Self> {
        if !input.peek(Paren) {
            skip(input)?;
            return Err(syn::Error::new_spanned(
                key,
                format!("`retry` has options in parentheses, `retry(max = 5)`: {KNOWN_RETRY}"),
            ));
        }
        let content;
        syn::parenthesized!(content in input);
        let tokens: TokenStream = content.parse()?;
        if tokens.is_empty() {
            return Err(syn::Error::new_spanned(
                key,
                format!("`retry` says nothing: write at least one of {KNOWN_RETRY}"),
            ));
        }
        let mut retry = Self::default();
        let mut base_at = None;
        each(tokens, KNOWN_RETRY, errors, |key, input, _| {
            match key.to_string().as_str() {
                "max" => retry.max = Some(value(key, input, "max = 5", at_least_one)?),
                "base" => {
                    let text: LitStr = value(key, input, "base = \"1s\"", string)?;
                    retry.base = Some(Millis::parse(&text)?);
                    base_at = Some(text);
                }
                "cap" => retry.cap = Some(value(key, input, "cap = \"5m\"", duration)?),
                "factor" => retry.factor = Some(value(key, input, "factor = 2", at_least_one)?),
                "when" => {
                    let example = "when = BankError::is_transient";
                    retry.when = Some(value(key, input, example, Path::parse_mod_style)?);
                }
                _ => return Ok(false),
            }
            Ok(true)
        });
        if retry.base > Some(retry.cap.unwrap_or(DEFAULT_CAP)) {
            let cap = if retry.cap.is_some() {
                "`cap`"
            } else {
                "`cap`, which is 5m if it is not written"
            };
            errors.push(
                base_at,
                format!("`base` is longer than {cap}: make it shorter, or the cap longer"),
            );
        }
        Ok(retry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cap_is_that_of_core() {
        let cap = milestone_core::retry::RetryPolicy::new().cap;
        assert_eq!(cap.as_millis(), u128::from(DEFAULT_CAP.0));
    }

    fn mistakes(options: &str) -> Vec<String> {
        let item = "async fn debit() {}".parse().expect("a function");
        let mut errors = Errors::default();
        let action = Action::read(item, &mut errors).expect("a function");
        Options::read(options.parse().expect("tokens"), &action, &mut errors);
        errors.messages()
    }

    #[test]
    fn what_may_be_written() {
        for options in [
            "",
            "idempotent",
            "idempotent,",
            "verify = bank::was_debited, retry(when = Bank::is_transient)",
            "retry(max = 3,), undo = bank::refund",
            "retry(base = \"10m\", cap = \"1h\", factor = 1), name = \"a.b-c\"",
            "crate = ::work::milestone, queue = \"q\", concurrency = 1, timeout = \"1d\"",
        ] {
            assert_eq!(mistakes(options), [""; 0], "{options}");
        }
    }

    #[test]
    fn one_mistake_is_one_error() {
        for options in [
            "idempotent = true",
            "idempotent, idempotent",
            ", idempotent",
            "idempotent,,",
            "idempotent timeout = \"1s\"",
            "undo",
            "undo = ",
            "undo = 3",
            "undo = debit",
            "undo => refund",
            "retry",
            "retry()",
            "retry = 3",
            "retry(3)",
            "retry(max = 0)",
            "retry(max = \"3\")",
            "retry(max = 99999999999)",
            "retry(factor = 0)",
            "retry(base = \"1h\")",
            "retry(base = \"2s\", cap = \"1s\")",
            "retry(max = 3) now",
            "timeout = 30",
            "timeout = \"30\"",
            "timeout = 'a'",
            "queue = q",
            "queue = \"\"",
            "concurrency = 0",
            "concurrency = -1",
            "name = \"$a\"",
            "name = \"milestone\"",
            "crate = \"work\"",
            "transactional",
            "transactional = 3",
            "verify",
            "verify = debit",
            "idempotent, verify = was_debited",
            "retry(when = 3)",
            "priority = 3",
            "\"idempotent\"",
        ] {
            let mistakes = mistakes(options);
            assert_eq!(mistakes.len(), 1, "{options}: {mistakes:?}");
        }
    }
}
