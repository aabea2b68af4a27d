//! Packets that no sound node sends: a process may fail over them, and end, but it does not panic, and what it
//! leaves on its disk can be opened.

use std::{sync::Arc, time::Duration};

use aerostat_replication::{
    Config, Epoch, History, Incarnation, Member, Message, NodeId, Position, Settings,
};
use aerostat_storage::{StreamPoint, simulated::SimDisk};
use aerostat_types::CommitTs;
use rand::{Rng, SeedableRng, rngs::StdRng};

use super::node::{Process, first};
use crate::{Job, Packet, Records};

fn member(random: &mut StdRng) -> Member {
    Member {
        node: NodeId(random.random_range(0..3)),
        incarnation: Incarnation(random.random_range(1..4)),
    }
}

fn lsn(random: &mut StdRng) -> CommitTs {
    match random.random_range(0..8) {
        0 => CommitTs(u64::MAX),
        1 => CommitTs(1 << 61),
        _ => CommitTs(random.random_range(0..12)),
    }
}

fn epoch(random: &mut StdRng) -> Epoch {
    Epoch(random.random_range(0..8))
}

fn starts(random: &mut StdRng) -> Vec<(Epoch, CommitTs)> {
    let count = random.random_range(0..3);
    (0..count).map(|_| (epoch(random), lsn(random))).collect()
}

fn config(random: &mut StdRng) -> Config {
    let count = random.random_range(0..4);
    Config {
        epoch: epoch(random),
        leader: NodeId(random.random_range(0..3)),
        members: (0..count).map(|_| member(random)).collect(),
    }
}

fn message(random: &mut StdRng) -> Message {
    let sent = Duration::from_millis(random.random_range(0..5_000));
    match random.random_range(0..7) {
        0..3 => Message::Append {
            config: config(random),
            after: Position {
                epoch: epoch(random),
                lsn: lsn(random),
            },
            through: lsn(random),
            starts: starts(random),
            committed: lsn(random),
            sent,
        },
        3 => Message::Has {
            epoch: epoch(random),
            through: lsn(random),
            sent,
        },
        4 => Message::Over {
            epoch: epoch(random),
        },
        5 => Message::Join {
            member: member(random),
            // Others are refused where they are decoded.
            history: History::checked(starts(random), lsn(random)).unwrap_or_default(),
        },
        _ => Message::Started {
            member: member(random),
            end: Position {
                epoch: epoch(random),
                lsn: lsn(random),
            },
        },
    }
}

/// Bytes of the log of a real tenant, in part, or of none.
fn records(log: &[u8], random: &mut StdRng) -> Records {
    let from = random.random_range(0..=log.len());
    let to = random.random_range(from..=log.len());
    let bytes = match random.random_range(0..4) {
        0 => Vec::new(),
        1 => (0..random.random_range(0..80))
            .map(|_| random.random())
            .collect(),
        2 => log.to_vec(),
        _ => log[from..to].to_vec(),
    };
    Records {
        from: StreamPoint {
            after: lsn(random),
            since: random.random_range(0..4),
        },
        bytes,
    }
}

#[test]
fn no_packet_makes_a_process_panic() {
    let seed = std::env::var("HOSTILE_SEED").map_or(3, |text| text.parse().unwrap());
    let mut random = StdRng::seed_from_u64(seed);
    for round in 0..100 {
        println!("HOSTILE_SEED={seed}, round {round}");
        let disk = SimDisk::new(random.random());
        let timeline = first(&disk);
        let mut number = 1;
        let start = |disk: &Arc<SimDisk>, node, number| {
            Process::start(disk, timeline, node, number, Settings::default())
        };
        let mut process = start(&disk, random.random_range(0..2), number).unwrap();
        let log = {
            let mut reader = process
                .driver
                .store()
                .unwrap()
                .log_reader(CommitTs(0), Arc::new(|| {}))
                .unwrap();
            reader.next(1 << 20).unwrap().unwrap()
        };
        for at in 0..400_u64 {
            let now = Duration::from_millis(at * 20);
            let (driver, host) = (&mut process.driver, &mut process.host);
            let done = match random.random_range(0..10) {
                0 => driver.tick(now, host),
                1 => driver.config(now, Some(config(&mut random)), host),
                2 => driver.swapped(now, Some(config(&mut random)), host),
                3 => driver.config(now, None, host),
                4 => {
                    std::mem::take(&mut host.jobs)
                        .into_iter()
                        .for_each(Job::run);
                    driver.written(now, host)
                }
                5 => {
                    // What it has asked for comes to be.
                    match host.asked.pop().flatten() {
                        Some(asked) => driver.swapped(now, Some(asked), host),
                        None => Ok(()),
                    }
                }
                _ => {
                    let has_message = random.random_bool(0.8);
                    let packet = Packet {
                        from: member(&mut random),
                        epoch: epoch(&mut random),
                        tenure: epoch(&mut random),
                        durable: lsn(&mut random),
                        settled: lsn(&mut random),
                        lacking: random.random_bool(0.02).then(|| member(&mut random)),
                        message: has_message.then(|| message(&mut random)),
                        records: records(&log, &mut random),
                    };
                    driver.receive(now, packet, host)
                }
            };
            host.sent.clear();
            if done.is_err() {
                drop(process);
                number += 1;
                process = match start(&disk, random.random_range(0..2), number) {
                    Ok(process) => process,
                    Err(error) => panic!("what is left cannot be opened: {error:?}"),
                };
            }
        }
    }
}
