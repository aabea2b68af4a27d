//! The 22 queries of TPC-H in PostgreSQL's dialect, with the substitution
//! parameters of the specification's query validation (clauses 2.4.x.3).
//!
//! Row limits are the specification's ("the first 100 rows") as LIMIT. Q15 is its
//! approved variant A, a common table expression in place of a view, so that each
//! query is one statement.

use crate::scale::Scale;

/// One query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Query {
    /// Name, `Q1` to `Q22`.
    pub id: &'static str,
    /// The ORDER BY clause, as result columns.
    pub order_by: &'static [usize],
    template: &'static str,
}

impl Query {
    /// The SQL text, without a semicolon. Only Q11 depends on the scale: its
    /// threshold is 0.0001 / SF.
    pub fn sql(&self, scale: Scale) -> String {
        // Ten decimals show 0.0001 / 300 with four digits.
        let fraction = format!("{:.10}", 0.0001 / scale.factor());
        self.template.trim_end().replace(":fraction", &fraction)
    }
}

/// Looks a query up by its id.
pub fn by_id(id: &str) -> Option<&'static Query> {
    QUERIES.iter().find(|query| query.id == id)
}

macro_rules! query {
    ($id:literal, $file:literal, $order_by:expr) => {
        Query {
            id: $id,
            order_by: &$order_by,
            template: include_str!(concat!("queries/", $file, ".sql")),
        }
    };
}

/// The queries in the specification's order.
pub const QUERIES: [Query; 22] = [
    query!("Q1", "q01", [0, 1]),
    query!("Q2", "q02", [0, 2, 1, 3]),
    query!("Q3", "q03", [1, 2]),
    query!("Q4", "q04", [0]),
    query!("Q5", "q05", [1]),
    query!("Q6", "q06", []),
    query!("Q7", "q07", [0, 1, 2]),
    query!("Q8", "q08", [0]),
    query!("Q9", "q09", [0, 1]),
    query!("Q10", "q10", [2]),
    query!("Q11", "q11", [1]),
    query!("Q12", "q12", [0]),
    query!("Q13", "q13", [1, 0]),
    query!("Q14", "q14", []),
    query!("Q15", "q15", [0]),
    query!("Q16", "q16", [3, 0, 1, 2]),
    query!("Q17", "q17", []),
    query!("Q18", "q18", [4, 3]),
    query!("Q19", "q19", []),
    query!("Q20", "q20", [0]),
    query!("Q21", "q21", [1, 0]),
    query!("Q22", "q22", [0]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_complete_single_statements() {
        let scale = Scale::new(0.1).unwrap();
        for (at, query) in QUERIES.iter().enumerate() {
            assert_eq!(query.id, format!("Q{}", at + 1));
            let sql = query.sql(scale);
            assert!(sql.starts_with("select") || sql.starts_with("with"));
            assert!(!sql.contains([';', ':']), "{}", query.id);
            assert_eq!(sql.matches('(').count(), sql.matches(')').count());
            // Where the outermost ORDER BY has more or fewer parts than we say.
            let tail = sql.rsplit("order by").next().unwrap();
            let parts = tail.split("limit").next().unwrap().split(',').count();
            let named = if sql.contains("order by") { parts } else { 0 };
            assert_eq!(query.order_by.len(), named, "{}", query.id);
        }
        assert!(by_id("Q11").unwrap().sql(scale).contains("0.0010000000"));
        assert_eq!(by_id("Q23"), None);
    }
}
