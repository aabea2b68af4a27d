//! A process that runs kernels over memory of its own, wherever it is: it reads a request as a
//! line of JSON and writes an answer as another.
//!
//! ```text
//! lab                        worker (in a cgroup, in namespaces, in a guest)
//!   start ─────────────────► who and where it is: Hello
//!   Open, Fill ────────────► memory, and what lies in it, made from a seed as the lab's own is
//!   Run, Repeat ───────────► ns of each window, and what was computed
//!   its input ends ────────► it ends
//! ```

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use aerostat_calibrate::{Buffer, Pages, cores};
use aerostat_micro_vm::{Kernel, native, ticks_per_ns};
use anyhow::{Context, Result, anyhow, bail};
use serde::{Deserialize, Serialize};

use crate::bench::{Content, repeat};

/// What a worker is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Request {
    /// Run on these cores.
    Pin { cores: Vec<usize> },
    /// Have memory under this number.
    Open {
        id: u32,
        bytes: usize,
        pages: Pages,
        populate: bool,
    },
    /// Give it back.
    Close { id: u32 },
    /// Lay something into it.
    Fill { id: u32, content: Content },
    /// Time a kernel.
    Run {
        id: u32,
        kernel: Kernel,
        windows: usize,
    },
    /// Count how often a kernel ends in so many seconds.
    Repeat {
        id: u32,
        kernel: Kernel,
        seconds: f64,
    },
}

/// What it answers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Answer {
    /// ns of each window.
    pub(crate) ns: Vec<f64>,
    /// What the kernel computed.
    pub(crate) result: u64,
    /// How often a kernel ended in time.
    pub(crate) count: usize,
    /// The share of that time that its process had a core.
    pub(crate) core_share: f64,
    /// Why not.
    pub(crate) error: Option<String>,
}

/// Who a worker is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// Its process id, as it sees it.
    pub(crate) pid: u32,
    /// The kernel's release.
    pub(crate) kernel: String,
    /// Its namespaces, as the system names them.
    pub(crate) namespaces: Vec<String>,
}

impl Hello {
    /// Of this process.
    pub(crate) fn here() -> Hello {
        let names = ["cgroup", "ipc", "mnt", "net", "pid", "user", "uts"];
        let link = |name: &&str| std::fs::read_link(format!("/proc/self/ns/{name}")).ok();
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease");
        Hello {
            pid: std::process::id(),
            kernel: release.unwrap_or_default().trim().to_owned(),
            namespaces: names
                .iter()
                .filter_map(link)
                .map(|path| path.to_string_lossy().into_owned())
                .collect(),
        }
    }
}

/// Answers requests until the input ends.
///
/// # Errors
/// When the output is closed.
pub(crate) fn serve() -> Result<()> {
    let mut output = std::io::stdout();
    let mut say = |text: String| writeln!(output, "{text}").and_then(|()| output.flush());
    say(serde_json::to_string(&Hello::here())?)?;
    let rate = ticks_per_ns()?;
    let mut buffers = BTreeMap::new();
    for line in std::io::stdin().lock().lines() {
        let answer = serde_json::from_str(&line?)
            .context("no request")
            .and_then(|request| answer(request, &mut buffers, rate));
        let answer = answer.unwrap_or_else(|error| Answer {
            error: Some(format!("{error:#}")),
            ..Answer::default()
        });
        say(serde_json::to_string(&answer)?)?;
    }
    Ok(())
}

fn answer(request: Request, buffers: &mut BTreeMap<u32, Buffer>, rate: f64) -> Result<Answer> {
    let mut answer = Answer::default();
    match request {
        Request::Pin { cores } => cores::pin(&cores)?,
        Request::Open {
            id,
            bytes,
            pages,
            populate,
        } => {
            let mut buffer = Buffer::new(bytes, pages)?;
            if populate {
                buffer.populate();
            }
            buffers.insert(id, buffer);
        }
        Request::Close { id } => {
            buffers.remove(&id);
        }
        Request::Fill { id, content } => {
            content.lay(memory(buffers, id)?)?;
        }
        Request::Run {
            id,
            kernel,
            windows,
        } => {
            let timing = native(memory(buffers, id)?, kernel, windows)?;
            answer.ns = timing.ticks.iter().map(|t| *t as f64 / rate).collect();
            answer.result = timing.result;
        }
        Request::Repeat {
            id,
            kernel,
            seconds,
        } => {
            let words = memory(buffers, id)?;
            (answer.count, answer.core_share) = repeat(seconds, || {
                native(words, kernel, 1)?;
                Ok(())
            })?;
        }
    }
    Ok(answer)
}

