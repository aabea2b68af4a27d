//! A run: nodes, clients and nemesis, and the judgement at the end.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use aerostat_histories::{History, Isolation, Kind, Model, Operation, Outcome, check};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use crate::client::{Shared, read, write};
use crate::nemesis::Nemesis;
use crate::node::{Node, binary, has_copies};

const WRITERS: u32 = 8;
const READERS: u32 = 2;

/// How often nodes are killed where nobody says: some seconds of `make test`.
const KILLS: u32 = 6;

/// How long clients may take to see that all is over.
const END_MAX: Duration = Duration::from_secs(60);

/// What is to be run.
pub(crate) struct Plan {
    pub(crate) name: &'static str,
    pub(crate) seed: u64,
    pub(crate) kills: u32,
    pub(crate) nodes: usize,
    pub(crate) durability: &'static str,
    /// Whether both nodes may be killed at once.
    pub(crate) together: bool,
}

fn number<T: std::str::FromStr>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok()?;
    let Ok(number) = text.parse() else {
        panic!("{name} is no number: {text}");
    };
    Some(number)
}

/// How often nodes are to be killed.
pub(crate) fn kills() -> u32 {
    number("COPIES_KILLS").unwrap_or(KILLS)
}

/// The seed of all choices.
pub(crate) fn seed() -> u64 {
    number("COPIES_SEED").unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        u64::from(now.subsec_nanos()) << 16 | now.as_secs() & 0xFFFF
    })
}

/// Runs the plan, unless there is nothing to run it on.
pub(crate) async fn run(plan: Plan) {
    // One at a time: what is measured is nodes that have the machine.
    static ALONE: Mutex<()> = Mutex::const_new(());
    let _alone = ALONE.lock().await;
    let Some(binary) = binary() else { return };
    if plan.nodes > 1 && !has_copies(&binary) {
        eprintln!(
            "skipped: copies that are killed ({} has no --cluster)",
            binary.display()
        );
        return;
    }
    let Plan {
        name, seed, kills, ..
    } = plan;
    eprintln!("{name}: COPIES_SEED={seed} COPIES_KILLS={kills}");
    let root = tempfile::tempdir().unwrap();
    let (history, result, summary) = carry_out(&plan, &binary, root.path()).await;
    let outcomes = outcomes(&history);
    let began = Instant::now();
    // Snapshots are promised to those that fail, too. All others keep their numbers.
    let model = Model::new(Isolation::SnapshotIsolation).strict();
    let report = check(&history.with_reads_of_failed(), model);
    let checked = began.elapsed();
    eprintln!("{name}: {summary}\n{outcomes}\n  {report}\n  checked in {checked:?}");
    let failed = result.is_err() || !report.is_clean();
    if failed || std::env::var_os("COPIES_KEEP").is_some() {
        let file = root.path().join("history.jsonl");
        history
            .write(BufWriter::new(File::create(&file).unwrap()))
            .unwrap();
        eprintln!("{name}: kept in {}", root.keep().display());
    }
    if let Err(text) = result {
        panic!("{name}, COPIES_SEED={seed} COPIES_KILLS={kills}: {text}");
    }
    assert!(
        report.is_clean(),
        "{name}, COPIES_SEED={seed} COPIES_KILLS={kills}: {report}"
    );
    assert!(
        is_missed(history),
        "the checker misses an append that is not there"
    );
}

/// The history, what went wrong, and what was done.
async fn carry_out(
    plan: &Plan,
    binary: &Path,
    root: &Path,
) -> (History, Result<(), String>, String) {
    let cluster = root.join("cluster");
    std::fs::create_dir(&cluster).unwrap();
    let names = ["a", "b"].into_iter().take(plan.nodes);
    let cluster = (plan.nodes > 1).then_some(cluster.as_path());
    let nodes: Vec<Node> = names.map(|name| Node::new(name, root, cluster)).collect();
    let shared = Arc::new(Shared::new(nodes.iter().map(|node| node.sql).collect()));
    let mut nemesis = Nemesis::new(plan, binary, &shared, nodes);
    let mut result = nemesis.prepare().await;
    let clients = match result {
        Ok(()) => clients(&shared, plan.seed),
        Err(_) => Vec::new(),
    };
    if result.is_ok() {
        result = nemesis.run().await;
    }
    if let Err(text) = &mut result {
        let standing = nemesis.standing().await;
        *text = format!("{text}\n{standing}");
    }
    shared.stop.store(true, Ordering::Relaxed);
    // Nobody waits for an answer any more.
    nemesis.nodes.iter_mut().for_each(Node::kill);
    for client in clients {
        result = result.and(match tokio::time::timeout(END_MAX, client).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(panic)) => Err(format!("a client ended: {panic}")),
            Err(_) => Err("a client does not end".to_owned()),
        });
    }
    let history = History {
        transactions: shared.take_history(),
    };
    (history, result, nemesis.summary())
}

fn clients(shared: &Arc<Shared>, seed: u64) -> Vec<JoinHandle<()>> {
    let writers = (0..WRITERS).map(|process| {
        let shared = Arc::clone(shared);
        tokio::spawn(async move { write(&shared, process, seed).await })
    });
    let readers = (0..READERS).map(|reader| {
        let shared = Arc::clone(shared);
        let first_process = 1_000_000 * (reader + 1);
        tokio::spawn(async move { read(&shared, first_process, seed).await })
    });
    writers.chain(readers).collect()
}

/// How many transactions ended in each way.
fn outcomes(history: &History) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for transaction in history
        .transactions
        .iter()
        .filter(|transaction| !transaction.last)
    {
        let by = if transaction.copy {
            "on copies"
        } else {
            "on leaders"
        };
        let name = format!("{by}: {:?} {}", transaction.outcome, transaction.note);
        *counts.entry(name).or_default() += 1;
    }
    let lines: Vec<String> = counts
        .iter()
        .map(|(name, count)| format!("  {count:8} {name}"))
        .collect();
    lines.join("\n")
}

/// Whether the checker would have seen it if an acknowledged append were not there at the end.
fn is_missed(mut history: History) -> bool {
    let acknowledged = history.transactions.iter().find_map(|transaction| {
        let append = transaction
            .operations
            .iter()
            .find_map(|operation| match operation {
                Operation::Append { key, value } => Some((*key, *value)),
                Operation::Read { .. } => None,
            });
        append.filter(|_| transaction.outcome == Outcome::Ok)
    });
    let Some((of, number)) = acknowledged else {
        return false;
    };
    let last = history
        .transactions
        .iter_mut()
        .filter(|transaction| transaction.last);
    for operation in last.flat_map(|transaction| &mut transaction.operations) {
        if let Operation::Read { key, list } = operation
            && *key == of
        {
            list.retain(|value| *value != number);
        }
    }
    check(&history, Model::new(Isolation::ReadCommitted)).has(Kind::LostAppend)
}
