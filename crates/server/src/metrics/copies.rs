//! Metrics of a node's copies, in a cluster.

use std::sync::atomic::{AtomicI64, AtomicU64};

use aerostat_cluster::CopySample;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::TenantLabels;

type Whole = Family<TenantLabels, Gauge<i64, AtomicI64>>;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PeerLabels {
    tenant: String,
    node: String,
}

/// Of each database that other nodes have, too.
#[derive(Default)]
pub(super) struct CopyMetrics {
    leads: Whole,
    epoch: Whole,
    members: Whole,
    uncommitted: Whole,
    silence: Family<TenantLabels, Gauge<f64, AtomicU64>>,
    behind: Family<PeerLabels, Gauge<i64, AtomicI64>>,
}

impl CopyMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "copy_leads",
            "1 for a tenant whose changes this node takes, 0 for one that another node leads",
            self.leads.clone(),
        );
        registry.register(
            "copy_epoch",
            "The number of the configuration by which a tenant is led",
            self.epoch.clone(),
        );
        registry.register(
            "copy_members",
            "Nodes that must have a tenant's commit before it is acknowledged",
            self.members.clone(),
        );
        registry.register(
            "copy_uncommitted",
            "Places of a tenant's log that are here and not known to be committed",
            self.uncommitted.clone(),
        );
        registry.register_with_unit(
            "copy_leader_silence",
            "Time since a tenant's leader was heard",
            Unit::Seconds,
            self.silence.clone(),
        );
        registry.register(
            "copy_behind",
            "Places of a tenant's log that another node has not written, by node; at the leader",
            self.behind.clone(),
        );
    }

    /// `label` gives the label of a tenant's name.
    pub(super) fn set(&self, copies: &[CopySample], label: impl Fn(&str) -> String) {
        for family in [&self.leads, &self.epoch, &self.members, &self.uncommitted] {
            family.clear();
        }
        self.silence.clear();
        self.behind.clear();
        let whole = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        for copy in copies {
            let tenant = label(&copy.database);
            let labels = TenantLabels {
                tenant: tenant.clone(),
            };
            let set = |family: &Whole, number| family.get_or_create_owned(&labels).set(number);
            set(&self.leads, i64::from(copy.leads));
            set(&self.epoch, whole(copy.epoch));
            set(&self.members, whole(copy.members as u64));
            set(&self.uncommitted, whole(copy.uncommitted));
            if let Some(seconds) = copy.silent_seconds {
                self.silence.get_or_create_owned(&labels).set(seconds);
            }
            for (node, places) in &copy.behind {
                let labels = PeerLabels {
                    tenant: tenant.clone(),
                    node: node.clone(),
                };
                self.behind.get_or_create_owned(&labels).set(whole(*places));
            }
        }
    }
}
