//! The planner on instances that are made from seeds, on text 001's, and on small ones by hand.

pub(crate) mod generate;
mod incremental;
mod layouts;
mod mirrored;
mod odd;
mod properties;
