//! Sessions of an engine. One program, for each that is linked with the whole engine takes half a minute to build; what counts
//! a process's memory has one of its own (`heap`).

#![allow(clippy::unwrap_used, clippy::panic)]

mod advisory;
mod alter;
#[path = "../common/mod.rs"]
mod common;
mod constants;
mod deferrable;
mod fast;
mod in_line;
mod merge;
mod moving;
mod physical_plans;
mod plan_cache;
mod run_time_filters;
mod sequences;
mod settings;
mod standby;
mod star;
mod statements;
mod temporary;
mod tenants;
mod transactions;
mod turns;
