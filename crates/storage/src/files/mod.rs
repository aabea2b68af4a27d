//! The files of a tenant: the commit log, the manifest of its checkpoints, and what all data on
//! disk has in common.
//!
//! ```text
//!  log ───── group commit, records, redo          manifest ─── which images a checkpoint has
//!   │                                                │
//!   └──► archive   where complete files go           └──► log, origin
//!        codec     rows as bytes
//!        pins      images that stay for copies that are made of them
//!        origin    whose history a file belongs to
//!        private   folders that only the owner reads
//!        replace   a folder in the place of another
//!        disk      what all of this asks of a disk
//!        formats   which of them a build reads and writes
//!        damage    why files cannot be used           fault   where a test has the process die
//! ```
//!
//! The room knows no table: a record is bytes of rows, a manifest is descriptions. Of the crate
//! it uses only `error`. `durable` decides when files are written and read as a whole.

pub(crate) mod archive;
pub(crate) mod codec;
pub(crate) mod damage;
pub(crate) mod disk;
pub(crate) mod fault;
pub(crate) mod formats;
pub(crate) mod last_checkpoint;
pub(crate) mod log;
pub(crate) mod manifest;
pub(crate) mod origin;
pub(crate) mod pins;
pub(crate) mod private;
pub(crate) mod replace;
pub(crate) mod side_by_side;
