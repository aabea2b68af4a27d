//! Each anomaly in the smallest history that has it.
//!
//! A line is a transaction: its outcome, flags, and its operations. `a x 1` appends 1 to `x`, and
//! `r x 12` reads 1 and 2 in it. All overlap and are of processes of their own unless `p3` and
//! `10-20` say otherwise.

use crate::{
    Class, EdgeKind, History, Isolation, Kind, Model, Operation, Outcome, Report, Transaction,
    TransactionId, Via, check,
};

const RC: Model = Model::new(Isolation::ReadCommitted);
const SI: Model = Model::new(Isolation::SnapshotIsolation);
const SERIALIZABLE: Model = Model::new(Isolation::Serializable);

fn history(text: &str) -> History {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let transactions = lines.enumerate().map(|(at, line)| transaction(at, line));
    History {
        transactions: transactions.collect(),
    }
}

fn transaction(at: usize, line: &str) -> Transaction {
    let (head, operations) = line.split_once(':').unwrap();
    let mut transaction = Transaction {
        process: 100 + at as u32,
        invoked_ns: 0,
        completed_ns: 1000,
        outcome: Outcome::Ok,
        copy: false,
        last: false,
        note: String::new(),
        operations: Vec::new(),
    };
    for word in head.split_whitespace() {
        match word {
            "ok" => {}
            "fail" => transaction.outcome = Outcome::Fail,
            "info" => transaction.outcome = Outcome::Info,
            "copy" => transaction.copy = true,
            "last" => transaction.last = true,
            _ if word.starts_with('p') => transaction.process = word[1..].parse().unwrap(),
            _ => {
                let (from, to) = word.split_once('-').unwrap();
                transaction.invoked_ns = from.parse().unwrap();
                transaction.completed_ns = to.parse().unwrap();
            }
        }
    }
    for operation in operations.split(',') {
        let words: Vec<&str> = operation.split_whitespace().collect();
        let key = u64::from(words[1].as_bytes()[0] - b'x');
        let values = words.get(2).copied().unwrap_or_default();
        transaction.operations.push(match words[0] {
            "a" => Operation::Append {
                key,
                value: values.parse().unwrap(),
            },
            _ => Operation::Read {
                key,
                list: values
                    .bytes()
                    .map(|digit| u64::from(digit - b'0'))
                    .collect(),
            },
        });
    }
    transaction
}

fn found(text: &str, model: Model) -> Vec<Kind> {
    check(&history(text), model).counts.into_keys().collect()
}

fn cycle(class: Class) -> Kind {
    Kind::Cycle(class, Via::Data)
}

#[test]
fn a_right_history_has_nothing() {
    let text = "
        ok: a x 1, a y 1
        ok: r x 1, a x 2, r x 12
        fail: a x 3, r x 13
        info: a y 4
        ok: r x 12, r y 1
        ok: r y 14";
    assert_eq!(found(text, SERIALIZABLE), []);
    assert_eq!(found("", SERIALIZABLE.strict()), []);
}

#[test]
fn duplicates() {
    let text = "ok: a x 1\n ok: r x 11";
    assert_eq!(found(text, RC), [Kind::Duplicate]);
}

#[test]
fn values_that_nobody_appended() {
    assert_eq!(found("ok: r x 7", RC), [Kind::UnknownValue]);
    // What follows of others is still known.
    let text = "ok: a x 1\n ok: a x 2\n ok: r x 172\n ok: r x 1, r y 5\n ok: a y 5, r x 172";
    assert_eq!(found(text, SI), [Kind::UnknownValue, cycle(Class::GSingle)]);
}

#[test]
fn values_appended_twice() {
    assert_eq!(found("ok: a x 1\n ok: a x 1", RC), [Kind::NotUnique]);
}

#[test]
fn incompatible_orders() {
    let text = "ok: a x 1\n ok: a x 2\n ok: r x 12\n ok: r x 2";
    assert_eq!(found(text, RC), [Kind::IncompatibleOrder]);
}

#[test]
fn aborted_read() {
    let text = "fail: a x 1\n ok: r x 1";
    assert_eq!(found(text, RC), [Kind::G1a]);
    // Nobody promises anything to who is not committed.
    assert_eq!(found("fail: a x 1\n fail: r x 1", SERIALIZABLE), []);
}

#[test]
fn intermediate_read() {
    let text = "ok: a x 1, a x 2\n ok: r x 1\n ok: r x 12";
    assert!(found(text, RC).contains(&Kind::G1b));
    // A transaction may read its own.
    assert_eq!(found("ok: a x 1, r x 1, a x 2\n ok: r x 12", RC), []);
}

#[test]
fn torn_transactions() {
    for read in ["21", "2", "13", "132", "32"] {
        let text = format!("ok: a x 1, a x 2\n ok: a x 3\n ok: r x {read}");
        let kinds = found(&text, RC);
        assert!(kinds.contains(&Kind::Torn), "{read}: {kinds:?}");
    }
    let text = "ok: a x 1, a y 2, a x 3\n ok: a x 4\n ok: r x 134";
    assert_eq!(found(text, SERIALIZABLE), []);
}

