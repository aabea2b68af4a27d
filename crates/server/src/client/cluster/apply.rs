//! Moves of a plan, made one after another.

use std::time::Duration;

use aerostat_cluster::{Going, Picture, PictureDatabase};
use anyhow::{Context, Result, bail};
use tokio::time::Instant;
use tokio_postgres::Client;

use super::{
    super::{Target, promote::lead, quote_name, tell},
    LOOK,
    picture::{Rows, read},
};

/// How moves are made.
pub(super) struct Moves<'a> {
    pub(super) client: &'a Client,
    pub(super) target: &'a Target,
    /// Databases that move at a time.
    pub(super) at_once: usize,
    /// How long one may take.
    pub(super) wait: Duration,
}

/// A database on its way.
struct Moving<'a> {
    database: &'a PictureDatabase,
    nodes: Vec<String>,
    leader: Option<String>,
    began: Instant,
}

impl Moves<'_> {
    /// Makes moves, in this order.
    ///
    /// # Errors
    /// One is refused, or takes too long. What was done stays, and another plan goes on from there.
    pub(super) async fn run(&self, picture: &Picture, going: Vec<Going>) -> Result<()> {
        let mut due = going.into_iter();
        let mut moving: Vec<Moving<'_>> = Vec::new();
        let mut done = 0;
        loop {
            while moving.len() < self.at_once
                && let Some(next) = due.next()
            {
                moving.push(self.begin(picture, &next).await?);
            }
            if moving.is_empty() {
                return crate::print(&format!("{done} databases have moved"));
            }
            let rows = read(self.client).await?;
            let (there, on_the_way): (Vec<_>, Vec<_>) =
                moving.into_iter().partition(|one| is_there(one, &rows));
            for one in there {
                self.lead(&one, &rows).await?;
                done += 1;
                let (name, nodes) = (&one.database.name, one.nodes.join(", "));
                let seconds = one.began.elapsed().as_secs_f64();
                crate::print(&format!("{name} is on {nodes} after {seconds:.1} s"))?;
            }
            if let Some(late) = on_the_way
                .iter()
                .find(|one| one.began.elapsed() > self.wait)
            {
                bail!(
                    "database {} is not on {} after {} s; it goes on, and `aerostat cluster status` shows how far it is",
                    late.database.name,
                    late.nodes.join(", "),
                    self.wait.as_secs()
                );
            }
            moving = on_the_way;
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn begin<'a>(&self, picture: &'a Picture, going: &Going) -> Result<Moving<'a>> {
        let mut all = picture.databases.iter();
        let database = all.find(|of| of.id == going.database);
        let database = database.context("the plan has a database that the cluster has not")?;
        let nodes: Vec<String> = going.nodes.iter().map(|id| picture.name_of(*id)).collect();
        if going.nodes != database.nodes {
            let copies = database
                .copies
                .map_or(going.nodes.len(), |of| of.get().into());
            let sql = format!(
                "ALTER DATABASE {} SET (copies = {copies}, nodes = '{}')",
                quote_name(&database.name),
                nodes.join(", ")
            );
            tell(self.client, &sql)
                .await
                .with_context(|| format!("database {} stays where it is", database.name))?;
        }
        Ok(Moving {
            database,
            nodes,
            leader: going.leader.map(|id| picture.name_of(id)),
            began: Instant::now(),
        })
    }

    /// Has the node lead that is to.
    async fn lead(&self, one: &Moving<'_>, rows: &Rows) -> Result<()> {
        let name = &one.database.name;
        let row = rows.databases.iter().find(|row| row.name == *name);
        let Some(leader) = &one.leader else {
            return Ok(());
        };
        if row.is_some_and(|row| row.leader.as_ref() == Some(leader)) {
            return Ok(());
        }
        let node = rows.nodes.iter().find(|node| node.name == *leader);
        let node = node.with_context(|| format!("node {leader} is gone"))?;
        let mut at = self.target.at(&node.clients)?;
        at.config.dbname(name);
        let wait = u32::try_from(self.wait.as_secs())
            .unwrap_or(u32::MAX)
            .min(60);
        lead(at, wait)
            .await
            .with_context(|| format!("node {leader} does not lead database {name}"))?;
        Ok(())
    }
}

/// Whether a database is where it is to be; one that was dropped is.
fn is_there(one: &Moving<'_>, rows: &Rows) -> bool {
    let mut all = rows.databases.iter();
    let row = all.find(|row| row.name == one.database.name);
    row.is_none_or(|row| {
        let is_wanted = row.nodes.as_ref() == Some(&one.nodes);
        is_wanted && row.is_there(rows) || row.nodes.is_none()
    })
}
