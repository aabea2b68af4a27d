//! Relations of databases that several nodes have: PostgreSQL's two, and `aerostat.copies`.

use std::{
    net::{IpAddr, SocketAddr},
    time::Instant,
};

use aerostat_catalog::{CopyFacts, Standing};
use aerostat_sql::{
    grants::PredefinedRole,
    names::{AEROSTAT, PG_CATALOG},
};

use super::Builder;
use crate::{
    CatalogView,
    cell::{Cell, Rows},
    view::copies::lsn,
};

pub(super) const BUILDERS: [(&str, &str, Builder); 3] = [
    (PG_CATALOG, "pg_stat_replication", senders),
    (PG_CATALOG, "pg_stat_wal_receiver", receiver),
    (AEROSTAT, "copies", copies),
];

/// What is known of the copies of the session's database, while it stands like this.
fn facts_where(view: &CatalogView, standing: Standing) -> Option<CopyFacts> {
    let copy = view.facts.copy()?;
    (copy.standing() == standing).then(|| copy.facts())
}

/// Whether the role may see where other nodes are, and how other databases fare.
pub(super) fn sees_nodes(view: &CatalogView) -> bool {
    view.may_read_all_statistics() || view.is_member(PredefinedRole::AerostatOperator)
}

/// At the leader: one row for each copy of the session's database. As in PostgreSQL, roles that may not read
/// all statistics see that there is one, and no more.
fn senders(view: &CatalogView, rows: &mut Rows) {
    let Some(facts) = facts_where(view, Standing::Leads) else {
        return;
    };
    let open = sees_nodes(view);
    let open_only = |cell: Cell| if open { cell } else { Cell::Null };
    for peer in &facts.peers {
        let is_late = !peer.is_member && peer.written < facts.committed;
        let (address, host, port) = parts_of(&peer.address);
        rows.push([
            ("application_name", open_only((&peer.name).into())),
            ("client_addr", open_only(address.into())),
            ("client_hostname", open_only(host.into())),
            ("client_port", open_only(port.into())),
            (
                "state",
                open_only(if is_late { "catchup" } else { "streaming" }.into()),
            ),
            ("sent_lsn", open_only(lsn(peer.sent).into())),
            ("write_lsn", open_only(lsn(peer.written).into())),
            ("flush_lsn", open_only(lsn(peer.durable).into())),
            ("sync_priority", open_only(i64::from(peer.is_member).into())),
            (
                "sync_state",
                open_only(if peer.is_member { "sync" } else { "async" }.into()),
            ),
            ("reply_time", open_only(time_of(peer.heard))),
        ]);
    }
}

/// At a copy: one row for the leader.
fn receiver(view: &CatalogView, rows: &mut Rows) {
    let Some(facts) = facts_where(view, Standing::Follows).filter(|_| sees_nodes(view)) else {
        return;
    };
    let is_heard = facts.heard.is_some();
    rows.push([
        (
            "status",
            if is_heard { "streaming" } else { "waiting" }.into(),
        ),
        ("written_lsn", lsn(facts.written).into()),
        ("flushed_lsn", lsn(facts.durable).into()),
        ("received_tli", facts.epoch.0.into()),
        ("last_msg_receipt_time", time_of(facts.heard)),
        ("latest_end_lsn", lsn(facts.committed).into()),
        ("latest_end_time", time_of(facts.heard)),
    ]);
}

/// One row for each database that the node has open and the role may see.
fn copies(view: &CatalogView, rows: &mut Rows) {
    let sees_all = sees_nodes(view);
    for copy in view.facts.copies() {
        if !sees_all && copy.database != view.database {
            continue;
        }
        let (facts, places) = (copy.facts.as_ref(), copy.places);
        let written = facts.map_or(places.shown, |facts| facts.written);
        let durable = facts.map_or(places.durable, |facts| Some(facts.durable));
        let committed = facts.map_or(places.shown, |facts| facts.committed);
        let leader = facts.and_then(|facts| facts.leader);
        let members = facts.map(|facts| {
            let members = facts.members.iter();
            members.map(|node| node.0).collect::<Vec<u32>>()
        });
        let stale_ms = facts.and_then(|facts| Some(facts.current?.elapsed().as_millis()));
        let heard_ms = facts.and_then(|facts| Some(facts.heard?.elapsed().as_millis()));
        rows.push([
            ("database", copy.database.into()),
            ("standing", name_of(copy.standing).into()),
            ("epoch", facts.map(|facts| facts.epoch.0).into()),
            ("node", copy.node.map(|node| node.0).into()),
            ("leader", leader.map(|node| node.0).into()),
            ("members", members.into()),
            ("written_lsn", lsn(written).into()),
            ("durable_lsn", durable.map(lsn).into()),
            ("committed_lsn", lsn(committed).into()),
            ("applied_lsn", lsn(places.shown).into()),
            (
                "heard_ms_ago",
                heard_ms.and_then(|ms| i64::try_from(ms).ok()).into(),
            ),
            (
                "stale_ms",
                stale_ms.and_then(|ms| i64::try_from(ms).ok()).into(),
            ),
        ]);
    }
}

fn name_of(standing: Standing) -> &'static str {
    match standing {
        Standing::Alone => "alone",
        Standing::Leads => "leads",
        Standing::Follows => "follows",
    }
}

/// A point of the process's clock as a time.
fn time_of(at: Option<Instant>) -> Cell {
    let micros = at.and_then(|at| i64::try_from(at.elapsed().as_micros()).ok());
    micros.map_or(Cell::Null, |ago| {
        Cell::Time(chrono::Utc::now().timestamp_micros().saturating_sub(ago))
    })
}

/// The numeric address, the name and the port of where a node is listened for.
fn parts_of(address: &str) -> (Option<String>, Option<String>, Option<i64>) {
    if let Ok(at) = address.parse::<SocketAddr>() {
        return (Some(at.ip().to_string()), None, Some(at.port().into()));
    }
    if address.parse::<IpAddr>().is_ok() {
        return (Some(address.to_owned()), None, None);
    }
    let named = |(host, port): (&str, &str)| Some((host.to_owned(), port.parse::<u16>().ok()?));
    match address.rsplit_once(':').and_then(named) {
        Some((host, port)) => (None, Some(host), Some(port.into())),
        None => (None, Some(address.to_owned()), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_number_or_a_name() {
        let text = |text: &str| Some(text.to_owned());
        for (address, parts) in [
            ("10.0.0.1:5433", (text("10.0.0.1"), None, Some(5433))),
            ("[::1]:5433", (text("::1"), None, Some(5433))),
            ("::1", (text("::1"), None, None)),
            ("beta:5433", (None, text("beta"), Some(5433))),
            ("beta", (None, text("beta"), None)),
        ] {
            assert_eq!(parts_of(address), parts, "{address}");
        }
    }
}
