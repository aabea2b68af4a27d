//! stub
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

pub(crate) use aerostat_query::api;
mod backend;
mod copy;
mod limits;
mod sqlstate;
mod value;
mod wire;
