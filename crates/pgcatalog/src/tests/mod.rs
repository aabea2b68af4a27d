//! The queries of real clients against a sample catalogue.

mod golden;
mod sample;

use std::{collections::HashSet, ops::ControlFlow, sync::Arc};

use aerostat_sql::walk;
use async_trait::async_trait;
use datafusion::{
    arrow::{datatypes::SchemaRef, record_batch::RecordBatch},
    catalog::{CatalogProvider, MemoryCatalogProvider, SchemaProvider, TableProvider},
    common::{DataFusionError, Result},
    prelude::{SessionConfig, SessionContext},
    sql::{
        parser::Statement,
        sqlparser::{ast, dialect::PostgreSqlDialect, parser::Parser},
    },
};

use super::{CatalogView, cell, oid_of_field};

/// One system schema over a view.
#[derive(Debug)]
struct SystemSchema {
    view: Shared,
    name: &'static str,
}

struct Shared(Arc<CatalogView>);

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CatalogView")
    }
}

#[async_trait]
impl SchemaProvider for SystemSchema {
    fn table_names(&self) -> Vec<String> {
        Vec::new()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        Ok(super::table(&self.view.0, self.name, name))
    }

    fn table_exist(&self, name: &str) -> bool {
        super::data::relation(self.name, name).is_some()
    }
}

/// Names outputs of a SELECT that are written alike. A planner wants names that differ, which
/// `query` gives to all outputs.
struct TellApart;

impl ast::VisitorMut for TellApart {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut ast::Select) -> ControlFlow<()> {
        let mut seen = HashSet::new();
        for (at, item) in select.projection.iter_mut().enumerate() {
            if let ast::SelectItem::UnnamedExpr(expr) = item
                && !seen.insert(expr.to_string())
            {
                let (expr, alias) = (expr.clone(), ast::Ident::new(format!("output{at}")));
                *item = ast::SelectItem::ExprWithAlias { expr, alias };
            }
        }
        ControlFlow::Continue(())
    }
}

/// What planning and running a query needs, as `role`.
struct Asker {
    view: Arc<CatalogView>,
    context: SessionContext,
}

/// A query's answer.
struct Answer {
    schema: SchemaRef,
    rows: Vec<Vec<Option<String>>>,
}

impl Asker {
    fn new(role: &str) -> Self {
        let view = Arc::new(sample::view(role));
        let config = SessionConfig::new()
            .with_default_catalog_and_schema("shop", "pg_catalog")
            .with_create_default_catalog_and_schema(false)
            .with_information_schema(false)
            .with_target_partitions(1);
        let context = SessionContext::new_with_config(config);
        let catalog = MemoryCatalogProvider::new();
        for name in ["pg_catalog", "information_schema", "aerostat"] {
            let schema = SystemSchema {
                view: Shared(Arc::clone(&view)),
                name,
            };
            catalog.register_schema(name, Arc::new(schema)).unwrap();
        }
        context.register_catalog("shop", Arc::new(catalog));
        for function in super::functions(Arc::clone(&view)) {
            context.register_udf(function);
        }
        Self { view, context }
    }

    fn statement(sql: &str) -> ast::Statement {
        Parser::parse_sql(&PostgreSqlDialect {}, sql)
            .unwrap()
            .remove(0)
    }

    async fn try_ask(&self, sql: &str) -> Result<Answer, String> {
        let mut statement = Self::statement(sql);
        let _ = walk::change(&mut statement, &mut TellApart);
        super::rewrite(&mut statement, &self.view).map_err(|error| error.to_string())?;
        let rewritten = statement.to_string();
        let run = async {
            let plan = self
                .context
                .state()
                .statement_to_plan(Statement::Statement(Box::new(statement)))
                .await?;
            let frame = self.context.execute_logical_plan(plan).await?;
            let schema = Arc::clone(frame.schema().inner());
            let batches = frame.collect().await?;
            Ok::<_, DataFusionError>(Answer {
                schema,
                rows: rows(&batches)?,
            })
        };
        run.await
            .map_err(|error| format!("{error}\nrewritten: {rewritten}"))
    }

    async fn ask(&self, sql: &str) -> Vec<Vec<Option<String>>> {
        self.try_ask(sql)
            .await
            .unwrap_or_else(|error| panic!("{sql}\n{error}"))
            .rows
    }

