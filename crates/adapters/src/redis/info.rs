//! A server's description of itself.

use crate::error::AdapterError;

/// A server that evicts nothing keeps room for so much more than it uses: a 16th and 8 MiB, so that it
/// takes writes for a while after its limit was lowered.
const HEADROOM_SHARE: u64 = 16;
const HEADROOM_BYTES: u64 = 8 << 20;

/// The parts of `INFO` that matter here. Amounts are bytes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Info {
    /// The server's process, as it knows it.
    pub(crate) pid: u32,
    /// Allocated bytes that count against the limit.
    pub(crate) used: u64,
    /// The limit, or 0 where there is none.
    pub(crate) maxmemory: u64,
    /// Whether keys go at the limit. Otherwise writes are refused.
    pub(crate) may_evict: bool,
    pub(crate) memory_of_machine: u64,
    /// How many keys were evicted since the start.
    pub(crate) evicted_keys: f64,
    /// How many reads found nothing since the start.
    pub(crate) misses: f64,
}

impl Info {
    /// From the sections `server`, `memory` and `stats`.
    pub(crate) fn parse(text: &str) -> Result<Info, AdapterError> {
        let of = |field: &'static str| {
            let mut lines = text
                .lines()
                .filter_map(|line| line.trim_end().split_once(':'));
            let found = lines.find(|(name, _)| *name == field);
            found
                .map(|(_, value)| value)
                .ok_or(AdapterError::Answer(field))
        };
        let number = |field: &'static str| -> Result<u64, AdapterError> {
            of(field)?.parse().map_err(|_| AdapterError::Answer(field))
        };
        let not_counted = number("mem_not_counted_for_evict").unwrap_or(0);
        Ok(Info {
            pid: of("process_id")?
                .parse()
                .map_err(|_| AdapterError::Answer("process_id"))?,
            used: number("used_memory")?.saturating_sub(not_counted),
            maxmemory: number("maxmemory")?,
            may_evict: of("maxmemory_policy")? != "noeviction",
            memory_of_machine: number("total_system_memory")?,
            evicted_keys: number("evicted_keys")? as f64,
            misses: number("keyspace_misses")? as f64,
        })
    }

    /// The use, and room for writes.
    pub(crate) fn with_headroom(&self) -> u64 {
        self.used + self.used / HEADROOM_SHARE + HEADROOM_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_read() {
        let text = "# Server\r\nprocess_id:77\r\n# Memory\r\nused_memory:1000\r\n\
             used_memory_human:1000B\r\nmaxmemory:5000\r\nmaxmemory_policy:allkeys-lru\r\n\
             total_system_memory:9000\r\nmem_not_counted_for_evict:10\r\n\
             # Stats\r\nevicted_keys:3\r\nkeyspace_misses:4\r\n";
        let info = Info::parse(text).unwrap();
        assert_eq!((info.pid, info.used, info.maxmemory), (77, 990, 5000));
        assert!(info.may_evict);
        assert_eq!((info.evicted_keys, info.misses), (3.0, 4.0));
        let error = Info::parse("process_id:1\r\n").unwrap_err();
        assert!(matches!(error, AdapterError::Answer("used_memory")));
        let keeps = text.replace("allkeys-lru", "noeviction");
        assert!(!Info::parse(&keeps).unwrap().may_evict);
    }
}
