//! A broker's metrics in Prometheus' text format.

use std::sync::{Mutex, PoisonError};

use aerostat_broker::core::Status;
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{family::Family, gauge::Gauge},
    registry::{Registry, Unit},
};

/// The last status.
#[derive(Default)]
pub(super) struct Metrics(Mutex<Option<Status>>);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Participant {
    participant: String,
}

impl Metrics {
    pub(super) fn set(&self, status: Status) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(status);
    }

    /// The page. It has no numbers before the broker has looked for the first time.
    pub(super) fn render(&self) -> String {
        let status = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let mut registry = Registry::with_prefix("aerostat_broker");
        if let Some(status) = status {
            register(&mut registry, &status);
        }
        let mut text = String::new();
        // Writing to a String does not fail.
        let _ = encode(&mut text, &registry);
        text
    }
}

fn register(registry: &mut Registry, status: &Status) {
    let of_broker = [
        (
            "budget",
            "What all participants may have, the reserve included.",
            status.budget,
        ),
        ("reserve", "What is never granted.", status.reserve),
        ("free", "What may be granted.", status.free),
        (
            "in_transit",
            "What is between two participants.",
            status.in_transit,
        ),
        (
            "held_back",
            "What is held back since tasks of the machine wait for memory.",
            status.held_back,
        ),
    ];
    for (name, help, bytes) in of_broker {
        let gauge = Gauge::<i64>::default();
        gauge.set(whole(bytes));
        registry.register_with_unit(name, help, Unit::Bytes, gauge);
    }
    let waiting = Gauge::<i64>::default();
    waiting.set(i64::try_from(status.waiting.len()).unwrap_or(i64::MAX));
    registry.register("waiting", "Programs that wait for their floor.", waiting);
    let family = Family::<Participant, Gauge>::default;
    let (granted, target, account, wanted, connected) =
        (family(), family(), family(), family(), family());
    for one in &status.participants {
        let label = Participant {
            participant: one.name.clone(),
        };
        granted.get_or_create(&label).set(whole(one.granted));
        target.get_or_create(&label).set(whole(one.target));
        if let Some(bytes) = one.account {
            account.get_or_create(&label).set(whole(bytes));
        }
        if let Some(bytes) = one.wanted {
            wanted.get_or_create(&label).set(whole(bytes));
        }
        connected
            .get_or_create(&label)
            .set(i64::from(one.state != "lost"));
    }
    let families = [
        ("granted", "What a participant may have.", granted),
        ("target", "What a participant was told to have.", target),
        (
            "account",
            "What the kernel counts of a participant.",
            account,
        ),
        ("wanted", "What a participant says that it wants.", wanted),
    ];
    for (name, help, family) in families {
        registry.register_with_unit(name, help, Unit::Bytes, family);
    }
    registry.register(
        "connected",
        "Whether a participant is connected.",
        connected,
    );
}

fn whole(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use aerostat_broker::{core::ParticipantStatus, policy::Policy};

    use super::*;

    #[test]
    fn numbers_are_those_of_the_last_status() {
        let metrics = Metrics::default();
        assert_eq!(metrics.render(), "# EOF\n");
        metrics.set(Status {
            budget: 10,
            reserve: 1,
            free: 2,
            in_transit: 0,
            held_back: 0,
            policy: Policy::Static,
            is_dry_run: false,
            participants: vec![ParticipantStatus {
                name: "shop".to_owned(),
                kind: String::new(),
                pid: None,
                state: "lost".to_owned(),
                floor: 1,
                ceiling: 9,
                granted: 7,
                target: 6,
                account: None,
                used: None,
                wanted: Some(8),
                pinned: None,
                why: String::new(),
            }],
            waiting: Vec::new(),
        });
        let page = metrics.render();
        for line in [
            "aerostat_broker_budget_bytes 10",
            "aerostat_broker_granted_bytes{participant=\"shop\"} 7",
            "aerostat_broker_wanted_bytes{participant=\"shop\"} 8",
            "aerostat_broker_connected{participant=\"shop\"} 0",
        ] {
            assert!(page.contains(line), "{line}: {page}");
        }
        assert!(!page.contains("account_bytes{"), "{page}");
    }
}
