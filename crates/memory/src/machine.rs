//! What the machine has: memory that this process may use, and page sizes.
//!
//! Inside a container the machine's memory is not all available: the limits of every cgroup from
//! the process's own up to the root apply, in version 1 and version 2.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::OnceLock,
};

/// Bytes of memory this process may use: the least of the machine's memory and the limits
/// of its cgroups.
pub fn machine_memory_bytes() -> u64 {
    memory_bytes_below(Path::new("/"))
}

/// Page sizes, and whether huge pages come by themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageFacts {
    /// The usual page, 4 KiB on most machines.
    pub page_bytes: usize,
    /// A transparent huge page, where there are any.
    pub huge_page_bytes: Option<usize>,
    /// The system's mode: `always`, `madvise` or `never`.
    pub transparent_huge_pages: Option<String>,
}

impl PageFacts {
    /// Those of this machine.
    pub fn read() -> PageFacts {
        let directory = Path::new("/sys/kernel/mm/transparent_hugepage");
        PageFacts {
            page_bytes: page_bytes(),
            huge_page_bytes: read_number(&directory.join("hpage_pmd_size"))
                .and_then(|bytes| bytes.try_into().ok()),
            transparent_huge_pages: fs::read_to_string(directory.join("enabled"))
                .ok()
                .and_then(|text| Some(text.split_once('[')?.1.split_once(']')?.0.to_owned())),
        }
    }
}

/// Bytes of this process that are in memory, or 0 where the system does not say.
pub fn resident_bytes() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split_ascii_whitespace().nth(1);
    let pages = pages.and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * page_bytes() as u64
}

/// What the kernel says of this process's memory: each a part of [`resident_bytes`], or 0 where
/// the system does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResidentParts {
    /// Arenas, the heap, stacks: what belongs to no file.
    pub anonymous: u64,
    /// The program's code and constants, and other mapped files.
    pub mapped_files: u64,
    /// Memory that is shared with other processes.
    pub shared: u64,
}

impl ResidentParts {
    /// Those of now. The kernel walks the process's counters, in some 20 microseconds.
    pub fn now() -> ResidentParts {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        ResidentParts::parse(&status)
    }

    fn parse(status: &str) -> ResidentParts {
        let of = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(kilobytes).unwrap_or(0)
        };
        ResidentParts {
            anonymous: of("RssAnon:"),
            mapped_files: of("RssFile:"),
            shared: of("RssShmem:"),
        }
    }
}

/// Bytes of a page.
pub fn page_bytes() -> usize {
    /// Where the kernel does not say: the page size of x86-64.
    const USUAL: usize = 4096;
    static PAGE_BYTES: OnceLock<usize> = OnceLock::new();
    *PAGE_BYTES.get_or_init(|| {
        let auxv = fs::read("/proc/self/auxv").unwrap_or_default();
        page_bytes_of_auxv(&auxv)
            .filter(|bytes| bytes.is_power_of_two())
            .unwrap_or(USUAL)
    })
}

/// The auxiliary vector that the kernel gives a process: pairs of words, tag and value.
fn page_bytes_of_auxv(auxv: &[u8]) -> Option<usize> {
    const AT_PAGESZ: u64 = 6;
    let (words, _) = auxv.as_chunks::<8>();
    words.chunks_exact(2).find_map(|pair| {
        let value = u64::from_ne_bytes(pair[1]);
        (u64::from_ne_bytes(pair[0]) == AT_PAGESZ).then(|| value.try_into().ok())?
    })
}

/// As [`machine_memory_bytes`], with the file system of a machine below `root`.
fn memory_bytes_below(root: &Path) -> u64 {
    let total = fs::read_to_string(root.join("proc/meminfo"))
        .ok()
        .as_deref()
        .and_then(memory_total);
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let limits = groups.lines().filter_map(|line| group_limit(root, line));
    // Without /proc there is nothing to go by; 1 GiB is what any machine has.
    limits.chain(total).min().unwrap_or(1 << 30)
}

/// `MemTotal:       24576000 kB`
fn memory_total(meminfo: &str) -> Option<u64> {
    let rest = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    kilobytes(rest)
}

/// `  24576000 kB`, in bytes.
fn kilobytes(text: &str) -> Option<u64> {
    let number = text.trim().strip_suffix("kB")?.trim();
    number.parse::<u64>().ok()?.checked_mul(1024)
}

/// The least limit on the way from a group to its root. The line is
/// `0::/path` for version 2, `4:memory:/path` for version 1.
fn group_limit(root: &Path, line: &str) -> Option<u64> {
    let mut fields = line.splitn(3, ':');
    let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    let (mount, file) = match controllers {
        "" => (root.join("sys/fs/cgroup"), "memory.max"),
        _ if controllers
            .split(',')
            .any(|controller| controller == "memory") =>
        {
            (root.join("sys/fs/cgroup/memory"), "memory.limit_in_bytes")
        }
        _ => return None,
    };
    // In a cgroup namespace the path may not be visible below the mount; its parents are.
    let group = mount.join(path.trim_start_matches('/'));
    let ways: Vec<PathBuf> = group
        .ancestors()
        .take_while(|way| way.starts_with(&mount))
        .map(|way| way.join(file))
        .collect();
    ways.iter().filter_map(|file| read_number(file)).min()
}

/// `max`, and what is no number, is no limit.
fn read_number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> u64 {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        memory_bytes_below(root.path())
    }

    const MEMINFO: (&str, &str) = ("proc/meminfo", "MemTotal:        8192 kB\nMemFree: 1 kB\n");

    #[test]
    fn without_a_limit_the_machine_counts() {
        assert_eq!(machine(&[MEMINFO]), 8192 * 1024);
        assert_eq!(
            machine(&[
                MEMINFO,
                ("proc/self/cgroup", "0::/a\n"),
                ("sys/fs/cgroup/a/memory.max", "max\n")
            ]),
            8192 * 1024
        );
        assert_eq!(machine(&[]), 1 << 30);
    }

    #[test]
    fn the_least_limit_on_the_way_counts() {
        let limit = machine(&[
            MEMINFO,
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/memory.max", "1000\n"),
            ("sys/fs/cgroup/a/b/memory.max", "2000\n"),
        ]);
        assert_eq!(limit, 1000);
    }

    #[test]
    fn version_1_has_its_own_mount() {
        let limit = machine(&[
            MEMINFO,
            (
                "proc/self/cgroup",
                "5:cpu,cpuacct:/x\n4:memory:/docker/abc\n",
            ),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "4096\n"),
        ]);
        assert_eq!(limit, 4096, "the path is that of another namespace");
    }

    #[test]
    fn the_parts_of_what_is_resident_are_read() {
        let status = "VmRSS:\t  112 kB\nRssAnon:\t     100 kB\nRssFile:\t      12 kB\n";
        let parts = ResidentParts::parse(status);
        assert_eq!(
            (parts.anonymous, parts.mapped_files, parts.shared),
            (100 << 10, 12 << 10, 0)
        );
        let now = ResidentParts::now();
        assert!(now.anonymous > 0 && now.mapped_files > 0, "{now:?}");
    }

    #[test]
    fn this_machine_has_memory_and_pages() {
        assert!(machine_memory_bytes() > 1 << 20);
        let facts = PageFacts::read();
        assert!(facts.page_bytes >= 4096 && facts.page_bytes.is_power_of_two());
        assert!(
            facts
                .huge_page_bytes
                .is_none_or(|huge| huge > facts.page_bytes)
        );
        assert_eq!(page_bytes_of_auxv(&[]), None);
    }
}