#[test]
fn internal_inconsistency() {
    assert_eq!(found("ok: a x 1, r x", RC), [Kind::Internal]);
    let text = "ok: a x 1, r x 12\n ok: a x 2";
    assert!(found(text, RC).contains(&Kind::Internal));
    assert_eq!(found("ok: r x 1, a x 1", RC), [Kind::Internal]);
}

#[test]
fn non_repeatable_read() {
    let text = "ok: a x 1\n ok: r x, r x 1";
    assert_eq!(found(text, RC), []);
    assert_eq!(
        found(text, SI),
        [Kind::NonRepeatable, cycle(Class::GSingle)]
    );
}

#[test]
fn dirty_update() {
    let text = "fail: a x 1\n ok: a x 2\n ok: r x 12";
    assert_eq!(found(text, RC), [Kind::G1a, Kind::DirtyUpdate]);
}

#[test]
fn lost_update() {
    let text = "ok: r x, a x 1\n ok: r x, a x 2\n ok: r x 12";
    assert_eq!(found(text, RC), []);
    assert_eq!(found(text, SI), [Kind::LostUpdate, cycle(Class::GSingle)]);
    // Who appends first and reads then has not read what others did.
    let text = "ok: a x 1, r x 1\n ok: a x 2, r x 12\n ok: r x 12";
    assert_eq!(found(text, SERIALIZABLE), []);
}

#[test]
fn lost_append() {
    let text = "ok 0-10: a x 1\n ok last 20-30: r x";
    assert_eq!(found(text, RC), [Kind::LostAppend]);
    assert_eq!(found("info 0-10: a x 1\n ok last 20-30: r x", RC), []);
    // What somebody has read is there, too, whoever appended it.
    let text = "info 0-10: a x 1\n ok 2-5: r x 1\n ok last 20-30: r x";
    assert_eq!(found(text, RC), [Kind::LostAppend]);
    // Beside the last read nothing is over.
    assert_eq!(found("ok 0-25: a x 1\n ok last 20-30: r x", RC), []);
}

#[test]
fn g0() {
    let text = "ok: a x 1, a y 1\n ok: a x 2, a y 2\n ok: r x 12, r y 21";
    let kinds = found(text, RC);
    assert!(kinds.contains(&cycle(Class::G0)), "{kinds:?}");
}

#[test]
fn g1c() {
    let text = "ok: a x 1, r y 2\n ok: a y 2, r x 1";
    assert_eq!(found(text, RC), [cycle(Class::G1c)]);
}

#[test]
fn g_single() {
    // Read skew.
    let text = "ok: a x 1, a y 1\n ok: r x 1, r y\n ok: r y 1";
    assert_eq!(found(text, RC), []);
    assert_eq!(found(text, SI), [cycle(Class::GSingle)]);
}

#[test]
fn g_nonadjacent() {
    // Long fork: two readers see two writers in different orders.
    let text = "ok: a x 1\n ok: a y 2\n ok: r x 1, r y\n ok: r x, r y 2\n ok: r x 1, r y 2";
    assert_eq!(found(text, RC), []);
    assert_eq!(found(text, SI), [cycle(Class::GNonadjacent)]);
}

#[test]
fn g2_item() {
    // Write skew.
    let text = "ok: r x, a y 1\n ok: r y, a x 2\n ok: r x 2, r y 1";
    assert_eq!(found(text, SI), []);
    assert_eq!(found(text, SERIALIZABLE), [cycle(Class::G2Item)]);
}

#[test]
fn the_witness_is_the_cycle_in_words() {
    let text = "ok: a x 1, a y 1\n ok: r x 1, r y\n ok: r y 1";
    let report = check(&history(text), SI);
    let anomaly = &report.anomalies[0];
    assert_eq!(anomaly.transactions, [TransactionId(2), TransactionId(1)]);
    assert_eq!(anomaly.steps[0].kind, EdgeKind::Rw);
    assert_eq!(
        report.to_string(),
        "3 of 3 transactions committed; SnapshotIsolation, sessions false, real time false: 1 of G-single\n  \
         G-single: T2, T1 come before one another\n    \
         T2 --rw--> T1: T2 read 1 as empty, without 1, which T1 appended next\n    \
         T1 --wr--> T2: T1 appended 1 to 0, T2 read it"
    );
}

#[test]
fn witnesses_are_minimal() {
    // A long way around, and a short one through the same rw edge.
    let text = "
        ok: a x 1, a y 1
        ok: r y 1, a y 2
        ok: r y 12, a y 3
        ok: r y 123, r x
        ok: r x 1
        ok: a z 1, r x
        ok: r z 1, a x 2
        ok: r x 12";
    let report = check(&history(text), SI);
    let lengths: Vec<usize> = report.anomalies.iter().map(|one| one.steps.len()).collect();
    assert!(report.has_cycle(Class::GSingle), "{report}");
    assert!(lengths.iter().all(|&length| length <= 4), "{report}");
}

