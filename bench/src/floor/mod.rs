//! The floors: the writes that the runtime makes for a milestone, made by the raw driver and by SQLite, with nothing around them.

mod mongodb;
mod sqlite;
mod template;

pub(crate) use self::{
    mongodb::Raw,
    sqlite::{Embedded, Rows},
    template::{Template, Writes},
};
