//! Table definitions in PostgreSQL types (TPC-H specification 1.4). Order keys
//! are `bigint`: the specification asks for more than 32 bits from SF 300 on.

use super::Table;

/// A column's name and SQL type.
pub type Column = (&'static str, &'static str);

const REGION: &[Column] = &[
    ("r_regionkey", "integer"),
    ("r_name", "char(25)"),
    ("r_comment", "varchar(152)"),
];

const NATION: &[Column] = &[
    ("n_nationkey", "integer"),
    ("n_name", "char(25)"),
    ("n_regionkey", "integer"),
    ("n_comment", "varchar(152)"),
];

const SUPPLIER: &[Column] = &[
    ("s_suppkey", "integer"),
    ("s_name", "char(25)"),
    ("s_address", "varchar(40)"),
    ("s_nationkey", "integer"),
    ("s_phone", "char(15)"),
    ("s_acctbal", "numeric(15,2)"),
    ("s_comment", "varchar(101)"),
];

const CUSTOMER: &[Column] = &[
    ("c_custkey", "integer"),
    ("c_name", "varchar(25)"),
    ("c_address", "varchar(40)"),
    ("c_nationkey", "integer"),
    ("c_phone", "char(15)"),
    ("c_acctbal", "numeric(15,2)"),
    ("c_mktsegment", "char(10)"),
    ("c_comment", "varchar(117)"),
];

const PART: &[Column] = &[
    ("p_partkey", "integer"),
    ("p_name", "varchar(55)"),
    ("p_mfgr", "char(25)"),
    ("p_brand", "char(10)"),
    ("p_type", "varchar(25)"),
    ("p_size", "integer"),
    ("p_container", "char(10)"),
    ("p_retailprice", "numeric(15,2)"),
    ("p_comment", "varchar(23)"),
];

const PARTSUPP: &[Column] = &[
    ("ps_partkey", "integer"),
    ("ps_suppkey", "integer"),
    ("ps_availqty", "integer"),
    ("ps_supplycost", "numeric(15,2)"),
    ("ps_comment", "varchar(199)"),
];

const ORDERS: &[Column] = &[
    ("o_orderkey", "bigint"),
    ("o_custkey", "integer"),
    ("o_orderstatus", "char(1)"),
    ("o_totalprice", "numeric(15,2)"),
    ("o_orderdate", "date"),
    ("o_orderpriority", "char(15)"),
    ("o_clerk", "char(15)"),
    ("o_shippriority", "integer"),
    ("o_comment", "varchar(79)"),
];

const LINEITEM: &[Column] = &[
    ("l_orderkey", "bigint"),
    ("l_partkey", "integer"),
    ("l_suppkey", "integer"),
    ("l_linenumber", "integer"),
    ("l_quantity", "numeric(15,2)"),
    ("l_extendedprice", "numeric(15,2)"),
    ("l_discount", "numeric(15,2)"),
    ("l_tax", "numeric(15,2)"),
    ("l_returnflag", "char(1)"),
    ("l_linestatus", "char(1)"),
    ("l_shipdate", "date"),
    ("l_commitdate", "date"),
    ("l_receiptdate", "date"),
    ("l_shipinstruct", "char(25)"),
    ("l_shipmode", "char(10)"),
    ("l_comment", "varchar(44)"),
];

/// The table's columns, in order.
pub fn columns(table: Table) -> &'static [Column] {
    match table {
        Table::Region => REGION,
        Table::Nation => NATION,
        Table::Supplier => SUPPLIER,
        Table::Customer => CUSTOMER,
        Table::Part => PART,
        Table::Partsupp => PARTSUPP,
        Table::Orders => ORDERS,
        Table::Lineitem => LINEITEM,
    }
}

/// The columns of the table's primary key.
pub fn primary_key(table: Table) -> &'static [&'static str] {
    match table {
        Table::Region => &["r_regionkey"],
        Table::Nation => &["n_nationkey"],
        Table::Supplier => &["s_suppkey"],
        Table::Customer => &["c_custkey"],
        Table::Part => &["p_partkey"],
        Table::Partsupp => &["ps_partkey", "ps_suppkey"],
        Table::Orders => &["o_orderkey"],
        Table::Lineitem => &["l_orderkey", "l_linenumber"],
    }
}

/// The `CREATE TABLE` statement; `layout`, where given, becomes
/// `WITH (layout = '…')`, which PostgreSQL itself does not know.
pub fn create_table(table: Table, layout: Option<&str>) -> String {
    crate::dataset::create_table(table.name(), columns(table), primary_key(table), layout)
}