#[test]
fn sessions_see_what_they_have_seen() {
    let stale = "ok p1 0-10: a x 1\n ok p1 20-30: r x\n ok: r x 1";
    assert_eq!(found(stale, SERIALIZABLE), []);
    let of_process = Kind::Cycle(Class::GSingle, Via::Process);
    assert_eq!(found(stale, SI.strong_session()), [of_process]);
    // Of another process it is only late.
    let stale = "ok p1 0-10: a x 1\n ok p2 20-30: r x\n ok: r x 1";
    assert_eq!(found(stale, SI.strong_session()), []);
    assert_eq!(
        found(stale, SI.strict()),
        [Kind::Cycle(Class::GSingle, Via::RealTime)]
    );
    assert_eq!(found(stale, RC.strict()), []);
    // Of a copy it may be.
    let stale = "ok p1 0-10: a x 1\n ok copy p2 20-30: r x\n ok: r x 1";
    assert_eq!(found(stale, SI.strict()), []);
}

#[test]
fn what_nobody_read_is_behind_what_was_read() {
    // The acknowledged append is missed by a read that came later, and is read by nobody.
    let text = "ok 0-10: a x 1\n ok 20-30: r x";
    assert_eq!(
        found(text, SI.strict()),
        [Kind::Cycle(Class::GSingle, Via::RealTime)]
    );
}

#[test]
fn real_time_leads_past_many() {
    let mut text = String::new();
    for at in 0..50 {
        text += &format!("ok {}-{}: a y 1{at}\n", at * 10, at * 10 + 5);
    }
    let text = format!("ok 0-1: a x 1\n{text} ok 1000-1010: r x\n ok: r x 1");
    let report = check(&history(&text), SI.strict());
    assert!(report.has_cycle(Class::GSingle), "{report}");
}

#[test]
fn unknown_outcomes_count_once_they_are_read() {
    // Nobody read what the unknown one appended: it may have failed, whatever it read.
    let text = "info: r x, a y 2\n ok: a x 1\n ok: r x 1, r y";
    assert_eq!(found(text, SERIALIZABLE), []);
    let text = "info: r x 1, r y, a z 3\n ok: a x 1, a y 1\n ok: r z 3, r y 1";
    assert_eq!(found(text, SI), [cycle(Class::GSingle)]);
    // It may be committed after what its process does next.
    let text = "info p1 0-10: a x 1\n ok p1 20-30: r x\n ok: r x 1";
    assert_eq!(found(text, SI.strict()), []);
}

#[test]
fn what_failed_had_read_a_snapshot() {
    let text = "ok: a x 1, a y 1\n fail: r x 1, r y, a z 2\n ok: r y 1";
    assert_eq!(found(text, SI), []);
    let with_reads = history(text).with_reads_of_failed();
    assert_eq!(with_reads.transactions.len(), 4);
    let report = check(&with_reads, SI);
    assert!(report.has_cycle(Class::GSingle), "{report}");
    // What it appended itself is nobody else's.
    let text = "fail: a x 1, r x 1, r y\n info: a y 2";
    let with_reads = history(text).with_reads_of_failed();
    assert_eq!(with_reads.transactions[2].operations.len(), 1);
    assert!(check(&with_reads, SERIALIZABLE.strict()).is_clean());
}

#[test]
fn odd_histories_are_no_panic() {
    use rand::{Rng, SeedableRng};
    let rounds = if cfg!(debug_assertions) {
        5_000
    } else {
        50_000
    };
    for seed in 0..rounds {
        let mut dice = rand_pcg::Pcg32::seed_from_u64(seed);
        let mut number = |limit: u64| dice.random_range(0..limit);
        let transactions = (0..number(8))
            .map(|_| Transaction {
                process: number(3) as u32,
                invoked_ns: number(50),
                completed_ns: number(50),
                outcome: [Outcome::Ok, Outcome::Ok, Outcome::Fail, Outcome::Info]
                    [number(4) as usize],
                copy: number(4) == 0,
                last: number(4) == 0,
                note: String::new(),
                operations: (0..number(5))
                    .map(|_| match number(2) {
                        0 => Operation::Append {
                            key: number(2),
                            value: number(5),
                        },
                        _ => Operation::Read {
                            key: number(2),
                            list: (0..number(5)).map(|_| number(5)).collect(),
                        },
                    })
                    .collect(),
            })
            .collect();
        let history = History { transactions };
        for model in [
            RC,
            SI,
            SERIALIZABLE,
            SI.strong_session(),
            SERIALIZABLE.strict(),
        ] {
            let report: Report = check(&history, model);
            assert_eq!(report.is_clean(), report.anomalies.is_empty());
            let _ = report.to_string();
        }
    }
}