    /// Rows as texts, values separated by `|`.
    async fn lines(&self, sql: &str) -> Vec<String> {
        self.ask(sql).await.iter().map(|row| line(row)).collect()
    }
}

fn line(row: &[Option<String>]) -> String {
    let values: Vec<String> = row
        .iter()
        .map(|value| {
            value
                .as_ref()
                .map_or("∅".to_owned(), |value| value.replace('\n', "⏎"))
        })
        .collect();
    values.join("|")
}

fn rows(batches: &[RecordBatch]) -> Result<Vec<Vec<Option<String>>>> {
    let mut all = Vec::new();
    for batch in batches {
        let columns = batch
            .columns()
            .iter()
            .map(cell::cells_of)
            .collect::<Result<Vec<_>>>()?;
        for row in 0..batch.num_rows() {
            all.push(columns.iter().map(|column| column[row].shown()).collect());
        }
    }
    Ok(all)
}

#[tokio::test]
async fn every_system_relation_can_be_read_whole() {
    let asker = Asker::new("admin");
    for relation in super::data::relations() {
        let answer = asker
            .try_ask(&format!(
                "SELECT * FROM {}.{}",
                relation.schema, relation.name
            ))
            .await
            .unwrap();
        assert_eq!(
            answer.schema.fields().len(),
            relation.columns.len(),
            "{}",
            relation.name
        );
    }
}

#[tokio::test]
async fn columns_tell_their_postgresql_types() {
    let asker = Asker::new("admin");
    let answer = asker
        .try_ask("SELECT c.oid, c.relname, c.relkind, c.reloptions, i.indkey, c.oid::regclass, c.relnatts FROM pg_class c JOIN pg_index i ON i.indrelid = c.oid")
        .await
        .unwrap();
    let oids: Vec<u32> = answer
        .schema
        .fields()
        .iter()
        .map(|field| oid_of_field(field))
        .collect();
    assert_eq!(oids, [26, 19, 18, 1009, 22, 2205, 21]);
}

#[tokio::test]
async fn names_cast_to_regclass_are_numbers_where_compared_and_names_where_shown() {
    let asker = Asker::new("alice");
    assert_eq!(
        asker
            .lines("SELECT relname FROM pg_class WHERE oid = 'customer'::regclass")
            .await,
        ["customer"]
    );
    assert_eq!(
        asker
            .lines("SELECT 'sales.region'::regclass, 'customer'::regclass::oid")
            .await,
        ["sales.region|16390"]
    );
    assert_eq!(
        asker.lines("SELECT '\"Odd Name\"'::regclass::text").await,
        ["\"Odd Name\""]
    );
    assert_eq!(
        asker
            .lines("SELECT 'int4'::regtype, 'text[]'::regtype::oid, 25::regtype")
            .await,
        ["integer|1009|text"]
    );
    assert_eq!(
        asker
            .lines("SELECT to_regclass('nosuch'), to_regclass('customer')")
            .await,
        ["∅|customer"]
    );
    let queries = [
        (
            "SELECT typname FROM pg_type WHERE oid = to_regtype('integer')",
            "int4",
        ),
        (
            "SELECT count(*) FROM pg_class WHERE oid = to_regclass('nosuch')",
            "0",
        ),
        (
            "SELECT to_regclass('16390'), to_regtype('bigint')::oid",
            "∅|20",
        ),
        (
            "SELECT to_regnamespace('sales')::oid = relnamespace FROM pg_class WHERE relname = 'region'",
            "t",
        ),
        (
            "SELECT c.relname FROM pg_class c, (SELECT 'sales.region'::regclass) AS d(r) WHERE c.oid = d.r",
            "region",
        ),
        (
            "WITH t AS (SELECT 'customer'::regclass AS r) SELECT c.relname, t.r FROM pg_class c JOIN t ON t.r = c.oid",
            "customer|customer",
        ),
        (
            "SELECT relname FROM pg_class WHERE oid = ANY ('{customer}'::regclass[])",
            "customer",
        ),
        (
            "SELECT 'customer'::regclass = 'public.customer'::regclass",
            "t",
        ),
    ];
    for (sql, expected) in queries {
        assert_eq!(asker.lines(sql).await, [expected], "{sql}");
    }
    let error = asker
        .try_ask("SELECT 'nosuch'::regclass")
        .await
        .err()
        .unwrap();
    assert_eq!(error, "relation \"nosuch\" does not exist");
}

