//! HotSpot's attach protocol.
//!
//! ```text
//!  .attach_pidN in its folder ─► SIGQUIT ─► it listens on /tmp/.java_pidN       once
//!  "1\0" command "\0" argument "\0" argument "\0" argument "\0" ─► "0\n" answer    a connection each
//! ```
//!
//! The protocol is that of `sun.tools.attach.VirtualMachineImpl` in OpenJDK, version 1, which all
//! versions since 6 understand. SIGQUIT ends a program that does not handle it, so it is sent to a
//! process only that has loaded the virtual machine and handles the signal, and never to another one that
//! has its number by now.

use std::{
    fs, io,
    os::{fd::OwnedFd, unix::fs::OpenOptionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use aerostat_broker::{kernel, ledger::Process};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    time::{sleep, timeout},
};

use crate::error::AdapterError;

/// How long a virtual machine may take until it listens. It does at its next safepoint.
const LISTEN_MAX: Duration = Duration::from_secs(10);

/// How long a command may take. A collection of a large heap takes seconds.
const COMMAND_MAX: Duration = Duration::from_secs(120);

/// The longest answer that is read. All flags of a virtual machine have some 100 kB.
const ANSWER_BYTES_MAX: u64 = 4 << 20;

/// The signal that has a virtual machine listen, as a bit of the kernel's masks.
const SIGQUIT_BIT: u64 = 1 << 2;

/// A Java virtual machine's process.
pub(crate) struct Machine {
    pid: u32,
    /// The process itself, even if another one has its number later.
    process: OwnedFd,
    /// Its number in its own namespace, by which it names its files.
    own_pid: u32,
}

impl Machine {
    /// The virtual machine that a process is.
    ///
    /// # Errors
    /// It is none, or none that can be asked.
    pub(crate) fn find(process: Process) -> Result<Machine, AdapterError> {
        let pid = process.pid;
        let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let raw = raw.ok_or(AdapterError::NoProcess)?;
        let held = pidfd_open(raw, PidfdFlags::empty()).map_err(io::Error::from)?;
        if kernel::process(pid) != Some(process) {
            return Err(AdapterError::NoProcess);
        }
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
        let (own_pid, handles_quit) =
            parse_status(&status).ok_or(AdapterError::Answer("status of the process"))?;
        match maps.contains("/libjvm.so") && handles_quit {
            true => Ok(Machine {
                pid,
                process: held,
                own_pid,
            }),
            false => Err(AdapterError::NotThis {
                pid,
                expected: "Java virtual machine that can be attached to",
            }),
        }
    }

    /// The answer to a diagnostic command, as `jcmd` gives it.
    pub(crate) async fn command(&self, command: &str) -> Result<String, AdapterError> {
        self.ask(["jcmd", command, "", ""]).await
    }

    /// Sets a flag that may be set while the virtual machine runs.
    pub(crate) async fn set_flag(&self, name: &str, value: &str) -> Result<(), AdapterError> {
        self.ask(["setflag", name, value, ""]).await.map(|_| ())
    }

    /// `RssShmem` of the process.
    pub(crate) fn shared_bytes(&self) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("RssShmem:"))?;
        let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kib * 1024)
    }

    /// The virtual machine's `/tmp`, which may be a container's.
    fn temporary(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root/tmp", self.pid))
    }

    async fn ask(&self, parts: [&str; 4]) -> Result<String, AdapterError> {
        let asking = async {
            let mut stream = self.open().await?;
            stream.write_all(&encode(parts)).await?;
            let mut answer = Vec::new();
            let mut limited = stream.take(ANSWER_BYTES_MAX);
            limited.read_to_end(&mut answer).await?;
            Ok::<_, AdapterError>(answer)
        };
        let answer = timeout(COMMAND_MAX, asking).await;
        let answer = answer.map_err(|_| AdapterError::Silent)??;
        let answer = String::from_utf8_lossy(&answer);
        decode(&answer)?.map_err(|answer| AdapterError::Refused {
            what: parts.join(" ").trim_end().to_owned(),
            answer,
        })
    }

    async fn open(&self) -> Result<UnixStream, AdapterError> {
        let socket = self.temporary().join(format!(".java_pid{}", self.own_pid));
        if let Ok(stream) = UnixStream::connect(&socket).await {
            return Ok(stream);
        }
        let _trigger = self.trigger()?;
        pidfd_send_signal(&self.process, Signal::QUIT).map_err(io::Error::from)?;
        let connecting = async {
            loop {
                sleep(Duration::from_millis(50)).await;
                if let Ok(stream) = UnixStream::connect(&socket).await {
                    return stream;
                }
            }
        };
        let connected = timeout(LISTEN_MAX, connecting).await;
        connected.map_err(|_| AdapterError::Silent)
    }

    /// Makes the file without which the signal has the virtual machine print its threads.
    fn trigger(&self) -> io::Result<Trigger> {
        let name = format!(".attach_pid{}", self.own_pid);
        let folder = PathBuf::from(format!("/proc/{}/cwd", self.pid));
        Trigger::new(&folder.join(&name)).or_else(|_| Trigger::new(&self.temporary().join(&name)))
    }
}

