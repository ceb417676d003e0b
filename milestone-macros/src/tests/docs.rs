//! `docs/expansion.md` shows what the macros really give: its blocks stand in pairs, what is written and what comes of it.
//! `BLESS=1` writes the second ones.

use std::{fs, path::Path};

use quote::ToTokens;
use syn::{Attribute, Item, Meta, Stmt};

use super::{action, derive, milestone, without_first};

#[test]
fn the_docs_show_what_the_macros_give() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/expansion.md");
    let text = fs::read_to_string(&path).unwrap();
    // Every second part is the inside of a block.
    let parts: Vec<&str> = text.split("```").collect();
    let blocks: Vec<(usize, &str)> = parts
        .iter()
        .enumerate()
        .filter_map(|(index, part)| Some((index, part.strip_prefix("rust\n")?)))
        .collect();
    assert!(
        blocks.len() >= 8 && blocks.len().is_multiple_of(2),
        "pairs of blocks"
    );
    let mut new: Vec<String> = parts.iter().map(ToString::to_string).collect();
    for pair in blocks.chunks(2) {
        let given = expand(pair[0].1);
        new[pair[1].0] = format!("rust\n{given}");
    }
    let new = new.join("```");
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, new).unwrap();
        return;
    }
    assert!(
        text == new,
        "run this test with BLESS=1, and look at the difference"
    );
}

fn expand(written: &str) -> String {
    if let Ok(Stmt::Macro(call)) = syn::parse_str(written) {
        return milestone(&call.mac.tokens.to_string());
    }
    match syn::parse_str(written).unwrap() {
        Item::Fn(mut item) => {
            let options = match take(&mut item.attrs, "action").meta {
                Meta::List(list) => list.tokens.to_string(),
                _ => String::new(),
            };
            without_first(&action(&options, &item.to_token_stream().to_string()))
        }
        Item::Struct(mut item) => {
            take(&mut item.attrs, "derive");
            derive(&item.to_token_stream().to_string())
        }
        _ => panic!("a function, a struct or `milestone!`"),
    }
}

fn take(attributes: &mut Vec<Attribute>, name: &str) -> Attribute {
    let place = attributes
        .iter()
        .position(|attribute| attribute.path().is_ident(name))
        .unwrap();
    attributes.remove(place)
}
