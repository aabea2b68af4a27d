//! Memory limits under analytics: what does not fit spills or is refused, the node stays, and
//! stays small. In a control group whose limit ends a process that does not.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::harness::{Aerostat, command, value};

/// What a node takes beside its `memory`: itself, its threads' stacks, and what the allocator
/// keeps of freed memory for a moment. Measured: 75 to 142 MB.
const BESIDE_MB: u64 = 192;

/// Of TPC-H. Rows take 60 MB before they are frozen.
const SCALE: &str = "0.05";

/// A control group with a limit of memory, in version 2 or 1, whichever is there.
struct Group {
    folder: PathBuf,
    /// The file and the line that count processes which were ended.
    kills: (&'static str, &'static str),
}

impl Group {
    fn new(limit_mb: u64) -> Result<Group, String> {
        let name = format!("aerostat-test-{}-{limit_mb}", std::process::id());
        let own = fs::read_to_string("/proc/self/cgroup").map_err(|error| error.to_string())?;
        // `number:controllers:path`, the path of this process in the hierarchy.
        let path = |controller: &str| {
            own.lines().find_map(|line| {
                let mut parts = line.splitn(3, ':').skip(1);
                let (controllers, path) = (parts.next()?, parts.next()?);
                (controllers == controller).then(|| path.trim_start_matches('/').to_owned())
            })
        };
        let limit = (limit_mb << 20).to_string();
        let mut reasons = Vec::new();
        for (mount, controller, file, kills) in [
            (
                "/sys/fs/cgroup",
                "",
                "memory.max",
                ("memory.events", "oom_kill "),
            ),
            (
                "/sys/fs/cgroup/memory",
                "memory",
                "memory.limit_in_bytes",
                ("memory.oom_control", "oom_kill "),
            ),
        ] {
            let own = path(controller).unwrap_or_default();
            // Below this process's own group, or where that is not visible, at the top.
            for parent in [Path::new(mount).join(own), PathBuf::from(mount)] {
                let folder = parent.join(&name);
                if let Err(error) = fs::create_dir(&folder) {
                    reasons.push(format!("{}: {error}", folder.display()));
                    continue;
                }
                let group = Group { folder, kills };
                // Where there is no such file already, this is no control group.
                let limited = File::options()
                    .write(true)
                    .open(group.folder.join(file))
                    .and_then(|mut file| file.write_all(limit.as_bytes()));
                match limited {
                    Ok(()) => return Ok(group),
                    Err(error) => {
                        reasons.push(format!("{}/{file}: {error}", group.folder.display()));
                    }
                }
            }
        }
        Err(reasons.join("; "))
    }

    /// The processes that the system has ended because of the limit.
    fn kills(&self) -> u64 {
        let (file, line) = self.kills;
        let text = fs::read_to_string(self.folder.join(file)).unwrap();
        let count = text.lines().find_map(|found| found.strip_prefix(line));
        count.unwrap().trim().parse().unwrap()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The node has ended; its last thread may take a moment.
        for _ in 0..100 {
            if fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        eprintln!("{} is left", self.folder.display());
    }
}

#[derive(Deserialize)]
struct Query {
    id: String,
    sql: String,
}

fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

fn queries() -> Vec<Query> {
    let listed = output(command().args(["bench", "queries", "--suite", "tpch", "--scale", SCALE]));
    serde_json::from_str(&listed).unwrap()
}

fn load(node: &Aerostat) {
    let url = format!("postgres://aerostat@{}", node.sql);
    let arguments = [
        "load",
        "tpch",
        "--scale",
        SCALE,
        "--tenant",
        "t",
        "--parallel",
        "2",
    ];
    output(command().args(arguments).args(["--url", &url]));
}

/// The rows, or the SQLSTATE.
async fn answer(client: &Client, sql: &str) -> Result<Vec<Vec<String>>, String> {
    let messages = client
        .simple_query(sql)
        .await
        .map_err(|error| match error.code() {
            Some(code) => code.code().to_owned(),
            None => panic!("{sql}: {error:?}"),
        })?;
    let rows = messages.into_iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    let text = |row: tokio_postgres::SimpleQueryRow| {
        (0..row.len())
            .map(|at| row.get(at).unwrap_or("NULL").to_owned())
            .collect()
    };
    Ok(rows.map(text).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn tpch_in_little_memory_is_right_or_refused() {
    if let Err(reasons) = Group::new(1024) {
        eprintln!(
            "skipped: TPC-H in control groups with limits of memory (cannot make one: {reasons})"
        );
        return;
    }
    let queries = queries();
    let mut expected = BTreeMap::new();
    {
        let node = Aerostat::start();
        load(&node);
        let client = node.connect("t").await;
        for query in &queries {
            expected.insert(&query.id, answer(&client, &query.sql).await.unwrap());
        }
    }
    for memory_mb in [64, 96, 128, 256] {
        let group = Group::new(memory_mb + BESIDE_MB).unwrap();
        let joined = group.folder.join("cgroup.procs").display().to_string();
        let mut node = Aerostat::start_within(
            tempfile::tempdir().unwrap(),
            &["--memory", &format!("{memory_mb}MB")],
            &[("JOINED_CGROUP".to_owned(), joined)],
        );
        load(&node);
        let client = node.connect("t").await;
        let mut refused = Vec::new();
        for query in &queries {
            match answer(&client, &query.sql).await {
                Ok(rows) => assert_eq!(rows, expected[&query.id], "{} in {memory_mb} MB", query.id),
                Err(state) => {
                    assert_eq!(state, "53200", "{} in {memory_mb} MB", query.id);
                    refused.push(&query.id);
                }
            }
            let used = node.metric("aerostat_memory_used_bytes");
            assert!(
                used <= (memory_mb << 20) as f64,
                "{used} bytes after {}",
                query.id
            );
        }
        eprintln!(
            "{memory_mb} MB: {} of {} refused: {refused:?}",
            refused.len(),
            queries.len()
        );
        match memory_mb {
            // Rows take nearly all of it.
            64 => assert!(!refused.is_empty(), "the limit is none"),
            256 => assert!(refused.is_empty(), "{refused:?}"),
            _ => {}
        }
        assert_eq!(value(&client, "SELECT count(*) FROM nation").await, "25");
        assert_eq!(group.kills(), 0, "{memory_mb} MB");
        assert!(node.is_running());
        drop(client);
        node.kill();
    }
}
