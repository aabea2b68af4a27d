//! A virtual machine in QEMU, emulated: a kernel, and a shell on its serial port.

use std::{
    fs,
    io::{Read, Write},
    os::unix::net::UnixStream,
    path::PathBuf,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use tempfile::TempDir;

use super::{Started, find, until};

/// An emulated kernel starts within some ten seconds on a busy core.
const BOOT: Duration = Duration::from_secs(180);

pub(crate) struct Guest {
    pub(crate) process: Started,
    folder: TempDir,
    serial: UnixStream,
}

impl Guest {
    /// Starts a guest with so much memory, or says why there is none.
    pub(crate) async fn start(memory_mib: u64, balloon: &[&str]) -> Result<Guest, String> {
        let qemu = find("qemu-system-x86_64").ok_or("there is no qemu; scripts/setup guest")?;
        let parts = parts();
        if !parts.join("initramfs").exists() {
            return Err("there is no guest; scripts/setup guest".to_owned());
        }
        let folder = tempfile::tempdir().unwrap();
        let socket =
            |name: &str| format!("unix:{}/{name},server=on,wait=off", folder.path().display());
        let process = Started::new(
            Command::new(qemu)
                .args([
                    "-accel",
                    "tcg",
                    "-cpu",
                    "max",
                    "-nodefaults",
                    "-no-user-config",
                ])
                .args([
                    "-no-reboot",
                    "-display",
                    "none",
                    "-m",
                    &memory_mib.to_string(),
                ])
                .arg("-kernel")
                .arg(parts.join("kernel"))
                .arg("-initrd")
                .arg(parts.join("initramfs"))
                .args(["-append", "console=ttyS0 quiet panic=-1 rdinit=/init"])
                .args(["-serial", &socket("serial"), "-qmp", &socket("qmp")])
                .args(balloon)
                .stdout(Stdio::null()),
        );
        let at = folder.path().join("serial");
        until("the serial port is there", || {
            UnixStream::connect(&at).is_ok()
        })
        .await;
        // One connection at a time: the one before has to be seen to be gone.
        tokio::time::sleep(Duration::from_millis(500)).await;
        let serial = UnixStream::connect(&at).unwrap();
        let mut guest = Guest {
            process,
            folder,
            serial,
        };
        guest.hear("ready");
        Ok(guest)
    }

    /// How the adapter reaches it.
    pub(crate) fn options(&self) -> String {
        format!("name=guest,qmp={}/qmp", self.folder.path().display())
    }

    /// Runs a command in the guest's shell to its end; what it printed.
    pub(crate) fn run(&mut self, command: &str) -> String {
        // The end is told in two parts, so that the command's own text is not taken for it.
        writeln!(self.serial, "{command}; echo do''ne").unwrap();
        self.hear("done")
    }

    /// Reads up to a word.
    fn hear(&mut self, word: &str) -> String {
        self.serial
            .set_read_timeout(Some(Duration::from_millis(200)))
            .unwrap();
        let (mut heard, started) = (String::new(), Instant::now());
        while !heard.contains(word) {
            assert!(started.elapsed() < BOOT, "the guest said only {heard:?}");
            let mut bytes = [0; 4096];
            if let Ok(count) = self.serial.read(&mut bytes) {
                heard += &String::from_utf8_lossy(&bytes[..count]);
            }
        }
        heard
    }

    /// A line of its own description of its memory, in bytes.
    pub(crate) fn memory(&mut self, line: &str) -> u64 {
        let said = self.run(&format!("/bin/busybox grep {line} /proc/meminfo"));
        let number = said
            .split_whitespace()
            .find_map(|word| word.parse::<u64>().ok());
        number.unwrap_or_else(|| panic!("{said:?}")) * 1024
    }
}

/// Where `scripts/setup guest` has put kernel and shell.
fn parts() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target =
        target.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target"));
    fs::canonicalize(&target).unwrap_or(target).join("guest")
}
