//! Archives as the Linux kernel reads them into its first file system: "newc" (kernel
//! documentation, `driver-api/early-userspace/buffer-format`).

/// An archive that grows file by file.
#[derive(Default)]
pub(crate) struct Cpio {
    bytes: Vec<u8>,
    files: u32,
}

const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;

impl Cpio {
    /// A folder; those above it come before.
    pub(crate) fn folder(&mut self, name: &str) {
        self.entry(name, FOLDER, &[]);
    }

    /// A file that may be run.
    pub(crate) fn file(&mut self, name: &str, content: &[u8]) {
        self.entry(name, PROGRAM, content);
    }

    /// The whole archive.
    pub(crate) fn end(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.files += 1;
        let (size, name_size) = (content.len() as u32, name.len() as u32 + 1);
        // Inode, mode, user, group, links, time, size, device ×2, its device ×2, name, check.
        let numbers = [self.files, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0];
        self.bytes.extend_from_slice(b"070701");
        for number in numbers {
            self.bytes
                .extend_from_slice(format!("{number:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    /// Names and contents end on 4 bytes.
    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Name, mode and content of each entry, read back.
    fn entries(mut bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut entries = Vec::new();
        while !bytes.is_empty() {
            let number = |nth: usize| {
                let text = std::str::from_utf8(&bytes[6 + nth * 8..][..8]).unwrap();
                u32::from_str_radix(text, 16).unwrap()
            };
            assert_eq!(&bytes[..6], b"070701");
            let (mode, size, name_size) = (number(1), number(6) as usize, number(11) as usize);
            let name = String::from_utf8(bytes[110..110 + name_size - 1].to_vec()).unwrap();
            let from = (110 + name_size).next_multiple_of(4);
            entries.push((name, mode, bytes[from..from + size].to_vec()));
            bytes = &bytes[(from + size).next_multiple_of(4)..];
        }
        entries
    }

    #[test]
    fn what_is_put_in_is_read_back() {
        let mut archive = Cpio::default();
        archive.folder("bin");
        archive.file("bin/a", b"12345");
        archive.file("init", b"");
        let told = entries(&archive.end());
        let names: Vec<&str> = told.iter().map(|(name, ..)| name.as_str()).collect();
        assert_eq!(names, ["bin", "bin/a", "init", "TRAILER!!!"]);
        assert_eq!((told[0].1, told[1].1), (FOLDER, PROGRAM));
        assert_eq!(told[1].2, b"12345");
    }
}
