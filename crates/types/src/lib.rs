//! The vocabulary that every other crate uses: typed ids, byte quantities, SQL types and their
//! physical form, schemas, layouts, the kinds of error a user can meet, time zones, and clocks.
//!
//! Nothing here does I/O, allocates memory for data, or knows how anything is stored. One concept
//! has one word; `docs/glossary.md` lists them.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

mod bytes;
mod clock;
mod copy;
mod durability;
mod encoding;
mod error;
mod id;
mod keyword;
mod layout;
mod notice;
mod out_of_memory;
mod schema;
mod sql_type;
mod sqlstate;
pub mod text;
mod zone;

pub use bytes::{ByteSize, ParseByteSizeError};
pub use clock::{Clock, SystemClock};
pub use copy::{CopyFormat, CopyHeader, CopyOptions, ForceQuote};
pub use durability::Durability;
pub use encoding::{Charset, Encoding, Named, encoding_names};
pub use error::{ErrorKind, SqlError};
pub use id::{
    CommitTs, ConstraintId, Epoch, IndexId, NodeId, RelationId, RoleId, SchemaId, SegmentNo,
    TableId, TenantId, TxnId,
};
pub use keyword::{
    Keyword, KeywordCategory, keyword_category, keywords, may_name_column, quote_ident,
};
pub use layout::{Layout, LayoutError};
pub use notice::{Notice, NoticeSeverity};
pub use out_of_memory::OutOfMemory;
pub use schema::{CheckConstraint, Column, IndexKind, TableIndex, TableSchema};
pub use sql_type::{
    ITEM_TYPE_KEY, NUMERIC_DEFAULT, Physical, SQL_TYPE_KEY, SqlType, VALUE_BYTES_MAX,
};
pub use zone::{Zone, ZoneName};
