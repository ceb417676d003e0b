//! What went wrong in other job systems in production, as tests: the name of each begins with the number of its case.

#![expect(clippy::unwrap_used, reason = "a test ends where something fails")]

mod documents;
mod duplicates;
mod growth;
mod hints;
mod housekeeping;
mod idle;
mod leases;
mod load;
mod saga;
mod shutdown;
mod support;
mod values;
mod waiting;
