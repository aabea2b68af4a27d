//! `aerostat plan`: which tenants on which nodes, by the workload model that the lab has
//! measured.

use std::path::PathBuf;

use aerostat_capacity::{
    FILE, Interval, Model, NodeLimits, Plan, PlannedNode, parse_bytes, place, read_tenants,
};
use anyhow::{Context, Result};
use clap::Args;

use super::table::{bytes, count, table};

/// What to plan.
#[derive(Args)]
pub(crate) struct PlanArguments {
    /// The tenants: a CSV file with the columns name, size (6 Mrows, 2 GB), rate (20/s, 90/min)
    /// and perhaps goal (50 ms)
    #[arg(long, value_name = "FILE")]
    tenants: PathBuf,
    /// The workload model: a file, or the folder of a lab's run; by itself the data folder's
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
    /// The data folder in which `aerostat lab run workload-model` has left its model
    #[arg(
        long,
        env = "AEROSTAT_DATA",
        default_value = "./aerostat-data",
        value_name = "FOLDER"
    )]
    data: PathBuf,
    /// Memory of a node for data and queries, such as 16GB
    #[arg(long, value_name = "SIZE", value_parser = parse_memory)]
    node_memory: f64,
    /// Threads of a node's queries; by itself as many as were measured
    #[arg(long, value_name = "NUMBER")]
    workers: Option<usize>,
    /// The share of a node's memory that tenants' data may take; the rest is for queries and
    /// new rows
    #[arg(long, default_value_t = 0.7, value_name = "SHARE")]
    data_share: f64,
    /// The workload that a node is given; by the model its goal is only just kept at 1, mixes of
    /// tenants broke it at 0.46 to 0.76 where we measured
    #[arg(long, default_value_t = 0.7, value_name = "SHARE")]
    load_max: f64,
    /// Copies of each tenant, on nodes of their own
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    copies: usize,
    /// Print the plan as JSON
    #[arg(long)]
    json: bool,
}

fn parse_memory(text: &str) -> Result<f64, String> {
    parse_bytes(text).map_err(|error| error.to_string())
}

/// Plans and prints.
///
/// # Errors
/// When model or list cannot be used, or a tenant fits on no node.
pub(crate) fn run(arguments: &PlanArguments) -> Result<()> {
    let plan = plan(arguments)?;
    if arguments.json {
        return crate::print(&serde_json::to_string_pretty(&plan)?);
    }
    crate::print(&render(&plan))
}

fn plan(arguments: &PlanArguments) -> Result<Plan> {
    let in_data = arguments.data.join(FILE);
    let path = arguments.model.as_deref().unwrap_or(&in_data);
    let model = Model::read(path).with_context(|| {
        format!(
            "{} gives no workload model; `aerostat lab run workload-model` makes one",
            path.display()
        )
    })?;
    let tenants = read_tenants(&arguments.tenants, &model)
        .with_context(|| format!("{} cannot be planned", arguments.tenants.display()))?;
    let limits = NodeLimits {
        memory_bytes: arguments.node_memory,
        data_share: arguments.data_share,
        load_max: arguments.load_max,
        workers: arguments.workers.unwrap_or(model.measured.workers),
        copies: arguments.copies,
    };
    Ok(place(&model, &tenants, &limits)?)
}

fn interval(at: Interval, digits: usize) -> String {
    format!(
        "{:.digits$} [{:.digits$}, {:.digits$}]",
        at.value, at.low, at.high
    )
}

fn render(plan: &Plan) -> String {
    let row = |(at, node): (usize, &PlannedNode)| {
        [
            format!("node {}", at + 1),
            node.tenants.len().to_string(),
            interval(node.load, 2),
            format!("{}%", interval(node.headroom_percent, 0)),
            bytes(node.bytes as u64),
        ]
    };
    let nodes = table(
        ["", "tenants", "workload", "headroom", "data"],
        plan.nodes.iter().enumerate().map(row),
    );
    let placed = plan.nodes.iter().enumerate().flat_map(|(at, node)| {
        node.tenants.iter().map(move |one| {
            [
                one.name.clone(),
                format!("node {}", at + 1),
                count(one.rows as u64),
                bytes(one.bytes as u64),
                format!("{:.2}", one.rate),
                format!("{:.3}", one.load),
            ]
        })
    });
    let tenants = table(["", "on", "rows", "data", "requests/s", "workload"], placed);
    format!(
        "{} nodes ({} at least, by the sums); each is given a workload of {:.2} and {} of data.\n\
         By the model, at a workload of 1 the 99th percentile of response times is {:.0} ms. Headroom: by how much \
         a node's rates may rise together until then. In brackets: 95% intervals.\n\n\
         {nodes}\n\n{tenants}\n\nNot known:\n- {}",
        plan.nodes.len(),
        plan.nodes_min,
        plan.load_max,
        bytes(plan.bytes_max as u64),
        plan.goal_ms,
        plan.unknown.join("\n- "),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        plan: PlanArguments,
    }

    const MODEL: &str = r#"{"format":1,"processor":"any","workers":2,"requests":"SSB","quick":false,
        "goal_ms":50,"bytes_per_row":20,"observations":[
        {"rows":1e5,"rates":[990,1000,1010]},{"rows":1e6,"rates":[99,100,101]},
        {"rows":1e7,"rates":[9.9,10,10.1]}]}"#;

    fn planned(list: &str, more: &[&str]) -> Result<Plan> {
        let folder = tempfile::tempdir()?;
        let (model, tenants) = (folder.path().join(FILE), folder.path().join("tenants.csv"));
        std::fs::write(&model, MODEL)?;
        std::fs::write(&tenants, list)?;
        let mut line = vec!["plan", "--node-memory", "1GB", "--data"];
        line.push(folder.path().to_str().unwrap_or_default());
        line.extend(["--tenants", tenants.to_str().unwrap_or_default()]);
        line.extend(more);
        plan(&Line::try_parse_from(line)?.plan)
    }

    #[test]
    fn a_plan_names_every_tenant_and_what_it_does_not_know() {
        let list = "name,size,rate\nacme,1 Mrows,40/s\nzoo,20 MB,30/s\nbar,2 Mrows,60/min\n";
        let text = render(&planned(list, &[]).unwrap());
        for part in [
            "2 nodes (2 at least",
            "acme",
            "zoo",
            "bar",
            "node 1",
            "1,000,000",
            "- Writes, and the freezing",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let two = planned(list, &["--copies", "2", "--workers", "2"]).unwrap();
        assert_eq!(two.nodes.len(), 2);
        let json = serde_json::to_string(&two).unwrap();
        assert!(
            json.contains("\"headroom_percent\"") && json.contains("\"acme\""),
            "{json}"
        );
    }

    #[test]
    fn mistakes_are_told_whole() {
        let refused = |list: &str, more: &[&str]| format!("{:#}", planned(list, more).unwrap_err());
        let twice = refused("name,size,rate\na,1 GB,1\na,1 GB,1\n", &[]);
        assert!(
            twice.contains("line 3") && twice.contains("\"a\" before"),
            "{twice}"
        );
        let large = refused("name,size,rate\na,1 GB,1\n", &[]);
        assert!(large.contains("fits on no node"), "{large}");
        let unit = refused("", &["--node-memory", "1 acre"]);
        assert!(unit.contains("node-memory"), "{unit}");
        let model = refused("name,size,rate\na,1 MB,1\n", &["--model", "/nowhere"]);
        assert!(
            model.contains("/nowhere") && model.contains("aerostat lab run"),
            "{model}"
        );
    }
}
