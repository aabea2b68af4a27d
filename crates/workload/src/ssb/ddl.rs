//! Table definitions: the specification's columns in PostgreSQL types. Fixed text
//! of size n is `char(n)`, variable text `varchar(n)`, all else `integer`.

use super::Table;

/// A column's name and SQL type.
pub type Column = (&'static str, &'static str);

const LINEORDER: &[Column] = &[
    ("lo_orderkey", "integer"),
    ("lo_linenumber", "integer"),
    ("lo_custkey", "integer"),
    ("lo_partkey", "integer"),
    ("lo_suppkey", "integer"),
    ("lo_orderdate", "integer"),
    ("lo_orderpriority", "char(15)"),
    ("lo_shippriority", "char(1)"),
    ("lo_quantity", "integer"),
    ("lo_extendedprice", "integer"),
    ("lo_ordtotalprice", "integer"),
    ("lo_discount", "integer"),
    ("lo_revenue", "integer"),
    ("lo_supplycost", "integer"),
    ("lo_tax", "integer"),
    ("lo_commitdate", "integer"),
    ("lo_shipmode", "char(10)"),
];

const CUSTOMER: &[Column] = &[
    ("c_custkey", "integer"),
    ("c_name", "varchar(25)"),
    ("c_address", "varchar(25)"),
    ("c_city", "char(10)"),
    ("c_nation", "char(15)"),
    ("c_region", "char(12)"),
    ("c_phone", "char(15)"),
    ("c_mktsegment", "char(10)"),
];

const SUPPLIER: &[Column] = &[
    ("s_suppkey", "integer"),
    ("s_name", "char(25)"),
    ("s_address", "varchar(25)"),
    ("s_city", "char(10)"),
    ("s_nation", "char(15)"),
    ("s_region", "char(12)"),
    ("s_phone", "char(15)"),
];

const PART: &[Column] = &[
    ("p_partkey", "integer"),
    ("p_name", "varchar(22)"),
    ("p_mfgr", "char(6)"),
    ("p_category", "char(7)"),
    ("p_brand1", "char(9)"),
    ("p_color", "varchar(11)"),
    ("p_type", "varchar(25)"),
    ("p_size", "integer"),
    ("p_container", "char(10)"),
];

const DATES: &[Column] = &[
    ("d_datekey", "integer"),
    ("d_date", "char(18)"),
    ("d_dayofweek", "char(9)"),
    ("d_month", "char(9)"),
    ("d_year", "integer"),
    ("d_yearmonthnum", "integer"),
    ("d_yearmonth", "char(7)"),
    ("d_daynuminweek", "integer"),
    ("d_daynuminmonth", "integer"),
    ("d_daynuminyear", "integer"),
    ("d_monthnuminyear", "integer"),
    ("d_weeknuminyear", "integer"),
    ("d_sellingseason", "varchar(12)"),
    ("d_lastdayinweekfl", "integer"),
    ("d_lastdayinmonthfl", "integer"),
    ("d_holidayfl", "integer"),
    ("d_weekdayfl", "integer"),
];

/// The table's columns, in order.
pub fn columns(table: Table) -> &'static [Column] {
    match table {
        Table::Lineorder => LINEORDER,
        Table::Customer => CUSTOMER,
        Table::Supplier => SUPPLIER,
        Table::Part => PART,
        Table::Dates => DATES,
    }
}

/// The columns of the table's primary key.
pub fn primary_key(table: Table) -> &'static [&'static str] {
    match table {
        Table::Lineorder => &["lo_orderkey", "lo_linenumber"],
        Table::Customer => &["c_custkey"],
        Table::Supplier => &["s_suppkey"],
        Table::Part => &["p_partkey"],
        Table::Dates => &["d_datekey"],
    }
}

/// The `CREATE TABLE` statement; `layout`, where given, becomes
/// `WITH (layout = '…')`, which PostgreSQL itself does not know.
pub fn create_table(table: Table, layout: Option<&str>) -> String {
    crate::dataset::create_table(table.name(), columns(table), primary_key(table), layout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_has_the_specified_number_of_columns() {
        let counts = Table::ALL.map(|table| columns(table).len());
        assert_eq!(counts, [17, 8, 7, 9, 17]);
        for table in Table::ALL {
            for key in primary_key(table) {
                assert!(columns(table).iter().any(|(name, _)| name == key));
            }
        }
    }

    #[test]
    fn layout_is_quoted_and_optional() {
        let plain = create_table(Table::Supplier, None);
        assert!(plain.starts_with("CREATE TABLE supplier (\n    s_suppkey integer NOT NULL,"));
        assert!(plain.ends_with("PRIMARY KEY (s_suppkey)\n)"));
        let laid_out = create_table(Table::Lineorder, Some("it's"));
        assert!(
            laid_out
                .ends_with("PRIMARY KEY (lo_orderkey, lo_linenumber)\n) WITH (layout = 'it''s')")
        );
    }
}
