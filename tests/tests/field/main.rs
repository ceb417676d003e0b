//! What went wrong in other job systems in production, as tests: the name of each begins with the number of its case.

#![expect(clippy::unwrap_used, reason = "a test ends where something fails")]

mod duplicates;
mod leases;
mod support;
mod values;
