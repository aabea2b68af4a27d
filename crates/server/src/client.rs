//! The common part of the subcommands that talk to a node: its address, and connecting to a
//! tenant's database there.

pub(crate) mod backup;
pub(crate) mod bench;
pub(crate) mod calibrate;
pub(crate) mod cert;
pub(crate) mod cluster;
pub(crate) mod demo;
pub(crate) mod import;
pub(crate) mod load;
pub(crate) mod plan;
pub(crate) mod promote;
pub(crate) mod table;

use std::{net::SocketAddr, path::PathBuf};

use aerostat_pgclient::Server;
use anyhow::{Context, Result, anyhow};
use clap::Args;
use tokio_postgres::{Client, Config};

/// Where the node is.
#[derive(Args, Clone, Debug)]
pub(crate) struct Target {
    /// The node, as postgres://role:password@host:port; with ?sslmode=require connections are encrypted
    #[arg(
        long,
        env = "AEROSTAT_URL",
        default_value = "postgres://aerostat@127.0.0.1:5433"
    )]
    pub(crate) url: String,
    /// Certificates in PEM by which encrypted servers are known, instead of those that the system trusts
    #[arg(long, env = "AEROSTAT_TRUST", value_name = "FILE")]
    pub(crate) trust: Option<PathBuf>,
}

impl Target {
    /// How to connect to `database` there.
    ///
    /// # Errors
    /// When the URL is none, or there are no certificates to trust.
    pub(crate) fn database(&self, database: &str) -> Result<Server> {
        let mut config = self.config()?;
        config.dbname(database);
        config.application_name("aerostat");
        self.server(config)
    }

    /// How to connect to another node, as the URL says but where.
    ///
    /// # Errors
    /// When the URL is none, or the address.
    pub(crate) fn at(&self, address: &str) -> Result<Server> {
        let known = self.config()?;
        let address: SocketAddr = address
            .parse()
            .with_context(|| format!("{address} is no address"))?;
        let mut config = Config::new();
        if let Some(user) = known.get_user() {
            config.user(user);
        }
        if let Some(password) = known.get_password() {
            config.password(password);
        }
        config
            .ssl_mode(known.get_ssl_mode())
            .host(address.ip().to_string())
            .port(address.port())
            .application_name("aerostat");
        self.server(config)
    }

    /// How to connect to the database the URL names, or the node's first.
    ///
    /// # Errors
    /// When the URL is none.
    pub(crate) fn maintenance(&self) -> Result<Server> {
        match self.config()?.get_dbname() {
            Some(name) => self.database(name),
            None => self.database("aerostat"),
        }
    }

    fn config(&self) -> Result<Config> {
        aerostat_pgclient::config(&self.url).context("--url is no postgres URL")
    }

    fn server(&self, config: Config) -> Result<Server> {
        Ok(Server::new(config, self.trust.as_deref())?)
    }
}

/// Connects.
///
/// # Errors
/// When nobody answers or lets us in; the message says where.
pub(crate) async fn connect(server: &Server) -> Result<Client> {
    server.connect().await.with_context(|| {
        let config = &server.config;
        let hosts = config
            .get_hosts()
            .iter()
            .map(|host| format!("{host:?}"))
            .collect::<Vec<_>>();
        let database = config.get_dbname().unwrap_or_default();
        format!(
            "no node at {} port {:?} lets us into {database}",
            hosts.join(","),
            config.get_ports()
        )
    })
}

/// Has the node run a statement.
///
/// # Errors
/// As [`refusal`] tells it.
pub(crate) async fn tell(client: &Client, sql: &str) -> Result<()> {
    client.batch_execute(sql).await.map_err(refusal)
}

/// A node's refusal in its words, with what it says besides.
pub(crate) fn refusal(error: tokio_postgres::Error) -> anyhow::Error {
    let Some(refused) = error.as_db_error() else {
        return error.into();
    };
    let more = [refused.detail(), refused.hint()].into_iter().flatten();
    let more: String = more.map(|line| format!("\n{line}")).collect();
    anyhow!("{}{more}", refused.message())
}

/// Creates the database unless it is there; says whether it did.
///
/// # Errors
/// When the node refuses.
pub(crate) async fn ensure_database(target: &Target, name: &str) -> Result<bool> {
    let client = connect(&target.maintenance()?).await?;
    let sql = format!("CREATE DATABASE {}", quote_name(name));
    match client.batch_execute(&sql).await {
        Ok(()) => Ok(true),
        Err(error)
            if error.code() == Some(&tokio_postgres::error::SqlState::DUPLICATE_DATABASE) =>
        {
            Ok(false)
        }
        Err(error) => Err(error).with_context(|| format!("cannot create database {name}")),
    }
}

/// A name as SQL writes it.
pub(crate) fn quote_name(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A possibly schema-qualified table name as SQL writes it: dots separate, quotes
/// keep a dot.
pub(crate) fn quote_table(name: &str) -> String {
    if name.contains('"') {
        return name.to_owned();
    }
    name.split('.')
        .map(quote_name)
        .collect::<Vec<_>>()
        .join(".")
}

/// Runs a client subcommand on a runtime of its own.
///
/// # Errors
/// The subcommand's.
pub(crate) fn block_on<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Runtime::new()
        .context("cannot start threads")?
        .block_on(future)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_as_sql_wants_them() {
        assert_eq!(quote_name("a\"b"), "\"a\"\"b\"");
        assert_eq!(quote_table("s.t"), "\"s\".\"t\"");
        assert_eq!(quote_table("\"odd.name\""), "\"odd.name\"");
    }

    #[test]
    fn the_url_names_the_node_and_we_the_database() {
        let target = Target {
            url: "postgres://r@127.0.0.1:1/x".to_owned(),
            trust: None,
        };
        assert_eq!(target.database("t").unwrap().config.get_dbname(), Some("t"));
        assert_eq!(target.maintenance().unwrap().config.get_dbname(), Some("x"));
        let target = Target {
            url: "postgres://r@127.0.0.1:1".to_owned(),
            trust: None,
        };
        assert_eq!(
            target.maintenance().unwrap().config.get_dbname(),
            Some("aerostat")
        );
        assert!(
            Target {
                url: "nonsense".to_owned(),
                trust: None
            }
            .database("t")
            .is_err()
        );
    }
}
