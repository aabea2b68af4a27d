//! The thirteen queries in four flights, in the conventional formulation: joins in
//! the WHERE clause, the specification's ORDER BY and nothing beyond it.
//!
//! Q1 restricts by one dimension, Q2 by two, Q3 by three and Q4 by four; within a
//! flight the queries select ever fewer lines. Q2.3 asks for `MFGR#2239`; texts of
//! the benchmark in circulation differ in that constant, not in what it selects.

/// One query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Query {
    /// Name, such as `Q2.3`.
    pub id: &'static str,
    /// Flight, 1..=4.
    pub flight: u8,
    /// The SQL text, without a semicolon.
    pub sql: &'static str,
    /// What the result's columns hold.
    pub columns: &'static [Kind],
    /// The ORDER BY clause, as result columns.
    pub order_by: &'static [(usize, Direction)],
}

/// What a result column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An integer of any width.
    Int,
    /// Text, `char(n)` or not.
    Text,
}

/// A direction of ORDER BY.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// ASC.
    Ascending,
    /// DESC.
    Descending,
}

use Direction::{Ascending, Descending};
use Kind::{Int, Text};

/// ORDER BY of flight 2: year, brand (columns 1 and 2).
const BY_YEAR_BRAND: &[(usize, Direction)] = &[(1, Ascending), (2, Ascending)];

/// ORDER BY of flight 3: year, revenue descending (columns 2 and 3).
const BY_YEAR_REVENUE: &[(usize, Direction)] = &[(2, Ascending), (3, Descending)];

/// ORDER BY of Q4.2 and Q4.3: the three grouping columns.
const BY_GROUP: &[(usize, Direction)] = &[(0, Ascending), (1, Ascending), (2, Ascending)];

/// Looks a query up by its id.
pub fn by_id(id: &str) -> Option<&'static Query> {
    QUERIES.iter().find(|query| query.id == id)
}

