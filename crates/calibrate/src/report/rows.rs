//! A report as rows of text.

use super::{Finding, Report, Verdict};

/// A value for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// What it is.
    pub what: String,
    /// What was measured.
    pub measured: String,
    /// How sure it is, in percent; empty where nothing was told.
    pub confidence: String,
    /// What the system claims.
    pub claimed: String,
    /// What is to be made of both.
    pub verdict: &'static str,
}

impl Report {
    /// The report as rows, most important first.
    pub fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        let mut row = |what: String, finding: &Finding, show: fn(f64) -> String| {
            rows.push(Row {
                what,
                measured: finding
                    .value
                    .map_or_else(|| "not detected".to_owned(), show),
                confidence: format!("{:.0}%", finding.confidence * 100.0),
                claimed: finding.claimed.map(show).unwrap_or_default(),
                verdict: word(finding.verdict),
            });
        };
        for cache in &self.caches {
            let name = format!("L{}", cache.level);
            row(format!("{name} size"), &cache.size_bytes, bytes);
            if cache.latency_ns.value.is_none() {
                continue;
            }
            row(format!("{name} line"), &cache.line_bytes, bytes);
            row(format!("{name} latency"), &cache.latency_ns, ns);
            row(format!("{name} miss latency"), &cache.miss_ns, ns);
            row(format!("{name} replace time"), &cache.replace_ns, ns);
            row(
                format!("{name} replace time, in order"),
                &cache.streamed_ns,
                ns,
            );
        }
        for tlb in &self.tlbs {
            let name = format!("TLB {}, {} pages", tlb.level, bytes(tlb.page_bytes as f64));
            row(format!("{name}: entries"), &tlb.entries, count);
            row(format!("{name}: miss latency"), &tlb.miss_ns, ns);
        }
        row(
            "TLB reach inside 2 MiB pages, in 4 KiB pieces".to_owned(),
            &self.huge_reach_pieces,
            count,
        );
        row("memory latency".to_owned(), &self.memory_latency_ns, ns);
        for all in &self.bandwidth {
            let threads = match all.threads {
                1 => "1 thread".to_owned(),
                threads => format!("{threads} threads at once"),
            };
            row(
                format!("bandwidth, in order, {threads}"),
                &all.sequential_bytes_per_s,
                rate,
            );
            row(
                format!("bandwidth, random lines, {threads}"),
                &all.random_bytes_per_s,
                rate,
            );
        }
        rows.extend(self.numa_rows());
        rows
    }

    fn numa_rows(&self) -> Vec<Row> {
        let row = |what: String, measured: String| Row {
            what,
            measured,
            confidence: String::new(),
            claimed: String::new(),
            verdict: word(Verdict::Unclaimed),
        };
        if self.numa.is_empty() {
            return vec![Row {
                claimed: count(self.numa_nodes as f64),
                verdict: "nothing to compare",
                ..row("NUMA nodes".to_owned(), String::new())
            }];
        }
        let pairs = self.numa.iter().map(|pair| {
            row(
                format!("node {} reads memory of node {}", pair.from, pair.to),
                format!(
                    "{}, {}",
                    ns(pair.latency_ns),
                    rate(pair.sequential_bytes_per_s)
                ),
            )
        });
        pairs.collect()
    }
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::NotDetected => "not detected",
        Verdict::Unclaimed => "",
        Verdict::Agrees => "agrees",
        Verdict::Effective => "effective",
        Verdict::Differs => "differs",
    }
}

/// `48.1 KiB`.
pub(crate) fn bytes(value: f64) -> String {
    let (scaled, unit) = match value {
        value if value >= (1 << 30) as f64 => (value / (1 << 30) as f64, "GiB"),
        value if value >= (1 << 20) as f64 => (value / (1 << 20) as f64, "MiB"),
        value if value >= (1 << 10) as f64 => (value / (1 << 10) as f64, "KiB"),
        value => (value, "B"),
    };
    format!("{} {unit}", short(scaled))
}

/// At most one digit behind the point, and none that is 0.
pub(crate) fn short(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").unwrap_or(&text).to_owned()
}

fn ns(value: f64) -> String {
    format!("{value:.2} ns")
}

fn count(value: f64) -> String {
    format!("{value:.0}")
}

fn rate(bytes_per_s: f64) -> String {
    format!("{:.1} GB/s", bytes_per_s / 1e9)
}
