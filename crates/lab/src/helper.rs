//! Work that runs as a process of its own: its arguments say what to do, a line on its standard
//! input when to begin, and its answer is a line of JSON.
//!
//! ```text
//! experiment                 helper
//!   spawn all ────────────────► make memory ready
//!   wait for all ◄──────────── "ready"
//!   "go" ─────────────────────► work
//!   read ◄──────────────────── {"ns": [..], …}
//! ```
//!
//! A helper ends when its input does, so none outlives the lab.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use aerostat_calibrate::{Buffer, Pages, cores};
use aerostat_micro_vm::{Kernel, native};
use anyhow::{Context, Result, bail};
use clap::Subcommand;
use serde::{Deserialize, Serialize};

use crate::place;

/// What a helper does.
#[derive(Subcommand, Clone, Debug)]
pub enum HelperCommand {
    /// Scans memory again and again
    Scan {
        /// The core it is on
        #[arg(long)]
        core: usize,
        /// The bytes of a scan
        #[arg(long)]
        bytes: usize,
        /// How long
        #[arg(long)]
        seconds: f64,
    },
    /// Keeps a core busy until its input ends
    Burn {
        /// The core
        #[arg(long)]
        core: usize,
    },
    /// Runs kernels as it is asked to, until its input ends
    Worker {
        /// The groups that it joins first
        #[arg(long)]
        cgroup: Vec<PathBuf>,
        /// Whether it makes namespaces of its own then
        #[arg(long)]
        contained: bool,
    },
    /// Removes groups when its input ends and they are empty
    Sweep {
        /// The groups
        #[arg(long)]
        cgroup: Vec<PathBuf>,
    },
    /// Projects rows into vectors from the system's allocator
    Project {
        /// Threads that do so at once
        #[arg(long)]
        threads: usize,
        /// Rows that each projects
        #[arg(long)]
        rows: usize,
        /// A library that must have been loaded before all others
        #[arg(long)]
        preloaded: Option<String>,
    },
}

/// A helper's answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Answer {
    /// ns of each piece of work.
    pub(crate) ns: Vec<f64>,
    /// How long all of it took, in seconds.
    pub(crate) seconds: f64,
}

/// Does it.
///
/// # Errors
/// When the machine refuses.
pub(crate) fn run(command: &HelperCommand) -> Result<()> {
    let answer = match command {
        HelperCommand::Scan {
            core,
            bytes,
            seconds,
        } => scan(*core, *bytes, *seconds)?,
        HelperCommand::Burn { core } => return burn(*core),
        HelperCommand::Worker { cgroup, contained } => return place::work(cgroup, *contained),
        HelperCommand::Sweep { cgroup } => return place::sweep(cgroup),
        HelperCommand::Project {
            threads,
            rows,
            preloaded,
        } => {
            if let Some(library) = preloaded {
                is_loaded(library)?;
            }
            wait_for_go()?;
            crate::experiments::project(*threads, *rows)?
        }
    };
    say(&serde_json::to_string(&answer)?)
}

fn scan(core: usize, bytes: usize, seconds: f64) -> Result<Answer> {
    cores::settle(Some(core))?;
    let mut buffer = Buffer::new(bytes, Pages::Huge)?;
    buffer.populate();
    let words = bytes / 4;
    wait_for_go()?;
    let started = Instant::now();
    let mut answer = Answer::default();
    while started.elapsed().as_secs_f64() < seconds {
        let from = Instant::now();
        native(buffer.words_mut(), Kernel::Scan { words }, 1)?;
        answer.ns.push(from.elapsed().as_nanos() as f64);
    }
    answer.seconds = started.elapsed().as_secs_f64();
    Ok(answer)
}

fn burn(core: usize) -> Result<()> {
    cores::settle(Some(core))?;
    let ended = std::thread::spawn(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink()));
    say("ready")?;
    let mut value = 1_u64;
    while !ended.is_finished() {
        for _ in 0..100_000 {
            value = std::hint::black_box(value.wrapping_mul(0x5851_f42d_4c95_7f2d) + 1);
        }
    }
    Ok(())
}

fn is_loaded(library: &str) -> Result<()> {
    let maps = std::fs::read_to_string("/proc/self/maps").context("cannot read own mappings")?;
    if !maps.contains(library) {
        bail!("{library} was not loaded before this program");
    }
    Ok(())
}

fn wait_for_go() -> Result<()> {
    say("ready")?;
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    if line.trim() != "go" {
        bail!("a helper of the lab: it is started by experiments");
    }
    Ok(())
}

fn say(line: &str) -> Result<()> {
    let mut output = std::io::stdout();
    writeln!(output, "{line}").and_then(|()| output.flush())?;
    Ok(())
}

/// A helper at work. It ends with this value.
pub(crate) struct Helper {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Helper {
    /// Starts one, and waits until it is ready.
    ///
    /// # Errors
    /// When there is no such program, or it does not get ready.
    pub(crate) fn start(
        (program, before): &(PathBuf, Vec<String>),
        arguments: &[String],
        preload: Option<&PathBuf>,
    ) -> Result<Helper> {
        let mut command = Command::new(program);
        command.args(before).arg("helper").args(arguments);
        if let Some(library) = preload {
            command.env("LD_PRELOAD", library);
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let output = child.stdout.take().context("a helper has no output")?;
        let mut helper = Helper {
            child,
            output: BufReader::new(output),
        };
        let line = helper.line()?;
        if line != "ready" {
            bail!("a helper said {line:?} instead of getting ready");
        }
        Ok(helper)
    }

    /// Lets it begin.
    ///
    /// # Errors
    /// When it has ended.
    pub(crate) fn go(&mut self) -> Result<()> {
        let input = self.child.stdin.as_mut().context("a helper has no input")?;
        writeln!(input, "go").and_then(|()| input.flush())?;
        Ok(())
    }

    /// Its answer, when it has one.
    ///
    /// # Errors
    /// When it ends without.
    pub(crate) fn answer(&mut self) -> Result<Answer> {
        let line = self.line()?;
        serde_json::from_str(&line).with_context(|| format!("a helper answered {line:?}"))
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        if line.is_empty() {
            let status = self.child.wait()?;
            bail!("a helper ended without an answer: {status}");
        }
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // One that answered has ended; another is of no use any more.
        drop(self.child.stdin.take());
        std::thread::sleep(Duration::from_millis(1));
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