#[tokio::test]
async fn session_functions_answer() {
    let asker = Asker::new("alice");
    assert_eq!(
        asker.lines("SELECT current_database(), current_user, session_user, current_schema(), current_schemas(true), pg_backend_pid()").await,
        ["shop|alice|alice|public|{pg_catalog,public}|4242"]
    );
    assert_eq!(
        asker.lines("SELECT pg_catalog.current_setting('timezone'), set_config('search_path', 'x', false), current_setting('nosuch', true)").await,
        ["Europe/Berlin|x|∅"]
    );
    assert!(
        asker
            .try_ask("SELECT current_setting('nosuch')")
            .await
            .is_err()
    );
    assert_eq!(
        asker
            .lines("SELECT current_setting('jit'), set_config('jit', 'off', false)")
            .await,
        ["off|off"]
    );
    let error = asker
        .try_ask("SELECT set_config('lc_collate', 'de_DE', false)")
        .await
        .err()
        .unwrap();
    assert!(error.contains("cannot be changed"), "{error}");
    assert!(asker.lines("SELECT version()").await[0].starts_with("PostgreSQL 15"));
}

#[tokio::test]
async fn copies_are_shown_to_who_may_see_nodes() {
    let admin = Asker::new("admin");
    let senders = "SELECT application_name, client_addr, client_hostname, client_port, state, sent_lsn, \
                   write_lsn, flush_lsn, replay_lsn, sync_priority, sync_state, reply_time \
                   FROM pg_stat_replication ORDER BY 1";
    assert_eq!(
        admin.lines(senders).await,
        [
            "beta|10.0.0.2|∅|5435|streaming|1/2A|1/2A|1/1|∅|1|sync|∅",
            "gamma|∅|gamma.lan|5435|catchup|1/2A|1/9|1/1|∅|0|async|∅",
        ]
    );
    let alice = Asker::new("alice");
    assert_eq!(
        alice.lines(senders).await,
        ["∅|∅|∅|∅|∅|∅|∅|∅|∅|∅|∅|∅", "∅|∅|∅|∅|∅|∅|∅|∅|∅|∅|∅|∅"]
    );
    let copies = "SELECT * FROM aerostat.copies ORDER BY 1";
    let shop = "shop|leads|3|1|1|{1,2}|1/2B|1/20|1/2A|1/2A|∅|∅";
    assert_eq!(
        admin.lines(copies).await,
        ["other|alone|∅|∅|∅|∅|0/7|∅|0/7|0/7|∅|∅", shop]
    );
    assert_eq!(alice.lines(copies).await, [shop]);
    let receiver = "SELECT * FROM pg_stat_wal_receiver";
    assert!(admin.lines(receiver).await.is_empty());
    assert_eq!(
        admin
            .lines("SELECT pg_is_in_recovery(), pg_current_wal_lsn(), pg_current_wal_flush_lsn(), pg_last_wal_replay_lsn(), pg_wal_lsn_diff('1/0', '0/FFFFFFFF')")
            .await,
        ["f|1/2A|1/20|∅|1"]
    );
}

#[tokio::test]
async fn the_cluster_is_shown_to_who_may_see_nodes() {
    let nodes = "SELECT * FROM aerostat.cluster_nodes ORDER BY 1";
    let databases = "SELECT * FROM aerostat.cluster_databases ORDER BY 1";
    let admin = Asker::new("admin");
    assert_eq!(
        admin.lines(nodes).await,
        [
            "alpha|1|up|f|1.2.3|0a1b2c|∅|∅|10.0.0.1:5434|10.0.0.1:5433|1|1|1073741824|1048576|0.25|1500",
            "delta|4|silent|f|∅|∅|∅|∅|10.0.0.4:5434|10.0.0.4:5433|0|0|∅|∅|∅|∅",
            "gamma|3|stopped|t|1.2.3|0a1b2c|1.3.0|0a1b2c|10.0.0.3:5434|10.0.0.3:5433|0|0|1073741824|1048576|0.25|1500",
        ]
    );
    assert_eq!(
        admin.lines(databases).await,
        ["shop|16386|2|alpha, beta|alpha|alpha, 9|alpha|7|4096|0.5|0.25"]
    );
    let alice = Asker::new("alice");
    assert!(alice.lines(nodes).await.is_empty());
    assert!(alice.lines(databases).await.is_empty());
}

