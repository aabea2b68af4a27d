//! Rewriting segments while they are in use: freezing, reshaping, vacuum.
//!
//! ```text
//!  freeze, reshape, vacuum
//!     │ no latch held
//!     ├─► chosen    which rows of a unit, in what order   ─► made   frozen segments of them
//!     ├─► tail      rows that are too new, copied to hot segments
//!     │ latches
//!     ├─► carry     ends that came meanwhile
//!     └─► the directory is switched; old segments say where rows went
//!  working          who pays for the memory in between
//!  way              freezing and a checkpoint at once, for a load that memory is too short for
//! ```
//!
//! `redefine` and `indexes` reshape a table for another definition, or another index. The room
//! uses `write` (room for rows, what transactions wrote) and `store`. It changes no row, so
//! nothing of it is logged.

mod carry;
mod chosen;
pub(crate) mod freeze;
mod indexes;
mod made;
mod redefine;
pub(crate) mod reshape;
mod tail;
mod vacuum;
mod way;
mod working;
