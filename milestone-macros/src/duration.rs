//! Durations as people write them: `"500ms"`, `"30s"`, `"5m"`, `"2h"`, `"1d"`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Lit, LitStr, parse::ParseStream};

use crate::options::string;

/// Milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Millis(pub(crate) u64);

const ACCEPTED: &str = "write a whole number with a unit: `500ms`, `30s`, `5m`, `2h` or `1d`";

impl Millis {
    /// `duration := digits ("ms" | "s" | "m" | "h" | "d")`
    pub(crate) fn parse(text: &LitStr) -> syn::Result<Self> {
        let value = text.value();
        let digits = value.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = value.split_at(digits);
        let unit = match unit.trim_start() {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            "" if digits > 0 => {
                return Err(syn::Error::new_spanned(
                    text,
                    format!("`{value}` has no unit: {ACCEPTED}"),
                ));
            }
            _ => {
                return Err(syn::Error::new_spanned(
                    text,
                    format!("`{value}` is no duration: {ACCEPTED}"),
                ));
            }
        };
        match number
            .parse::<u64>()
            .ok()
            .and_then(|number| number.checked_mul(unit))
        {
            Some(0) => Err(syn::Error::new_spanned(
                text,
                "a duration of nothing: make it longer, or leave the option out",
            )),
            Some(millis) => Ok(Self(millis)),
            None if digits > 0 => Err(syn::Error::new_spanned(
                text,
                format!("`{value}` is too long"),
            )),
            None => Err(syn::Error::new_spanned(
                text,
                format!("`{value}` has no number: {ACCEPTED}"),
            )),
        }
    }

    pub(crate) fn tokens(self) -> TokenStream {
        if self.0.is_multiple_of(1_000) {
            let seconds = proc_macro2::Literal::u64_unsuffixed(self.0 / 1_000);
            quote!(_milestone::Duration::from_secs(#seconds))
        } else {
            let millis = proc_macro2::Literal::u64_unsuffixed(self.0);
            quote!(_milestone::Duration::from_millis(#millis))
        }
    }
}

/// A duration as the value of an option.
pub(crate) fn duration(input: ParseStream<'_>) -> syn::Result<Millis> {
    match input.fork().parse::<Lit>() {
        Ok(Lit::Int(number)) => Err(syn::Error::new_spanned(
            number,
            "a duration is a text with a unit: `\"500ms\"`, `\"30s\"`, `\"5m\"`, `\"2h\"` or `\"1d\"`",
        )),
        _ => Millis::parse(&string(input)?),
    }
}

#[cfg(test)]
mod tests {
    use proc_macro2::Span;

    use super::*;

    fn parse(text: &str) -> Result<u64, String> {
        Millis::parse(&LitStr::new(text, Span::call_site()))
            .map(|millis| millis.0)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn every_unit() {
        let texts = ["7ms", "30s", "5 m", "2h", "1d"];
        assert_eq!(
            texts.map(|text| parse(text).unwrap()),
            [7, 30_000, 300_000, 7_200_000, 86_400_000]
        );
    }

    #[test]
    fn everything_else_says_what_is_accepted() {
        for text in ["30", "", "s", "1.5s", "-1s", "1m30s", "30 seconds"] {
            assert!(parse(text).unwrap_err().ends_with(ACCEPTED), "{text}");
        }
        assert!(
            parse("99999999999999999999d")
                .unwrap_err()
                .contains("too long")
        );
        assert!(parse("999999999999999d").unwrap_err().contains("too long"));
        assert!(parse("0s").unwrap_err().contains("nothing"));
    }
}