/// The queries in the specification's order.
pub const QUERIES: [Query; 13] = [
    Query {
        id: "Q1.1",
        flight: 1,
        sql: r"select sum(lo_extendedprice * lo_discount) as revenue
from lineorder, dates
where lo_orderdate = d_datekey
  and d_year = 1993
  and lo_discount between 1 and 3
  and lo_quantity < 25",
        columns: &[Int],
        order_by: &[],
    },
    Query {
        id: "Q1.2",
        flight: 1,
        sql: r"select sum(lo_extendedprice * lo_discount) as revenue
from lineorder, dates
where lo_orderdate = d_datekey
  and d_yearmonthnum = 199401
  and lo_discount between 4 and 6
  and lo_quantity between 26 and 35",
        columns: &[Int],
        order_by: &[],
    },
    Query {
        id: "Q1.3",
        flight: 1,
        sql: r"select sum(lo_extendedprice * lo_discount) as revenue
from lineorder, dates
where lo_orderdate = d_datekey
  and d_weeknuminyear = 6
  and d_year = 1994
  and lo_discount between 5 and 7
  and lo_quantity between 26 and 35",
        columns: &[Int],
        order_by: &[],
    },
    Query {
        id: "Q2.1",
        flight: 2,
        sql: r"select sum(lo_revenue), d_year, p_brand1
from lineorder, dates, part, supplier
where lo_orderdate = d_datekey
  and lo_partkey = p_partkey
  and lo_suppkey = s_suppkey
  and p_category = 'MFGR#12'
  and s_region = 'AMERICA'
group by d_year, p_brand1
order by d_year, p_brand1",
        columns: &[Int, Int, Text],
        order_by: BY_YEAR_BRAND,
    },
    Query {
        id: "Q2.2",
        flight: 2,
        sql: r"select sum(lo_revenue), d_year, p_brand1
from lineorder, dates, part, supplier
where lo_orderdate = d_datekey
  and lo_partkey = p_partkey
  and lo_suppkey = s_suppkey
  and p_brand1 between 'MFGR#2221' and 'MFGR#2228'
  and s_region = 'ASIA'
group by d_year, p_brand1
order by d_year, p_brand1",
        columns: &[Int, Int, Text],
        order_by: BY_YEAR_BRAND,
    },
    Query {
        id: "Q2.3",
        flight: 2,
        sql: r"select sum(lo_revenue), d_year, p_brand1
from lineorder, dates, part, supplier
where lo_orderdate = d_datekey
  and lo_partkey = p_partkey
  and lo_suppkey = s_suppkey
  and p_brand1 = 'MFGR#2239'
  and s_region = 'EUROPE'
group by d_year, p_brand1
order by d_year, p_brand1",
        columns: &[Int, Int, Text],
        order_by: BY_YEAR_BRAND,
    },
    Query {
        id: "Q3.1",
        flight: 3,
        sql: r"select c_nation, s_nation, d_year, sum(lo_revenue) as revenue
from customer, lineorder, supplier, dates
where lo_custkey = c_custkey
  and lo_suppkey = s_suppkey
  and lo_orderdate = d_datekey
  and c_region = 'ASIA'
  and s_region = 'ASIA'
  and d_year >= 1992
  and d_year <= 1997
group by c_nation, s_nation, d_year
order by d_year asc, revenue desc",
        columns: &[Text, Text, Int, Int],
        order_by: BY_YEAR_REVENUE,
    },
    Query {
        id: "Q3.2",
        flight: 3,
        sql: r"select c_city, s_city, d_year, sum(lo_revenue) as revenue
from customer, lineorder, supplier, dates
where lo_custkey = c_custkey
  and lo_suppkey = s_suppkey
  and lo_orderdate = d_datekey
  and c_nation = 'UNITED STATES'
  and s_nation = 'UNITED STATES'
  and d_year >= 1992
  and d_year <= 1997
group by c_city, s_city, d_year
order by d_year asc, revenue desc",
        columns: &[Text, Text, Int, Int],
        order_by: BY_YEAR_REVENUE,
    },
    Query {
        id: "Q3.3",
        flight: 3,
        sql: r"select c_city, s_city, d_year, sum(lo_revenue) as revenue
from customer, lineorder, supplier, dates
where lo_custkey = c_custkey
  and lo_suppkey = s_suppkey
  and lo_orderdate = d_datekey
  and (c_city = 'UNITED KI1' or c_city = 'UNITED KI5')
  and (s_city = 'UNITED KI1' or s_city = 'UNITED KI5')
  and d_year >= 1992
  and d_year <= 1997
group by c_city, s_city, d_year
order by d_year asc, revenue desc",
        columns: &[Text, Text, Int, Int],
        order_by: BY_YEAR_REVENUE,
    },
    Query {
        id: "Q3.4",
        flight: 3,
        sql: r"select c_city, s_city, d_year, sum(lo_revenue) as revenue
from customer, lineorder, supplier, dates
where lo_custkey = c_custkey
  and lo_suppkey = s_suppkey
  and lo_orderdate = d_datekey
  and (c_city = 'UNITED KI1' or c_city = 'UNITED KI5')
  and (s_city = 'UNITED KI1' or s_city = 'UNITED KI5')
  and d_yearmonth = 'Dec1997'
group by c_city, s_city, d_year
order by d_year asc, revenue desc",
        columns: &[Text, Text, Int, Int],
        order_by: BY_YEAR_REVENUE,
    },
    Query {
        id: "Q4.1",
        flight: 4,
        sql: r"select d_year, c_nation, sum(lo_revenue - lo_supplycost) as profit
from dates, customer, supplier, part, lineorder
where lo_custkey = c_custkey
  and lo_suppkey = s_suppkey
  and lo_partkey = p_partkey
  and lo_orderdate = d_datekey
  and c_region = 'AMERICA'
  and s_region = 'AMERICA'
  and (p_mfgr = 'MFGR#1' or p_mfgr = 'MFGR#2')
group by d_year, c_nation
order by d_year, c_nation",
        columns: &[Int, Text, Int],
        order_by: &[(0, Ascending), (1, Ascending)],
    },
    Query {
        id: "Q4.2",
        flight: 4,
        sql: r"select d_year, s_nation, p_category, sum(lo_revenue - lo_supplycost) as profit
from dates, customer, supplier, part, lineorder
where lo_custkey = c_custkey
  and lo_suppkey = s_suppkey
  and lo_partkey = p_partkey
  and lo_orderdate = d_datekey
  and c_region = 'AMERICA'
  and s_region = 'AMERICA'
  and (d_year = 1997 or d_year = 1998)
  and (p_mfgr = 'MFGR#1' or p_mfgr = 'MFGR#2')
group by d_year, s_nation, p_category
order by d_year, s_nation, p_category",
        columns: &[Int, Text, Text, Int],
        order_by: BY_GROUP,
    },
    Query {
        id: "Q4.3",
        flight: 4,
        sql: r"select d_year, s_city, p_brand1, sum(lo_revenue - lo_supplycost) as profit
from dates, customer, supplier, part, lineorder
where lo_custkey = c_custkey
  and lo_suppkey = s_suppkey
  and lo_partkey = p_partkey
  and lo_orderdate = d_datekey
  and c_region = 'AMERICA'
  and s_nation = 'UNITED STATES'
  and (d_year = 1997 or d_year = 1998)
  and p_category = 'MFGR#14'
group by d_year, s_city, p_brand1
order by d_year, s_city, p_brand1",
        columns: &[Int, Text, Text, Int],
        order_by: BY_GROUP,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thirteen_queries_in_four_flights() {
        let flights = QUERIES.map(|query| query.flight);
        assert_eq!(flights, [1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4]);
        for query in &QUERIES {
            assert_eq!(query.id[1..2], query.flight.to_string());
            assert!(!query.sql.contains(';'));
            assert_eq!(by_id(query.id), Some(query));
        }
        assert_eq!(by_id("Q5.1"), None);
    }

    #[test]
    fn declared_order_and_columns_agree_with_the_text() {
        for query in &QUERIES {
            let keys = query
                .sql
                .split_once("order by ")
                .map_or(0, |(_, keys)| keys.split(',').count());
            assert_eq!(query.order_by.len(), keys, "{}", query.id);
            let list = query.sql.split("\nfrom").next().unwrap();
            assert_eq!(query.columns.len(), list.split(',').count(), "{}", query.id);
        }
    }
}
