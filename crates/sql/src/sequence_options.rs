//! The options of a sequence in CREATE and ALTER SEQUENCE and in identities of columns.

use aerostat_types::SqlType;

/// What a statement says of a sequence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// AS.
    pub ty: Option<SqlType>,
    /// INCREMENT.
    pub increment: Option<i64>,
    /// MINVALUE; `Some(None)` for NO MINVALUE.
    pub min: Option<Option<i64>>,
    /// MAXVALUE; `Some(None)` for NO MAXVALUE.
    pub max: Option<Option<i64>>,
    /// START.
    pub start: Option<i64>,
    /// RESTART; `Some(None)` at the start.
    pub restart: Option<Option<i64>>,
    /// CACHE.
    pub cache: Option<i64>,
    /// CYCLE or NO CYCLE.
    pub cycles: Option<bool>,
}
