//! A cluster and plans for it, in words and tables.

use aerostat_cluster::{Going, Picture};
use aerostat_placement::{Plan, Report};
use serde::Serialize;

use super::{
    super::table::{bytes, plain_table, table},
    picture::{DatabaseRow, NodeRow, Rows},
};

pub(super) fn status(rows: &Rows) -> String {
    let nodes = table(
        [
            "", "state", "build", "copies", "leads", "memory", "load", "heard",
        ],
        rows.nodes.iter().map(node),
    );
    let databases = plain_table(
        ["", "copies", "on", "led by", "memory", "load"],
        rows.databases.iter().map(|row| database(row, rows)),
    );
    format!("{nodes}\n\n{databases}")
}

fn size(value: Option<i64>) -> String {
    let value = value.and_then(|value| u64::try_from(value).ok());
    value.map_or_else(|| "?".to_owned(), bytes)
}

fn load(value: Option<f64>) -> String {
    value.map_or_else(|| "?".to_owned(), |load| format!("{load:.2}"))
}

fn node(row: &NodeRow) -> [String; 8] {
    [
        row.name.clone(),
        match row.draining {
            true => format!("{}, drains", row.state),
            false => row.state.clone(),
        },
        match &row.next_build {
            Some(next) if row.build.as_ref() != Some(next) => format!("{} ► {next}", row.running()),
            _ => row.running(),
        },
        row.copies.to_string(),
        row.leads.to_string(),
        format!("{} of {}", size(row.memory_used), size(row.memory_bytes)),
        load(row.load),
        row.heard_ms_ago
            .map_or_else(|| "never".to_owned(), |ms| format!("{} s ago", ms / 1_000)),
    ]
}

fn database(row: &DatabaseRow, rows: &Rows) -> [String; 6] {
    let wanted = match &row.nodes {
        None => "all".to_owned(),
        Some(nodes) => nodes.join(", "),
    };
    [
        row.name.clone(),
        match (row.copies, &row.nodes) {
            (Some(copies), _) => copies.to_string(),
            (None, None) => "all".to_owned(),
            (None, Some(_)) => "as told".to_owned(),
        },
        match row.is_there(rows) {
            true => wanted,
            false => format!("{} ► {wanted}", row.members.join(", ")),
        },
        row.leader.clone().unwrap_or_else(|| "nobody".to_owned()),
        size(row.bytes),
        load(row.load),
    ]
}

pub(super) fn plan(picture: &Picture, plan: &Plan) -> String {
    let going = picture.going(plan, |_| true);
    let moves = match going.is_empty() {
        true => "Every database may stay where it is.".to_owned(),
        false => {
            let rows = going.iter().map(|going| moving(picture, going));
            plain_table(["", "from", "to", "led by", "because"], rows).to_string()
        }
    };
    let report = &plan.report;
    let nodes = table(
        [
            "",
            "load",
            "after a failure",
            "of",
            "may be",
            "memory",
            "may be",
            "neighbours",
        ],
        report.nodes.iter().map(|node| {
            [
                picture.name_of(node.node),
                format!("{:.2}", node.load),
                format!("{:.2}", node.worst_load),
                node.worst_failure
                    .map_or_else(String::new, |failed| picture.name_of(failed)),
                format!("{:.2}", node.load_allowed),
                bytes(node.memory_bytes),
                bytes(node.memory_allowed_bytes),
                node.neighbours.to_string(),
            ]
        }),
    );
    format!("{moves}\n\nThen:\n{nodes}\n\n{}", rules(picture, report))
}

/// Which rules are not met, and what two failures would take.
fn rules(picture: &Picture, report: &Report) -> String {
    let mut lines = Vec::new();
    match report.violations.is_empty() {
        true => lines.push("Every rule is met, also when any one node fails.".to_owned()),
        false => {
            lines.push("Not met:".to_owned());
            let told = report.violations.iter();
            lines.extend(told.map(|of| format!("- {}", of.told(picture))));
            match report.nodes_more {
                Some(0) => {}
                Some(more) => lines.push(format!("{more} more nodes like these would do.")),
                None => lines.push("More nodes like these would not help.".to_owned()),
            }
        }
    }
    let both = report.double_failures;
    if report.nodes.len() > 1 {
        lines.push(format!(
            "Two failures at once would take every copy of some database in {:.0}% of cases, and of {:.1}% of databases.",
            both.pairs_hit * 100.0,
            both.tenants_hit * 100.0
        ));
    }
    lines.join("\n")
}

fn reasons(picture: &Picture, going: &Going) -> String {
    let told = going.reasons.iter().map(|reason| reason.told(picture));
    told.collect::<Vec<_>>().join("; ")
}

fn moving(picture: &Picture, going: &Going) -> [String; 5] {
    let Described {
        database,
        from,
        to,
        leader,
        because,
    } = describe(picture, going);
    [
        database,
        from.join(", "),
        to.join(", "),
        leader.unwrap_or_default(),
        because,
    ]
}

/// A plan as JSON.
#[derive(Serialize)]
pub(super) struct DescribedPlan<'a> {
    moves: Vec<Described>,
    report: &'a Report,
    not_met: Vec<String>,
}

/// A database that goes elsewhere.
#[derive(Serialize)]
struct Described {
    database: String,
    from: Vec<String>,
    to: Vec<String>,
    leader: Option<String>,
    because: String,
}

pub(super) fn described<'a>(picture: &Picture, plan: &'a Plan) -> DescribedPlan<'a> {
    let going = picture.going(plan, |_| true);
    let violations = plan.report.violations.iter();
    DescribedPlan {
        moves: going.iter().map(|going| describe(picture, going)).collect(),
        report: &plan.report,
        not_met: violations.map(|of| of.told(picture)).collect(),
    }
}

fn describe(picture: &Picture, going: &Going) -> Described {
    let known = picture.databases.iter().find(|of| of.id == going.database);
    let names = |ids: &std::collections::BTreeSet<_>| {
        ids.iter()
            .map(|id| picture.name_of(*id))
            .collect::<Vec<_>>()
    };
    let led = known.and_then(|of| of.leader);
    let leader = going.leader.or(led.filter(|led| going.nodes.contains(led)));
    Described {
        database: known.map_or_else(String::new, |of| of.name.clone()),
        from: known.map(|of| names(&of.nodes)).unwrap_or_default(),
        to: names(&going.nodes),
        leader: leader.map(|id| picture.name_of(id)),
        because: reasons(picture, going),
    }
}
