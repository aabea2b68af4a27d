//! References to outer queries that DataFusion would take for parts of a column.
//!
//! `SELECT … FROM department WHERE EXISTS (SELECT FROM employee WHERE employee.department =
//! department.id)`: no relation of the inner query is called `department`, so DataFusion looks for
//! a part `id` of its column `department`, and not in the outer query. A name of three parts cannot
//! begin with that column. So a relation of an outer query is named with the schema that it is
//! written with, or else with a schema that no relation has and that comparisons ignore. An output
//! of a query in FROM that is such a column gets the column's name as its alias.

use std::{
    collections::{HashMap, HashSet},
    ops::ControlFlow,
};

use aerostat_sql::{
    names::{OUTER_SCHEMA, folded},
    walk,
};
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, Insert, ObjectName, Query, SelectItem, SetExpr, Statement, TableFactor,
    TableObject, TableWithJoins, Visitor, VisitorMut,
};

/// Rewrites the subqueries of a statement as the module says. No later pass may depend on its
/// names.
pub(crate) fn rewrite(statement: &mut Statement) {
    let mut relations = Relations::default();
    relations.add_change(statement);
    let outermost = Scope {
        relations,
        sees_parent: false,
    };
    let mut scopes = Scopes {
        open: vec![outermost],
        apart: HashSet::new(),
    };
    // The visitor never breaks.
    let _ = walk::change(statement, &mut scopes);
    assert_eq!(scopes.open.len(), 1, "each query that was entered is left");
}

/// The queries around the visited node.
struct Scopes {
    /// From the outermost to the innermost.
    open: Vec<Scope>,
    /// Queries in FROM and WITH, which do not see the relations beside them, by their addresses.
    apart: HashSet<*const Query>,
}

struct Scope {
    relations: Relations,
    /// Whether the query can name the relations of the query around it.
    sees_parent: bool,
}

/// The relations in FROM by the names that columns use for them, each with its schema.
#[derive(Default)]
struct Relations(HashMap<String, Ident>);

impl Relations {
    /// Adds the relations of UPDATE, DELETE, MERGE and INSERT.
    fn add_change(&mut self, statement: &Statement) {
        struct Changed<'a> {
            relations: &'a mut Relations,
            queries: usize,
        }
        impl Visitor for Changed<'_> {
            type Break = ();

            fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
                self.queries += 1;
                ControlFlow::Continue(())
            }

            fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
                self.queries -= 1;
                ControlFlow::Continue(())
            }

            fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
                if self.queries == 0 {
                    self.relations.add(factor);
                }
                ControlFlow::Continue(())
            }
        }
        // A query's relations are added when the walk comes to it.
        if matches!(statement, Statement::Query(_)) {
            return;
        }
        if let Statement::Insert(Insert {
            table: TableObject::TableName(name),
            table_alias,
            ..
        }) = statement
        {
            let alias = table_alias.as_ref().map(|alias| &alias.alias);
            self.add_named(name, alias);
        }
        let mut changed = Changed {
            relations: self,
            queries: 0,
        };
        // The visitor never breaks.
        let _ = walk::look(statement, &mut changed);
    }

    /// Adds the relations of all branches of a query, or of a change behind WITH.
    fn add_body(&mut self, body: &SetExpr) {
        match body {
            SetExpr::Select(select) => select.from.iter().for_each(|table| self.add_joined(table)),
            SetExpr::SetOperation { left, right, .. } => {
                self.add_body(left);
                self.add_body(right);
            }
            SetExpr::Insert(change)
            | SetExpr::Update(change)
            | SetExpr::Delete(change)
            | SetExpr::Merge(change) => self.add_change(change),
            _ => {}
        }
    }

    fn add_joined(&mut self, table: &TableWithJoins) {
        walk::factors(table).for_each(|factor| self.add(factor));
    }

    fn add(&mut self, factor: &TableFactor) {
        match factor {
            TableFactor::Table { name, alias, .. } | TableFactor::Function { name, alias, .. } => {
                self.add_named(name, alias.as_ref().map(|alias| &alias.name));
            }
            TableFactor::NestedJoin {
                table_with_joins,
                alias: None,
            } => self.add_joined(table_with_joins),
            TableFactor::Derived { alias, .. }
            | TableFactor::TableFunction { alias, .. }
            | TableFactor::UNNEST { alias, .. }
            | TableFactor::NestedJoin { alias, .. } => {
                if let Some(alias) = alias {
                    self.0.insert(folded(&alias.name), no_schema());
                }
            }
            _ => {}
        }
    }

    fn add_named(&mut self, name: &ObjectName, alias: Option<&Ident>) {
        let parts: Option<Vec<&Ident>> = name.0.iter().map(|part| part.as_ident()).collect();
        let (name, schema) = match (alias, parts.as_deref()) {
            (Some(alias), _) => (alias, no_schema()),
            (None, Some(&[name])) => (name, no_schema()),
            (None, Some(&[schema, name])) => (name, schema.clone()),
            _ => return,
        };
        self.0.insert(folded(name), schema);
    }
}

/// The schema for relations that are written without one.
fn no_schema() -> Ident {
    Ident::with_quote('"', OUTER_SCHEMA)
}

