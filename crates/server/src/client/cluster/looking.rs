//! Looking at a cluster while its nodes come and go: at whichever node answers.

use std::{collections::BTreeSet, time::Duration};

use aerostat_pgclient::Server;
use anyhow::{Context, Result, anyhow};
use tokio::time::timeout;
use tokio_postgres::{Client, Config};

use super::{
    super::{Target, connect},
    picture::{DatabaseRow, NodeRow, Rows, read},
};

/// How long a node may take to answer before another is asked.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Has a session be at the node that is connected to.
pub(super) fn stays(config: &mut Config) {
    let options = config.get_options().unwrap_or_default();
    let options = format!("{options} -c aerostat.read_from=any");
    config.options(options);
}

/// A cluster that is looked at.
pub(super) struct Looking<'a> {
    target: &'a Target,
    client: Option<Client>,
    /// Where clients find its nodes, as far as that was said.
    addresses: BTreeSet<String>,
}

impl Looking<'_> {
    pub(super) fn new(target: &Target) -> Looking<'_> {
        Looking {
            target,
            client: None,
            addresses: BTreeSet::new(),
        }
    }

    /// What some node knows of it, which may be some seconds old.
    ///
    /// # Errors
    /// No node answers.
    pub(super) async fn rows(&mut self) -> Result<Rows> {
        if let Some(client) = &self.client
            && let Ok(Ok(rows)) = timeout(ANSWER_MAX, read(client)).await
        {
            self.addresses = rows.nodes.iter().map(|node| node.clients.clone()).collect();
            return Ok(rows);
        }
        self.client = None;
        let mut why = None;
        for server in self.places()? {
            let asked = async {
                let client = connect(&server).await?;
                let rows = read(&client).await?;
                anyhow::Ok((client, rows))
            };
            match timeout(ANSWER_MAX, asked).await {
                Ok(Ok((client, rows))) => {
                    self.client = Some(client);
                    self.addresses = rows.nodes.iter().map(|node| node.clients.clone()).collect();
                    return Ok(rows);
                }
                Ok(Err(error)) => why = Some(error),
                Err(_) => why = Some(anyhow!("a node does not answer within {ANSWER_MAX:?}")),
            }
        }
        Err(why.unwrap_or_else(|| anyhow!("the cluster has no nodes"))).context("no node answers")
    }

    /// Where it may be asked: at each node itself first, which needs no leader.
    fn places(&self) -> Result<Vec<Server>> {
        let mut all = vec![self.target.maintenance()?];
        for address in &self.addresses {
            let mut server = self.target.at(address)?;
            let database = all[0].config.get_dbname().unwrap_or_default().to_owned();
            server.config.dbname(database);
            all.push(server);
        }
        let local = all.iter().cloned().map(|mut server| {
            stays(&mut server.config);
            server
        });
        let local: Vec<Server> = local.collect();
        Ok(local.into_iter().chain(all).collect())
    }
}

/// A session at a node itself, in a database that it has.
///
/// # Errors
/// It has none, or does not answer.
pub(super) async fn at_node(target: &Target, rows: &Rows, node: &NodeRow) -> Result<Client> {
    let all = || rows.databases.iter();
    let has = |row: &&DatabaseRow| row.current.contains(&node.name);
    let database = all()
        .find(has)
        .or_else(|| all().find(|row| row.is_on(node)));
    let database = database.with_context(|| {
        format!(
            "node {} has no database that one could connect to",
            node.name
        )
    })?;
    in_database(target, node, &database.name).await
}

/// A session at a node itself.
///
/// # Errors
/// It does not answer, or does not let anybody in.
pub(super) async fn in_database(target: &Target, node: &NodeRow, database: &str) -> Result<Client> {
    let mut server = target.at(&node.clients)?;
    server.config.dbname(database).connect_timeout(ANSWER_MAX);
    stays(&mut server.config);
    let connected = timeout(ANSWER_MAX * 2, connect(&server)).await;
    connected.map_err(|_| anyhow!("node {} does not answer", node.name))?
}
