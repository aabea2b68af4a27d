//! The addresses of this program's own text and constants.

use std::io;
use std::ops::Range;

/// The mappings of the file that has `address` in it: text, constants, relocated addresses.
///
/// # Errors
/// When the system does not say.
pub(crate) fn program(address: usize) -> io::Result<Vec<Range<usize>>> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    of_file(&maps, address).ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// `from-to permissions offset device inode path`, a line each.
fn of_file(maps: &str, address: usize) -> Option<Vec<Range<usize>>> {
    let all = || maps.lines().filter_map(mapping);
    let (_, _, file) = all().find(|(range, _, _)| range.contains(&address))?;
    let of_it = all().filter(|(_, readable, of)| *readable && *of == file);
    Some(of_it.map(|(range, _, _)| range).collect())
}

/// A line's addresses, whether they can be read, and its file: device, inode and path.
fn mapping(line: &str) -> Option<(Range<usize>, bool, &str)> {
    let mut rest = line;
    let mut word = || {
        let (word, behind) = rest.split_once(' ')?;
        rest = behind.trim_start();
        Some(word)
    };
    let (from, to) = word()?.split_once('-')?;
    let parse = |text| usize::from_str_radix(text, 16).ok();
    let readable = word()?.starts_with('r');
    word()?;
    Some((parse(from)?..parse(to)?, readable, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_programs_mappings_are_found_and_no_librarys() {
        let maps = "1000-2000 r--p 00000000 fe:00 77   /a/prog ram\n\
                    2000-5000 r-xp 00001000 fe:00 77   /a/prog ram\n\
                    5000-6000 ---p 00001000 fe:00 77   /a/prog ram\n\
                    6000-7000 r-xp 00001000 fe:00 78   /a/lib.so\n\
                    7000-8000 rw-p 00000000 00:00 0 \n";
        assert_eq!(
            of_file(maps, 0x2345),
            Some(vec![0x1000..0x2000, 0x2000..0x5000])
        );
        assert_eq!(of_file(maps, 0x9000), None);
    }

    #[test]
    fn this_programs_text_is_found() {
        let here = program as *const () as usize;
        assert!(
            program(here)
                .unwrap()
                .iter()
                .any(|range| range.contains(&here))
        );
    }
}
