//! Numbers (OIDs) that PostgreSQL's tools know or that the catalogue derives.

/// `pg_am.oid` of tables and of key indexes, as in PostgreSQL.
pub(crate) const HEAP: u32 = 2;
pub(crate) const BTREE: u32 = 403;
pub(crate) const HASH: u32 = 405;

/// `pg_class.oid` of catalogues that comments refer to.
pub(crate) const PG_CLASS: u32 = 1259;
pub(crate) const PG_PROC: u32 = 1255;
pub(crate) const PG_NAMESPACE: u32 = 2615;
pub(crate) const PG_TYPE: u32 = 1247;
pub(crate) const PG_CONSTRAINT: u32 = 2606;
pub(crate) const PG_DATABASE: u32 = 1262;
pub(crate) const PG_AUTHID: u32 = 1260;

/// `pg_class.oid` of `pg_extension`.
pub(crate) const PG_EXTENSION: u32 = 3079;

/// The number of the extension: one of those that nothing a user makes has.
pub(crate) const EXTENSION_OID: u32 = 13_002;

pub(crate) const EXTENSION_COMMENT: &str = "system views of Aerostat";

/// A number for what has none of its own in the catalogue: the `at`-th default or
/// check of a table. Unique within its system relation as long as table numbers
/// stay below 2^21; they lie apart from the numbers that are given out.
pub(crate) fn derived_oid(table: u32, at: usize) -> u32 {
    0x8000_0000 | (table.wrapping_mul(1_024).wrapping_add(at as u32) & 0x7fff_ffff)
}
