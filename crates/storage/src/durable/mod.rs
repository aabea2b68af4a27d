//! A tenant on disk as a whole: checkpoints, recovery from them and the log, repair, backups.
//!
//! ```text
//!  checkpoint ─► image, ended ─► manifest                   files: log
//!                         │                     │               │
//!  recover ◄──────────────┴── load ◄────────────┴── replay ◄────┘   surplus: a file too many
//!  cut_back   a copy's log without what its leader's has not
//!  backup     a checkpoint copied; a tenant made of it and of archived log
//!  seed       a checkpoint and its log on their way to another node, and there
//!  repair     a copy without what is damaged
//! ```
//!
//! The room uses `files` for the formats, `read` for what a snapshot sees, and `write` for
//! filling tables. `forge` damages files for tests.

pub mod backup;
pub(crate) mod checkpoint;
pub(crate) mod cut_back;
mod ended;
#[doc(hidden)]
pub mod forge;
mod image;
mod load;
pub(crate) mod recover;
pub mod repair;
mod replay;
pub mod seed;
mod surplus;
