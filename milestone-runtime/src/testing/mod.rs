//! For whoever writes a store: what it must keep, as checks that run. Behind the feature `testing`.

pub mod conformance;
