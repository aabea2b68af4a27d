//! The wire, from both ends: real clients and raw sockets against a double of the engine.

mod admission;
mod clients;
mod fake;
mod hostile;
mod protocol;
mod raw;

pub(crate) fn fake_types() -> [aerostat_types::SqlType; 17] {
    fake::ALL_TYPES
}