impl Scopes {
    /// Gives outputs that are columns of outer queries their names, which DataFusion would change.
    fn name_outer(&self, body: &mut SetExpr) {
        match body {
            SetExpr::Select(select) => {
                for item in &mut select.projection {
                    if let SelectItem::UnnamedExpr(expr) = item
                        && let Expr::CompoundIdentifier(parts) = &*expr
                        && let [relation, column] = &parts[..]
                        && self.schema_of_outer(&folded(relation)).is_some()
                    {
                        let alias = Ident::with_quote('"', folded(column));
                        let expr = expr.clone();
                        *item = SelectItem::ExprWithAlias { expr, alias };
                    }
                }
            }
            SetExpr::SetOperation { left, right, .. } => {
                self.name_outer(left);
                self.name_outer(right);
            }
            _ => {}
        }
    }

    /// The schema to name a relation of an outer query with; `None` if the innermost query has a
    /// relation of that name.
    fn schema_of_outer(&self, name: &str) -> Option<Ident> {
        let mut scopes = self.open.iter().rev();
        let mut inner = scopes.next()?;
        if inner.relations.0.contains_key(name) {
            return None;
        }
        for scope in scopes {
            let seen = inner.sees_parent.then(|| scope.relations.0.get(name));
            if let Some(schema) = seen.flatten() {
                return Some(schema.clone());
            }
            inner = scope;
        }
        None
    }
}

impl VisitorMut for Scopes {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let mut relations = Relations::default();
        relations.add_body(&query.body);
        let sees_parent = !self.apart.contains(&std::ptr::from_ref(query));
        self.open.push(Scope {
            relations,
            sees_parent,
        });
        // With an alias, ORDER BY would take the name for a column of this query's own.
        if !sees_parent && query.order_by.is_none() {
            self.name_outer(&mut query.body);
        }
        let named = query.with.iter().flat_map(|with| &with.cte_tables);
        self.apart
            .extend(named.map(|named| std::ptr::from_ref(&*named.query)));
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.open.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Derived {
            lateral: false,
            subquery,
            ..
        } = factor
        {
            self.apart.insert(std::ptr::from_ref(&**subquery));
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        if let Expr::CompoundIdentifier(parts) = expression
            && let [relation, _] = &parts[..]
            && let Some(schema) = self.schema_of_outer(&folded(relation))
        {
            parts.insert(0, schema);
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::{dialect::PostgreSqlDialect, parser::Parser};

    use super::*;

    #[test]
    fn only_relations_of_outer_queries_have_a_schema() {
        for (sql, expected) in [
            ("SELECT a.x FROM a", "SELECT a.x FROM a"),
            (
                "SELECT a.x FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.a = a.x)",
                "SELECT a.x FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.a = \"-\".a.x)",
            ),
            (
                "SELECT 1 FROM s.a AS A, LATERAL (SELECT A.x, c.y FROM b) AS c WHERE c.x > 0",
                "SELECT 1 FROM s.a AS A, LATERAL (SELECT \"-\".A.x, \"-\".c.y FROM b) AS c WHERE c.x > 0",
            ),
            (
                "SELECT 1 FROM s.a WHERE x = (SELECT (SELECT a.x + b.y FROM a AS c) FROM b)",
                "SELECT 1 FROM s.a WHERE x = (SELECT (SELECT s.a.x + \"-\".b.y FROM a AS c) FROM b)",
            ),
            (
                "SELECT (SELECT s.x FROM (SELECT a.x FROM b) AS s) FROM a",
                "SELECT (SELECT s.x FROM (SELECT \"-\".a.x AS \"x\" FROM b) AS s) FROM a",
            ),
            (
                "SELECT 1 FROM a, (SELECT a.x FROM b) AS s WHERE EXISTS (WITH w AS (SELECT a.x + c.y FROM b) SELECT a.x FROM c)",
                "SELECT 1 FROM a, (SELECT a.x FROM b) AS s WHERE EXISTS (WITH w AS (SELECT \"-\".a.x + c.y FROM b) SELECT \"-\".a.x FROM c)",
            ),
            (
                "SELECT 1 FROM a WHERE EXISTS (SELECT a.x FROM b JOIN (c CROSS JOIN a) ON true)",
                "SELECT 1 FROM a WHERE EXISTS (SELECT a.x FROM b JOIN (c CROSS JOIN a) ON true)",
            ),
            (
                "DELETE FROM a USING b WHERE a.x = b.x AND NOT EXISTS (SELECT 1 FROM c WHERE c.a = a.x OR b.y)",
                "DELETE FROM a USING b WHERE a.x = b.x AND NOT EXISTS (SELECT 1 FROM c WHERE c.a = \"-\".a.x OR \"-\".b.y)",
            ),
            (
                "WITH w AS (SELECT 1) INSERT INTO a VALUES (1) ON CONFLICT (x) DO UPDATE SET y = (SELECT max(b.a) FROM b WHERE b.x = a.x)",
                "WITH w AS (SELECT 1) INSERT INTO a VALUES (1) ON CONFLICT(x) DO UPDATE SET y = (SELECT max(b.a) FROM b WHERE b.x = \"-\".a.x)",
            ),
            (
                "UPDATE a SET y = (SELECT b.y FROM c WHERE c.y = a.y) FROM b",
                "UPDATE a SET y = (SELECT \"-\".b.y FROM c WHERE c.y = \"-\".a.y) FROM b",
            ),
            (
                "INSERT INTO a VALUES (1) ON CONFLICT (x) DO UPDATE SET y = (SELECT max(b.a) FROM b WHERE b.x = a.x)",
                "INSERT INTO a VALUES (1) ON CONFLICT(x) DO UPDATE SET y = (SELECT max(b.a) FROM b WHERE b.x = \"-\".a.x)",
            ),
        ] {
            let mut statements = Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap();
            rewrite(&mut statements[0]);
            assert_eq!(
                statements[0].to_string().replace(OUTER_SCHEMA, "-"),
                expected
            );
        }
    }
}
