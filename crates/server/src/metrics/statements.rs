//! How many statements of each tenant run and wait, and how many were turned away.

use aerostat_embedded::StatementCounts;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::{IntegerGauge, TenantLabels, TenantSample};

/// The series.
#[derive(Default)]
pub(super) struct StatementMetrics {
    running: Family<TenantLabels, IntegerGauge>,
    waiting: Family<TenantLabels, IntegerGauge>,
    refused: Family<TenantLabels, Counter>,
    timed_out: Family<TenantLabels, Counter>,
}

impl StatementMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "tenant_statements_running",
            "Statements that have a place among those that run, by tenant",
            self.running.clone(),
        );
        registry.register(
            "tenant_statements_waiting",
            "Statements that wait for others to end, by tenant",
            self.waiting.clone(),
        );
        registry.register(
            "tenant_statements_refused",
            "Statements that found the queue full, by tenant",
            self.refused.clone(),
        );
        registry.register(
            "tenant_statements_timed_out",
            "Statements that have waited too long for others to end, by tenant",
            self.timed_out.clone(),
        );
    }

    /// Shows what tenants do now; those that share a label are added up.
    pub(super) fn set(&self, tenants: &[TenantSample], label: impl Fn(&str) -> String) {
        self.running.clear();
        self.waiting.clear();
        self.refused.clear();
        self.timed_out.clear();
        for sample in tenants {
            let StatementCounts {
                running,
                waiting,
                refused,
                timed_out,
            } = sample.statements;
            let labels = TenantLabels {
                tenant: label(&sample.name),
            };
            self.running.get_or_create(&labels).inc_by(running.into());
            self.waiting.get_or_create(&labels).inc_by(waiting.into());
            self.refused.get_or_create(&labels).inc_by(refused);
            self.timed_out.get_or_create(&labels).inc_by(timed_out);
        }
    }
}
