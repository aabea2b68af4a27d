//! Clients that write until they are told to stop, and connect again where they are cut off.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio_postgres::{Client, Config, NoTls};

use crate::harness::{Aerostat, PATIENCE};

/// A statement that failed, with its connection.
#[derive(Debug)]
pub(super) struct Cut {
    /// The node that its client had connected to, by its place.
    pub(super) node: usize,
    pub(super) at: Instant,
    pub(super) why: String,
}

#[derive(Default)]
struct Shared {
    stops: AtomicBool,
    next: AtomicI64,
    acknowledged: Mutex<Vec<i64>>,
    cuts: Mutex<Vec<Cut>>,
}

pub(super) struct Writers {
    shared: Arc<Shared>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

/// What writers have done.
pub(super) struct Wrote {
    pub(super) acknowledged: usize,
    pub(super) cuts: Vec<Cut>,
}

/// Connects as soon as the node is there.
async fn connect(at: SocketAddr, stops: &AtomicBool) -> Option<Client> {
    let began = Instant::now();
    let mut config = Config::new();
    config
        .host(at.ip().to_string())
        .port(at.port())
        .user("aerostat")
        .dbname("shop")
        .connect_timeout(PATIENCE);
    while !stops.load(Ordering::Relaxed) {
        if let Ok((client, connection)) = config.connect(NoTls).await {
            tokio::spawn(connection);
            return Some(client);
        }
        assert!(
            began.elapsed() < PATIENCE * 2,
            "the node does not come back"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    None
}

async fn write(at: (usize, SocketAddr), writer: i64, shared: Arc<Shared>) {
    let (node, address) = at;
    while let Some(client) = connect(address, &shared.stops).await {
        while !shared.stops.load(Ordering::Relaxed) {
            let first = shared.next.fetch_add(2, Ordering::Relaxed);
            // A statement, or a transaction of several.
            let sql = match writer % 2 {
                0 => format!("INSERT INTO t VALUES ({first}), ({})", first + 1),
                _ => format!(
                    "BEGIN; INSERT INTO t VALUES ({first}); INSERT INTO t VALUES ({}); COMMIT",
                    first + 1
                ),
            };
            match client.batch_execute(&sql).await {
                Ok(()) => shared
                    .acknowledged
                    .lock()
                    .unwrap()
                    .extend([first, first + 1]),
                Err(error) => {
                    let cut = Cut {
                        node,
                        at: Instant::now(),
                        why: format!("{error:?}"),
                    };
                    let code = error.code().map(|code| code.code().to_owned());
                    let is_cut = code
                        .as_deref()
                        .is_none_or(|code| code.starts_with("08") || code == "57P01");
                    assert!(is_cut, "{error:?}");
                    shared.cuts.lock().unwrap().push(cut);
                    break;
                }
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

impl Writers {
    /// So many clients of each of the nodes.
    pub(super) async fn start(nodes: &[Aerostat], each: i64) -> Writers {
        let shared = Arc::new(Shared::default());
        let mut tasks = Vec::new();
        for (at, node) in nodes.iter().enumerate() {
            for writer in 0..each {
                let task = write((at, node.sql), writer, Arc::clone(&shared));
                tasks.push(tokio::spawn(task));
            }
        }
        Writers { shared, tasks }
    }

    /// Stops them; nothing that was acknowledged is lost.
    pub(super) async fn stop(self, node: &Aerostat) -> Wrote {
        self.shared.stops.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.unwrap();
        }
        let acknowledged = std::mem::take(&mut *self.shared.acknowledged.lock().unwrap());
        let cuts = std::mem::take(&mut *self.shared.cuts.lock().unwrap());
        let found = node.connect("shop").await;
        let found = found.query("SELECT id FROM t", &[]).await.unwrap();
        let there: BTreeSet<i64> = found.iter().map(|row| row.get(0)).collect();
        let lost = acknowledged.iter().filter(|id| !there.contains(id)).count();
        eprintln!(
            "{} acknowledged, {} times cut off",
            acknowledged.len(),
            cuts.len()
        );
        assert_eq!(lost, 0, "acknowledged and lost");
        assert!(acknowledged.len() > 100);
        Wrote {
            acknowledged: acknowledged.len(),
            cuts,
        }
    }
}