/// The file that goes with the signal; removed in the end.
struct Trigger(PathBuf);

impl Trigger {
    fn new(path: &Path) -> io::Result<Trigger> {
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o660);
        options.open(path)?;
        Ok(Trigger(path.to_owned()))
    }
}

impl Drop for Trigger {
    fn drop(&mut self) {
        // The next adapter makes it anew, so nothing is wrong with one that stays.
        let _ = fs::remove_file(&self.0);
    }
}

/// The process's number in its own namespace, and whether it handles SIGQUIT.
fn parse_status(status: &str) -> Option<(u32, bool)> {
    let of = |field: &str| status.lines().find_map(|line| line.strip_prefix(field));
    let own_pid = of("NSpid:").or_else(|| of("Pid:"))?;
    let own_pid = own_pid.split_ascii_whitespace().next_back()?.parse().ok()?;
    let caught = u64::from_str_radix(of("SigCgt:")?.trim(), 16).ok()?;
    Some((own_pid, caught & SIGQUIT_BIT != 0))
}

fn encode(parts: [&str; 4]) -> Vec<u8> {
    let mut bytes = b"1\0".to_vec();
    for part in parts {
        bytes.extend_from_slice(part.as_bytes());
        bytes.push(0);
    }
    bytes
}

/// The text after the first line, or the description of an error.
fn decode(answer: &str) -> Result<Result<String, String>, AdapterError> {
    let (code, text) = answer.split_once('\n').unwrap_or((answer, ""));
    let code: i32 = code
        .trim()
        .parse()
        .map_err(|_| AdapterError::Answer("code"))?;
    Ok(match code {
        0 => Ok(text.to_owned()),
        code => Err(format!("{code} {}", text.trim())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_those_of_the_protocol() {
        assert_eq!(
            encode(["setflag", "SoftMaxHeapSize", "7", ""]),
            b"1\0setflag\0SoftMaxHeapSize\x007\0\0"
        );
        assert_eq!(
            decode("0\nall well\n").unwrap(),
            Ok("all well\n".to_owned())
        );
        assert_eq!(decode("0").unwrap(), Ok(String::new()));
        assert_eq!(decode("101\nno\n").unwrap(), Err("101 no".to_owned()));
        assert!(decode("hello").is_err());
    }

    #[test]
    fn a_process_that_does_not_handle_the_signal_is_recognised() {
        let of = |caught: &str| {
            let status = format!("Name:\tjava\nPid:\t70\nNSpid:\t70\t3\nSigCgt:\t{caught}\n");
            parse_status(&status)
        };
        assert_eq!(of("2000000181005ccf"), Some((3, true)));
        assert_eq!(of("0000000000000000"), Some((3, false)));
        assert_eq!(parse_status("Name:\tx\n"), None);
        let this = Machine::find(kernel::process(std::process::id()).unwrap());
        assert!(matches!(this, Err(AdapterError::NotThis { .. })));
    }
}