fn memory(buffers: &mut BTreeMap<u32, Buffer>, id: u32) -> Result<&mut [u32]> {
    let buffer = buffers.get_mut(&id).context("no such memory")?;
    Ok(buffer.words_mut())
}

/// How long a worker may think about a request: longer than any takes in an emulator.
const ANSWER: Duration = Duration::from_secs(120);

/// As much of what a worker says on its standard error is kept.
const ERRORS_BYTES: usize = 4096;

/// A worker, seen from the lab. It ends with this value.
pub(crate) struct Worker {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    errors: Arc<Mutex<Vec<u8>>>,
    /// Numbers of memory that were given out.
    ids: u32,
    is_dead: bool,
    /// Who it is.
    pub(crate) hello: Hello,
    /// How long it took until it said so, in seconds.
    pub(crate) ready_s: f64,
}

impl Worker {
    /// Starts one by this command, and waits for its first word.
    ///
    /// # Errors
    /// When it cannot be started, or says nothing in time; with what it said on its standard
    /// error.
    pub(crate) fn start(mut command: Command, patience: Duration) -> Result<Worker> {
        let started = Instant::now();
        let program = command.get_program().to_string_lossy().into_owned();
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {program}"))?;
        let output = child.stdout.take().context("a worker has no output")?;
        let input = child.stdin.take();
        let (say, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if say.send(line).is_err() {
                    return;
                }
            }
        });
        let errors = Arc::new(Mutex::new(Vec::new()));
        let (kept, mut stream) = (errors.clone(), child.stderr.take());
        std::thread::spawn(move || {
            let mut part = [0; 512];
            while let Some(Ok(count @ 1..)) = stream.as_mut().map(|s| s.read(&mut part)) {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.extend_from_slice(&part[..count]);
                let beyond = kept.len().saturating_sub(ERRORS_BYTES);
                kept.drain(..beyond);
            }
        });
        let mut worker = Worker {
            child,
            input,
            lines,
            errors,
            ids: 0,
            is_dead: false,
            hello: Hello::default(),
            ready_s: 0.0,
        };
        let line = worker.line(patience)?;
        worker.hello = serde_json::from_str(&line)
            .with_context(|| format!("a worker said {line:?} instead of who it is"))?;
        worker.ready_s = started.elapsed().as_secs_f64();
        Ok(worker)
    }

    /// Whether it has ended or is out of step, so that another is needed.
    pub(crate) fn is_dead(&self) -> bool {
        self.is_dead
    }

    /// Memory under a new number.
    ///
    /// # Errors
    /// The worker's.
    pub(crate) fn open(&mut self, bytes: usize, pages: Pages, populate: bool) -> Result<u32> {
        self.ids += 1;
        let id = self.ids;
        self.ask(&Request::Open {
            id,
            bytes,
            pages,
            populate,
        })?;
        Ok(id)
    }

    /// Its answer to a request.
    ///
    /// # Errors
    /// Its own, or that it gives none.
    pub(crate) fn ask(&mut self, request: &Request) -> Result<Answer> {
        let input = self.input.as_mut().context("a worker has no input")?;
        let text = serde_json::to_string(request)?;
        // One that cannot read has ended; why, it said.
        let _ = writeln!(input, "{text}").and_then(|()| input.flush());
        let line = self.line(ANSWER)?;
        let answer: Answer = serde_json::from_str(&line).map_err(|error| {
            self.is_dead = true;
            anyhow!("a worker answered {line:?}: {error}")
        })?;
        match answer.error {
            Some(error) => bail!("a worker cannot do it: {error}"),
            None => Ok(answer),
        }
    }

    fn line(&mut self, patience: Duration) -> Result<String> {
        let failure = match self.lines.recv_timeout(patience) {
            Ok(line) => return Ok(line),
            Err(error) => error,
        };
        self.is_dead = true;
        let how = match failure {
            RecvTimeoutError::Timeout => format!("said nothing for {} s", patience.as_secs()),
            RecvTimeoutError::Disconnected => {
                let status = self.child.wait()?;
                format!("ended with {status}")
            }
        };
        // What it said last may be on its way still.
        std::thread::sleep(Duration::from_millis(20));
        let errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        let errors = String::from_utf8_lossy(&errors).trim().to_owned();
        let last: Vec<&str> = errors.lines().rev().take(3).collect();
        let said: Vec<&str> = last.into_iter().rev().map(str::trim).collect();
        bail!("the process there {how}: {}", said.join("; "));
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