#[tokio::test]
async fn privileges_are_the_catalogues() {
    let alice = Asker::new("alice");
    assert_eq!(
        alice
            .lines("SELECT has_table_privilege('customer', 'SELECT'), has_table_privilege('reader', 'customer', 'SELECT'), has_table_privilege('reader', 'customer', 'UPDATE'), has_database_privilege('other', 'CONNECT'), has_database_privilege('postgres', 'CONNECT'), has_schema_privilege('sales', 'CREATE'), pg_has_role('alice', 'USAGE')")
            .await,
        ["t|t|f|f|t|t|t"]
    );
    let reader = Asker::new("reader");
    assert_eq!(
        reader.lines("SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' ORDER BY 1").await,
        ["customer", "lineitem"]
    );
    let error = reader
        .try_ask("SELECT * FROM pg_authid")
        .await
        .err()
        .unwrap();
    assert!(
        error.contains("permission denied for table pg_authid"),
        "{error}"
    );
    assert_eq!(
        Asker::new("admin")
            .lines("SELECT count(*) FROM pg_authid")
            .await,
        ["6"]
    );
    assert_eq!(
        alice
            .lines("SELECT usename, query FROM pg_stat_activity ORDER BY pid")
            .await,
        ["alice|SELECT 1", "admin|<insufficient privilege>"]
    );
}

#[tokio::test]
async fn information_schema_describes_columns() {
    let asker = Asker::new("alice");
    assert_eq!(
        asker
            .lines("SELECT column_name, data_type, character_maximum_length, numeric_precision, numeric_scale, is_nullable, udt_name, column_default FROM information_schema.columns WHERE table_name = 'customer' ORDER BY ordinal_position")
            .await,
        [
            "id|bigint|∅|64|0|NO|int8|∅",
            "name|character varying|25|∅|∅|NO|varchar|∅",
            "city|character|10|∅|∅|YES|bpchar|'HPI'::bpchar",
            "balance|numeric|∅|12|2|NO|numeric|0",
            "since|timestamp with time zone|∅|∅|∅|YES|timestamptz|CURRENT_TIMESTAMP",
            "note|text|∅|∅|∅|YES|text|∅",
        ]
    );
    assert_eq!(
        asker
            .lines("SELECT k.column_name, k.ordinal_position FROM information_schema.table_constraints t JOIN information_schema.key_column_usage k USING (constraint_name) WHERE t.constraint_type = 'PRIMARY KEY' AND t.table_name = 'lineitem' ORDER BY 2")
            .await,
        ["orderkey|1", "line|2"]
    );
}

#[test]
fn statements_that_do_not_concern_the_catalogue_stay_as_they_are() {
    let view = sample::view("alice");
    for sql in [
        "SELECT a, 'x' = ANY (b), c[1], (SELECT max(d) FROM t2 WHERE t2.e = t.e) FROM t WHERE c = '5' AND EXISTS (SELECT 1 FROM u)",
        "SELECT CAST(a AS BIGINT) FROM t COLLATE",
        "INSERT INTO t VALUES (1, 'two', NULL)",
        "UPDATE t SET a = (SELECT b FROM u WHERE u.c = t.c) WHERE d IN (SELECT e FROM v)",
        "SELECT generate_series FROM generate_series(1, 10)",
    ] {
        let before = Asker::statement(sql);
        let mut after = before.clone();
        super::rewrite(&mut after, &view).unwrap();
        assert_eq!(after.to_string(), before.to_string());
    }
}

#[tokio::test]
async fn arrays_of_subqueries_are_arrays_even_of_no_rows() {
    let asker = Asker::new("alice");
    assert_eq!(
        asker
            .lines("SELECT relname, ARRAY(SELECT attnum FROM pg_attribute WHERE attrelid = c.oid AND attnum < 3 ORDER BY 1 DESC), ARRAY(SELECT DATE '2026-01-01' FROM pg_index WHERE indrelid = c.oid), array_length(ARRAY(SELECT 1.5 FROM pg_class WHERE false), 1), array_to_string(ARRAY[1.25, 2.25], '/') FROM pg_class c WHERE c.oid >= 16384 AND relkind = 'r' AND relname !~ '^l' ORDER BY 1")
            .await,
        [
            "Odd Name|{2,1}|{}|∅|1.25/2.25",
            "customer|{2,1}|{2026-01-01,2026-01-01,2026-01-01}|∅|1.25/2.25",
            "region|{2,1}|{2026-01-01}|∅|1.25/2.25"
        ]
    );
}
