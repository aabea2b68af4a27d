//! Nothing but a list of dependencies: see `Cargo.toml`.
#![forbid(unsafe_code)]
