//! Clients over PostgreSQL's protocol.

use std::sync::Arc;

use aerostat_pgclient::Server;
use futures::StreamExt;
use tokio_postgres::types::ToSql;
use tokio_postgres::{SimpleQueryMessage, Statement};

use super::{Client, ClientError, Connect};

/// Which of the protocol's two ways queries are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protocol {
    /// Prepared once per connection, then only bound and executed; results in
    /// binary form. What drivers do.
    #[default]
    Prepared,
    /// One text message per query, results in text form. What `psql` does.
    Simple,
}

/// Connects tenants to their databases.
#[derive(Debug, Clone)]
pub struct PgConnect {
    tenants: Vec<Server>,
    queries: Arc<[String]>,
    protocol: Protocol,
}

impl PgConnect {
    /// `tenants` are the connections' settings in the order of the tenants given
    /// to [`super::drive`], `queries` the SQL texts in the order of its queries.
    pub fn new(tenants: Vec<Server>, queries: Vec<String>, protocol: Protocol) -> Self {
        Self {
            tenants,
            queries: queries.into(),
            protocol,
        }
    }
}

impl Connect for PgConnect {
    type Client = PgClient;

    async fn connect(&self, tenant: usize) -> Result<PgClient, ClientError> {
        let mut client = PgClient {
            server: self.tenants[tenant].clone(),
            queries: Arc::clone(&self.queries),
            protocol: self.protocol,
            session: None,
        };
        client.session().await?;
        Ok(client)
    }
}

/// A connection that is made again when it breaks.
pub struct PgClient {
    server: Server,
    queries: Arc<[String]>,
    protocol: Protocol,
    session: Option<Session>,
}

struct Session {
    client: tokio_postgres::Client,
    statements: Vec<Option<Statement>>,
}

impl Client for PgClient {
    async fn run(&mut self, query: usize) -> Result<u64, ClientError> {
        let queries = Arc::clone(&self.queries);
        let protocol = self.protocol;
        let session = self.session().await?;
        let rows = match protocol {
            Protocol::Prepared => session.run_prepared(query, &queries[query]).await,
            Protocol::Simple => session.run_simple(&queries[query]).await,
        };
        rows.map_err(|error| ClientError::Query(error.into()))
    }
}

impl PgClient {
    /// The live session, made anew where there is none.
    async fn session(&mut self) -> Result<&mut Session, ClientError> {
        if self.session.as_ref().is_some_and(Session::is_closed) {
            self.session = None;
        }
        if self.session.is_none() {
            let session = Session::connect(&self.server, self.queries.len()).await;
            self.session = Some(session.map_err(|error| ClientError::Connect(error.into()))?);
        }
        Ok(self.session.as_mut().expect("made above"))
    }
}

impl Session {
    async fn connect(server: &Server, queries: usize) -> Result<Self, tokio_postgres::Error> {
        Ok(Self {
            client: server.connect().await?,
            statements: vec![None; queries],
        })
    }

    fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    async fn run_prepared(
        &mut self,
        query: usize,
        sql: &str,
    ) -> Result<u64, tokio_postgres::Error> {
        if self.statements[query].is_none() {
            self.statements[query] = Some(self.client.prepare(sql).await?);
        }
        let statement = self.statements[query].as_ref().expect("prepared above");
        let parameters = std::iter::empty::<&(dyn ToSql + Sync)>();
        let rows = self.client.query_raw(statement, parameters).await?;
        let mut rows = std::pin::pin!(rows);
        let mut count = 0;
        while let Some(row) = rows.next().await {
            row?;
            count += 1;
        }
        Ok(count)
    }

    async fn run_simple(&self, sql: &str) -> Result<u64, tokio_postgres::Error> {
        let messages = self.client.simple_query_raw(sql).await?;
        let mut messages = std::pin::pin!(messages);
        let mut count = 0;
        while let Some(message) = messages.next().await {
            count += u64::from(matches!(message?, SimpleQueryMessage::Row(_)));
        }
        Ok(count)
    }
}

/// Runs a query over the simple protocol and returns its rows as text, NULL as
/// `None`; for comparing results, see [`crate::ssb::reference::parse_rows`].
///
/// # Errors
/// The server's or the connection's error.
pub async fn fetch_text(
    client: &tokio_postgres::Client,
    sql: &str,
) -> Result<Vec<Vec<Option<String>>>, tokio_postgres::Error> {
    let messages = client.simple_query(sql).await?;
    let rows = messages.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    let fields = rows.map(|row| {
        (0..row.len())
            .map(|column| row.get(column).map(str::to_owned))
            .collect()
    });
    Ok(fields.collect())
}
