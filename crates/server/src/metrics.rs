//! Metrics in Prometheus' text format.
//!
//! Labels are bounded: `tenant` by the number of databases, of which the first
//! [`TENANTS_LABELLED_MAX`] have their own series and the others share
//! `tenant="other"`; `kind` and `outcome` are closed sets. docs/operations.md lists
//! every series.
//!
//! Counters are fed by the engine's observer as statements end. Gauges that the
//! engine knows are read when `/metrics` is asked for, never kept in step.

mod copies;
mod statements;

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use aerostat_cluster::CopySample;
use aerostat_embedded::StatementCounts;
use copies::CopyMetrics;
use statements::StatementMetrics;

use crate::process;

/// Tenants with series of their own. A thousand tenants make some 30,000 lines of
/// `/metrics`, about what one scrape of a large program has.
pub(crate) const TENANTS_LABELLED_MAX: usize = 1000;

/// Upper bounds of the latency histogram, in seconds: five steps per factor of ten
/// around the goal of 1 s, from a primary-key lookup to a query nobody waits for.
const LATENCY_BOUNDS_S: [f64; 14] = [
    0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0,
];

/// The kinds of statements that engines tell of.
const KINDS: [&str; 7] = [
    "select", "insert", "update", "delete", "copy", "ddl", "other",
];

/// How a statement ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Ok,
    Error,
    Cancelled,
}

