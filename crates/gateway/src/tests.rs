//! Tests of the wire from both ends: real clients and raw sockets against a fake engine.

mod admission;
mod clients;
mod fake;
mod hostile;
mod protocol;
mod raw;

pub(crate) fn fake_types() -> [aerostat_types::SqlType; 17] {
    fake::ALL_TYPES
}
