//! The macros of milestone: `#[action]`, `#[derive(Milestone)]` with `#[milestone(..)]`, and `milestone!`.
//!
//! Use them through `milestone-runtime`, which exports them. What each of them expands to stands in `docs/expansion.md`.

mod action;
mod duration;
mod errors;
mod graph;
mod milestone;
mod names;
mod options;
#[cfg(test)]
mod tests;

use proc_macro::TokenStream;

/// Makes an async function an action, which milestones can run.
///
/// The function stays as it is. Beside it stands an empty enum of the same name, which implements `Action`: it is what graphs and
/// `Output<..>` refer to. The function's name is the durable name of the action: stored milestones refer to it, so renaming the
/// function breaks those that run, unless `name = ".."` keeps the old one.
///
/// Arguments are `Params<T>`, `Output<action>`, `Option<Output<action>>`, `State<T>` and `Context`, in any order, and `&mut Tx` of a
/// transactional action. `Params` and `Tx` are recognised by those names, so import them under them. The function returns `Result<T, E>` or
/// nothing.
///
/// | option | what it says |
/// |---|---|
/// | `idempotent` | running it again does no harm: it runs at least once. Without it, at most once |
/// | `transactional` | it runs in a transaction of MongoDB, its `&mut Tx`: exactly once for what it writes there |
/// | `undo = refund` | the action that undoes this one; it must be idempotent or transactional |
/// | `verify = was_charged` | of a plain action: the one that tells whether an attempt in doubt took effect |
/// | `retry(max = 5, base = "1s", cap = "5m", factor = 2)` | attempts in all, first wait, longest wait, its growth; each may be left out |
/// | `timeout = "30s"` | how long one attempt may take |
/// | `queue = ".."` | the queue in which it waits |
/// | `concurrency = 4` | how many may run at once in one worker |
/// | `name = ".."` | the durable name |
/// | `crate = path` | where milestone-runtime is, if it was renamed |
///
/// Durations are a whole number with a unit: `ms`, `s`, `m`, `h`, `d`.
#[proc_macro_attribute]
pub fn action(options: TokenStream, item: TokenStream) -> TokenStream {
    action::expand(options.into(), &item.into()).into()
}

/// Makes a struct or an enum the parameters of a milestone, with the graph of actions that `#[milestone(..)]` holds.
///
/// ```text
/// graph := chain (";" chain)* ";"?
/// chain := step ("->" step)*
/// step  := [alias ":"] path | "(" chain ("," chain)* ")"
/// ```
///
/// What follows a group waits for all last actions of it. Several chains share actions by name, so any graph without a cycle can be
/// written. After the graph stand options, each behind a comma: `name = ".."`, the durable name of the type (its own name if it is left
/// out; stored milestones carry it, so renaming the type breaks those that run), and `crate = path`, where milestone-runtime is, if it
/// was renamed.
#[proc_macro_derive(Milestone, attributes(milestone))]
pub fn derive_milestone(item: TokenStream) -> TokenStream {
    milestone::derive::expand(item.into()).into()
}

/// What `milestone!` passes its crate and its graph to.
#[doc(hidden)]
#[proc_macro]
pub fn __definition(input: TokenStream) -> TokenStream {
    milestone::in_place::expand(input.into()).into()
}