impl Outcome {
    const fn label(self) -> &'static str {
        match self {
            Outcome::Ok => "ok",
            Outcome::Error => "error",
            Outcome::Cancelled => "cancelled",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatementLabels {
    tenant: String,
    kind: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TenantLabels {
    tenant: String,
}

/// What memory is used for; the node's own has no tenant.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MemoryLabels {
    tenant: String,
    class: &'static str,
}

/// Bytes that are used for one thing.
pub(crate) struct MemorySample {
    /// `None` of the node's own.
    pub(crate) tenant: Option<String>,
    pub(crate) class: &'static str,
    pub(crate) bytes: u64,
}

/// A tenant's numbers at the moment of asking.
pub(crate) struct TenantSample {
    pub(crate) name: String,
    pub(crate) memory_used_bytes: u64,
    pub(crate) memory_max_bytes: u64,
    pub(crate) memory_min_bytes: u64,
    pub(crate) connections: u64,
    pub(crate) statements: StatementCounts,
    pub(crate) query_seconds: f64,
    pub(crate) plan_cache_hits: u64,
    pub(crate) plan_cache_misses: u64,
    pub(crate) rows_to_merge: u64,
    pub(crate) rows_due: u64,
    pub(crate) spilled_bytes: u64,
    pub(crate) evicted_bytes: u64,
    pub(crate) read_back_bytes: u64,
}

/// Whether a tenant can be used.
#[derive(Clone, Debug)]
pub(crate) struct TenantState {
    pub(crate) tenant: String,
    /// In a word: `open`, `closed`, or what is wrong.
    pub(crate) state: &'static str,
    /// Whether something is wrong.
    pub(crate) is_degraded: bool,
}

impl TenantState {
    pub(crate) fn is_open(&self) -> bool {
        self.state == "open"
    }
}

/// The node's numbers at the moment of asking.
pub(crate) struct NodeSample {
    pub(crate) memory_used_bytes: u64,
    pub(crate) memory_unreserved_bytes: u64,
    pub(crate) memory_max_bytes: u64,
    /// What that is to become.
    pub(crate) memory_target_bytes: u64,
    /// What the process's memory is used for.
    pub(crate) memory: Vec<MemorySample>,
    pub(crate) tenants: Vec<TenantSample>,
    /// Of every tenant, also of those that are not open.
    pub(crate) states: Vec<TenantState>,
    /// Of every tenant that other nodes have, too.
    pub(crate) copies: Vec<CopySample>,
    /// When the certificate ends by which other nodes know this one, in seconds since 1970.
    pub(crate) certificate_expires_s: Option<u64>,
}

/// What is counted for one tenant, at hand.
struct Series {
    label: String,
    latency: Histogram,
    rows: Counter,
    /// By the place in [`KINDS`] and the outcome; made when first counted.
    statements: [[OnceLock<Counter>; 3]; KINDS.len()],
}

/// Of a series that may be missing.
type Unlabelled = [(&'static str, &'static str); 0];

type FloatCounter = Counter<f64, AtomicU64>;
type FloatGauge = Gauge<f64, AtomicU64>;
type IntegerGauge = Gauge<i64, AtomicI64>;

/// The process's metrics.
pub(crate) struct Metrics {
    started: Instant,
    registry: Registry,
    labelled: Mutex<BTreeSet<String>>,
    /// By the tenant's label.
    series: RwLock<HashMap<String, Arc<Series>, RandomState>>,
    statements: Family<StatementLabels, Counter>,
    latency: Family<TenantLabels, Histogram>,
    rows: Family<TenantLabels, Counter>,
    tenant_memory: Family<TenantLabels, IntegerGauge>,
    tenant_memory_max: Family<TenantLabels, IntegerGauge>,
    tenant_memory_min: Family<TenantLabels, IntegerGauge>,
    tenant_connections: Family<TenantLabels, IntegerGauge>,
    tenant_query_time: Family<TenantLabels, FloatCounter>,
    plan_cache_hits: Family<TenantLabels, Counter>,
    plan_cache_misses: Family<TenantLabels, Counter>,
    rows_to_merge: Family<TenantLabels, IntegerGauge>,
    rows_due: Family<TenantLabels, IntegerGauge>,
    tenant_spilled: Family<TenantLabels, IntegerGauge>,
    tenant_evicted: Family<TenantLabels, IntegerGauge>,
    tenant_read_back: Family<TenantLabels, Counter>,
    tenant_open: Family<TenantLabels, IntegerGauge>,
    copies: CopyMetrics,
    certificate_expires: Family<Unlabelled, IntegerGauge>,
    tenant_statements: StatementMetrics,
    degraded: IntegerGauge,
    closed: IntegerGauge,
    memory: IntegerGauge,
    memory_unreserved: IntegerGauge,
    memory_by_class: Family<MemoryLabels, IntegerGauge>,
    heap: IntegerGauge,
    memory_max: IntegerGauge,
    memory_target: IntegerGauge,
    resident: IntegerGauge,
    open_files: IntegerGauge,
    cpu: FloatGauge,
    uptime: FloatGauge,
}

impl Metrics {
    /// Metrics that start at zero now.
    pub(crate) fn new() -> Self {
        let mut metrics = Self {
            started: Instant::now(),
            registry: Registry::with_prefix("aerostat"),
            labelled: Mutex::default(),
            series: RwLock::default(),
            statements: Family::default(),
            latency: Family::new_with_constructor(|| Histogram::new(LATENCY_BOUNDS_S)),
            rows: Family::default(),
            tenant_memory: Family::default(),
            tenant_memory_max: Family::default(),
            tenant_memory_min: Family::default(),
            tenant_connections: Family::default(),
            tenant_query_time: Family::default(),
            plan_cache_hits: Family::default(),
            plan_cache_misses: Family::default(),
            rows_to_merge: Family::default(),
            rows_due: Family::default(),
            tenant_spilled: Family::default(),
            tenant_evicted: Family::default(),
            tenant_read_back: Family::default(),
            tenant_open: Family::default(),
            copies: CopyMetrics::default(),
            certificate_expires: Family::default(),
            tenant_statements: StatementMetrics::default(),
            degraded: IntegerGauge::default(),
            closed: IntegerGauge::default(),
            memory: IntegerGauge::default(),
            memory_unreserved: IntegerGauge::default(),
            memory_by_class: Family::default(),
            heap: IntegerGauge::default(),
            memory_max: IntegerGauge::default(),
            memory_target: IntegerGauge::default(),
            resident: IntegerGauge::default(),
            open_files: IntegerGauge::default(),
            cpu: FloatGauge::default(),
            uptime: FloatGauge::default(),
        };
        metrics.register();
        metrics
    }

    fn register(&mut self) {
        let registry = &mut self.registry;
        registry.register(
            "statements",
            "Statements by tenant, kind and outcome",
            self.statements.clone(),
        );
        let help = "Time from a statement's arrival to the end of its answer, by tenant";
        registry.register_with_unit(
            "statement_latency",
            help,
            Unit::Seconds,
            self.latency.clone(),
        );
        registry.register(
            "rows",
            "Rows sent to clients or changed, by tenant",
            self.rows.clone(),
        );
        let help = "Memory a tenant's data and queries hold";
        registry.register_with_unit(
            "tenant_memory_used",
            help,
            Unit::Bytes,
            self.tenant_memory.clone(),
        );
        let help = "Memory a tenant may hold";
        registry.register_with_unit(
            "tenant_memory_max",
            help,
            Unit::Bytes,
            self.tenant_memory_max.clone(),
        );
        let help = "Memory that is kept for a tenant";
        registry.register_with_unit(
            "tenant_memory_min",
            help,
            Unit::Bytes,
            self.tenant_memory_min.clone(),
        );
        registry.register(
            "tenant_connections",
            "Open connections, by tenant",
            self.tenant_connections.clone(),
        );
        registry.register_with_unit(
            "tenant_query_time",
            "What a tenant's planned statements have taken of the query threads",
            Unit::Seconds,
            self.tenant_query_time.clone(),
        );
        registry.register(
            "plan_cache_hits",
            "Queries that a kept plan was found for, by tenant",
            self.plan_cache_hits.clone(),
        );
        registry.register(
            "plan_cache_misses",
            "Queries that were planned anew and might have had a kept plan, by tenant",
            self.plan_cache_misses.clone(),
        );
        registry.register(
            "tenant_rows_to_merge",
            "Rows in front of frozen ones, and frozen ones that have ended, by tenant",
            self.rows_to_merge.clone(),
        );
        registry.register(
            "tenant_rows_due",
            "Rows that wait for the freezer's next look, by tenant",
            self.rows_due.clone(),
        );
        registry.register_with_unit(
            "tenant_spilled",
            "Bytes that a tenant's queries have on disk",
            Unit::Bytes,
            self.tenant_spilled.clone(),
        );
        registry.register_with_unit(
            "tenant_evicted",
            "Bytes of a tenant's frozen values that are not in memory",
            Unit::Bytes,
            self.tenant_evicted.clone(),
        );
        registry.register_with_unit(
            "tenant_read_back",
            "Bytes of a tenant's frozen values that were read back since it was opened",
            Unit::Bytes,
            self.tenant_read_back.clone(),
        );
        registry.register(
            "tenant_open",
            "1 for a tenant that reads and writes, 0 for one that could not be opened or takes no changes",
            self.tenant_open.clone(),
        );
        self.copies.register(registry);
        let help = "When the certificate ends by which other nodes know this one";
        registry.register_with_unit(
            "peer_certificate_expiry_timestamp",
            help,
            Unit::Seconds,
            self.certificate_expires.clone(),
        );
        self.tenant_statements.register(registry);
        registry.register(
            "tenants_degraded",
            "Tenants that could not be opened or take no changes",
            self.degraded.clone(),
        );
        registry.register(
            "tenants_closed",
            "Tenants that are not in memory, and opened for whoever connects",
            self.closed.clone(),
        );
        registry.register_with_unit(
            "memory_used",
            "Memory data and queries hold",
            Unit::Bytes,
            self.memory.clone(),
        );
        registry.register_with_unit(
            "memory_unreserved",
            "Memory the process holds that nobody has reserved, which counts against the node's",
            Unit::Bytes,
            self.memory_unreserved.clone(),
        );
        registry.register_with_unit(
            "memory_class",
            "What the process's memory is used for, by tenant and class",
            Unit::Bytes,
            self.memory_by_class.clone(),
        );
        let help = "Memory data and queries may hold";
        registry.register_with_unit("memory_max", help, Unit::Bytes, self.memory_max.clone());
        let help = "What memory_max is to become, as memory comes back";
        registry.register_with_unit(
            "memory_target",
            help,
            Unit::Bytes,
            self.memory_target.clone(),
        );
        let help = "Resident memory of the process";
        registry.register_with_unit(
            "process_resident_memory",
            help,
            Unit::Bytes,
            self.resident.clone(),
        );
        let help = "Heap of the process that is in use";
        registry.register_with_unit("process_heap", help, Unit::Bytes, self.heap.clone());
        registry.register(
            "process_open_files",
            "Open files of the process",
            self.open_files.clone(),
        );
        let help = "User and system time the process used";
        registry.register_with_unit("process_cpu", help, Unit::Seconds, self.cpu.clone());
        registry.register_with_unit(
            "uptime",
            "Time since the start",
            Unit::Seconds,
            self.uptime.clone(),
        );
        let build = Info::new(vec![
            ("version", env!("CARGO_PKG_VERSION")),
            ("build", crate::program::id()),
        ]);
        registry.register("build", "The build", build);
    }

    /// A statement ended.
    pub(crate) fn count(
        &self,
        tenant: &str,
        kind: &'static str,
        outcome: Outcome,
        elapsed: Duration,
        rows: u64,
    ) {
        let series = self.series(tenant);
        series.latency.observe(elapsed.as_secs_f64());
        series.rows.inc_by(rows);
        let (name, number) = (outcome.label(), outcome as usize);
        let labels = || StatementLabels {
            tenant: series.label.clone(),
            kind,
            outcome: name,
        };
        match KINDS.iter().position(|known| *known == kind) {
            Some(at) => series.statements[at][number]
                .get_or_init(|| self.statements.get_or_create_owned(&labels()))
                .inc(),
            None => self.statements.get_or_create(&labels()).inc(),
        };
    }

    /// The series of a tenant, found without making its labels anew.
    fn series(&self, tenant: &str) -> Arc<Series> {
        let known = |name: &str| {
            let series = self.series.read().unwrap_or_else(PoisonError::into_inner);
            series.get(name).cloned()
        };
        if let Some(series) = known(tenant) {
            return series;
        }
        let label = self.label(tenant);
        if let Some(series) = known(&label) {
            return series;
        }
        let labels = TenantLabels {
            tenant: label.clone(),
        };
        let series = Series {
            latency: self.latency.get_or_create_owned(&labels),
            rows: self.rows.get_or_create_owned(&labels),
            statements: Default::default(),
            label: label.clone(),
        };
        let mut all = self.series.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry(label).or_insert_with(|| Arc::new(series)))
    }

    /// Everything in Prometheus' text format, with the gauges as `node` has them.
    pub(crate) fn render(&self, node: &NodeSample) -> String {
        self.set_gauges(node);
        self.copies.set(&node.copies, |tenant| self.label(tenant));
        if let Some(expires) = node.certificate_expires_s {
            self.certificate_expires
                .get_or_create(&[])
                .set(gauge(expires));
        }
        self.tenant_statements
            .set(&node.tenants, |tenant| self.label(tenant));
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("a String takes any text");
        text
    }

    fn set_states(&self, states: &[TenantState]) {
        self.tenant_open.clear();
        let (degraded, others): (Vec<_>, Vec<_>) =
            states.iter().partition(|state| state.is_degraded);
        self.degraded.set(gauge(degraded.len() as u64));
        let (open, closed): (Vec<_>, Vec<_>) =
            others.into_iter().partition(|state| state.is_open());
        self.closed.set(gauge(closed.len() as u64));
        // Of those that share a label the worst counts.
        for state in open.into_iter().chain(degraded) {
            let tenant = self.label(&state.tenant);
            let gauge = self
                .tenant_open
                .get_or_create_owned(&TenantLabels { tenant });
            gauge.set(i64::from(state.is_open()));
        }
    }

    /// Classes that a tenant has nothing of are left out.
    fn set_memory(&self, memory: &[MemorySample]) {
        self.memory_by_class.clear();
        for sample in memory.iter().filter(|sample| sample.bytes > 0) {
            let tenant = sample.tenant.as_ref();
            let labels = MemoryLabels {
                tenant: tenant.map_or(String::new(), |tenant| self.label(tenant)),
                class: sample.class,
            };
            self.memory_by_class
                .get_or_create(&labels)
                .inc_by(gauge(sample.bytes));
        }
    }

    fn set_gauges(&self, node: &NodeSample) {
        self.set_memory(&node.memory);
        self.memory.set(gauge(node.memory_used_bytes));
        self.memory_unreserved
            .set(gauge(node.memory_unreserved_bytes));
        self.memory_max.set(gauge(node.memory_max_bytes));
        self.memory_target.set(gauge(node.memory_target_bytes));
        self.heap.set(gauge(aerostat_embedded::heap_bytes()));
        self.resident
            .set(gauge(aerostat_embedded::resident_bytes()));
        self.open_files.set(gauge(process::open_files()));
        self.cpu.set(process::cpu_seconds());
        self.uptime.set(self.started.elapsed().as_secs_f64());
        // Dropped tenants must not stay behind, so each answer starts empty.
        self.tenant_memory.clear();
        self.tenant_memory_max.clear();
        self.tenant_memory_min.clear();
        self.tenant_connections.clear();
        self.tenant_query_time.clear();
        self.plan_cache_hits.clear();
        self.plan_cache_misses.clear();
        self.rows_to_merge.clear();
        self.rows_due.clear();
        self.tenant_spilled.clear();
        self.tenant_evicted.clear();
        self.tenant_read_back.clear();
        self.set_states(&node.states);
        for tenant in &node.tenants {
            let labels = TenantLabels {
                tenant: self.label(&tenant.name),
            };
            self.tenant_memory
                .get_or_create(&labels)
                .inc_by(gauge(tenant.memory_used_bytes));
            self.tenant_memory_max
                .get_or_create(&labels)
                .inc_by(gauge(tenant.memory_max_bytes));
            self.tenant_memory_min
                .get_or_create(&labels)
                .inc_by(gauge(tenant.memory_min_bytes));
            self.tenant_connections
                .get_or_create(&labels)
                .inc_by(gauge(tenant.connections));
            self.tenant_spilled
                .get_or_create(&labels)
                .inc_by(gauge(tenant.spilled_bytes));
            self.tenant_evicted
                .get_or_create(&labels)
                .inc_by(gauge(tenant.evicted_bytes));
            self.tenant_read_back
                .get_or_create(&labels)
                .inc_by(tenant.read_back_bytes);
            self.tenant_query_time
                .get_or_create(&labels)
                .inc_by(tenant.query_seconds);
            self.plan_cache_hits
                .get_or_create(&labels)
                .inc_by(tenant.plan_cache_hits);
            self.plan_cache_misses
                .get_or_create(&labels)
                .inc_by(tenant.plan_cache_misses);
            self.rows_to_merge
                .get_or_create(&labels)
                .inc_by(gauge(tenant.rows_to_merge));
            self.rows_due
                .get_or_create(&labels)
                .inc_by(gauge(tenant.rows_due));
        }
    }

    /// The label for a tenant: its name, or `other` once there are too many names.
    fn label(&self, tenant: &str) -> String {
        let mut labelled = self.labelled.lock().unwrap_or_else(PoisonError::into_inner);
        if labelled.contains(tenant) || labelled.len() < TENANTS_LABELLED_MAX {
            if !labelled.contains(tenant) {
                labelled.insert(tenant.to_owned());
            }
            return tenant.to_owned();
        }
        "other".to_owned()
    }
}

/// Prometheus' gauges are signed; no quantity of ours comes near the limit.
fn gauge(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(tenants: Vec<TenantSample>) -> NodeSample {
        NodeSample {
            memory_used_bytes: 7,
            memory_unreserved_bytes: 3,
            memory_max_bytes: 100,
            memory_target_bytes: 90,
            memory: [
                (Some("a"), "log", 9),
                (Some("a"), "queries", 0),
                (None, "slack", 8),
            ]
            .map(|(tenant, class, bytes)| MemorySample {
                tenant: tenant.map(str::to_owned),
                class,
                bytes,
            })
            .into(),
            states: tenants
                .iter()
                .map(|tenant| TenantState {
                    tenant: tenant.name.clone(),
                    state: "open",
                    is_degraded: false,
                })
                .collect(),
            tenants,
            certificate_expires_s: None,
            copies: vec![CopySample {
                database: "a".to_owned(),
                leads: true,
                epoch: 4,
                members: 2,
                uncommitted: 1,
                silent_seconds: Some(0.5),
                behind: vec![("b".to_owned(), 3)],
            }],
        }
    }

    fn tenant(name: &str) -> TenantSample {
        TenantSample {
            name: name.to_owned(),
            memory_used_bytes: 5,
            memory_max_bytes: 50,
            memory_min_bytes: 0,
            connections: 2,
            statements: StatementCounts {
                running: 3,
                waiting: 7,
                refused: 4,
                timed_out: 6,
            },
            query_seconds: 1.5,
            plan_cache_hits: 3,
            plan_cache_misses: 4,
            rows_to_merge: 6,
            rows_due: 5,
            spilled_bytes: 5,
            evicted_bytes: 8,
            read_back_bytes: 9,
        }
    }

    #[test]
    fn statements_and_gauges_are_shown() {
        let metrics = Metrics::new();
        metrics.count("a", "select", Outcome::Ok, Duration::from_millis(3), 10);
        metrics.count("a", "insert", Outcome::Error, Duration::from_millis(3), 0);
        let text = metrics.render(&node(vec![tenant("a")]));
        for line in [
            "aerostat_statements_total{tenant=\"a\",kind=\"select\",outcome=\"ok\"} 1",
            "aerostat_statements_total{tenant=\"a\",kind=\"insert\",outcome=\"error\"} 1",
            "aerostat_rows_total{tenant=\"a\"} 10",
            "aerostat_statement_latency_seconds_count{tenant=\"a\"} 2",
            "aerostat_tenant_memory_used_bytes{tenant=\"a\"} 5",
            "aerostat_tenant_connections{tenant=\"a\"} 2",
            "aerostat_tenant_statements_running{tenant=\"a\"} 3",
            "aerostat_tenant_statements_waiting{tenant=\"a\"} 7",
            "aerostat_tenant_statements_refused_total{tenant=\"a\"} 4",
            "aerostat_tenant_statements_timed_out_total{tenant=\"a\"} 6",
            "aerostat_memory_class_bytes{tenant=\"a\",class=\"log\"} 9",
            "aerostat_memory_class_bytes{tenant=\"\",class=\"slack\"} 8",
            "aerostat_tenant_query_time_seconds_total{tenant=\"a\"} 1.5",
            "aerostat_plan_cache_hits_total{tenant=\"a\"} 3",
            "aerostat_plan_cache_misses_total{tenant=\"a\"} 4",
            "aerostat_tenant_rows_to_merge{tenant=\"a\"} 6",
            "aerostat_tenant_evicted_bytes{tenant=\"a\"} 8",
            "aerostat_tenant_read_back_bytes_total{tenant=\"a\"} 9",
            "aerostat_tenant_rows_due{tenant=\"a\"} 5",
            "aerostat_copy_leads{tenant=\"a\"} 1",
            "aerostat_copy_members{tenant=\"a\"} 2",
            "aerostat_copy_leader_silence_seconds{tenant=\"a\"} 0.5",
            "aerostat_copy_behind{tenant=\"a\",node=\"b\"} 3",
            "aerostat_memory_used_bytes 7",
            "aerostat_memory_unreserved_bytes 3",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }

    #[test]
    fn dropped_tenants_leave_the_gauges() {
        let metrics = Metrics::new();
        metrics.render(&node(vec![tenant("gone")]));
        let text = metrics.render(&node(vec![tenant("here")]));
        assert!(
            !text.contains("tenant_memory_used_bytes{tenant=\"gone\"}"),
            "{text}"
        );
        assert!(
            text.contains("tenant_memory_used_bytes{tenant=\"here\"}"),
            "{text}"
        );
    }

    #[test]
    fn the_number_of_series_is_bounded() {
        let metrics = Metrics::new();
        for at in 0..TENANTS_LABELLED_MAX + 5 {
            metrics.count(&format!("t{at}"), "select", Outcome::Ok, Duration::ZERO, 1);
        }
        let text = metrics.render(&node(Vec::new()));
        assert!(text.contains("aerostat_rows_total{tenant=\"other\"} 5"));
        assert_eq!(
            text.matches("aerostat_rows_total{").count(),
            TENANTS_LABELLED_MAX + 1
        );
    }
}
