//! What the kernel reports about this process, from `/proc/self`.

use std::fs;

/// Clock ticks per second in `/proc/self/stat`: `USER_HZ`, 100 on every Linux port we run on.
const TICKS_PER_S: f64 = 100.0;

/// User and system time used so far, or 0 where `/proc` does not say.
pub(crate) fn cpu_seconds() -> f64 {
    fs::read_to_string("/proc/self/stat")
        .ok()
        .as_deref()
        .and_then(parse_cpu)
        .unwrap_or(0.0)
}

/// Open files, or 0 where `/proc` does not say.
pub(crate) fn open_files() -> u64 {
    fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64)
}

fn parse_cpu(stat: &str) -> Option<f64> {
    // The second field is the name in parentheses and may hold blanks.
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let user: f64 = fields.get(11)?.parse().ok()?;
    let system: f64 = fields.get(12)?.parse().ok()?;
    Some((user + system) / TICKS_PER_S)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_lines_are_read() {
        let stat = "42 (a b) c) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 1 0 100";
        assert_eq!(parse_cpu(stat), Some(2.0));
        assert_eq!(parse_cpu("nonsense"), None);
    }

    #[test]
    fn this_process_has_files() {
        assert!(open_files() > 0);
        assert!(cpu_seconds() >= 0.0);
    }
}
