//! Environments made ready: where kernels run, other than in this process and in a guest of
//! its own memory.

mod cgroup;
mod cpio;
mod guest;
mod worker;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::environment::{self, Environment, Limits};
pub(crate) use cgroup::{Group, join, sweep};
pub(crate) use guest::prepare;
pub(crate) use worker::{Hello, Request, Worker, serve};

/// How long a process takes to start at most.
const START: Duration = Duration::from_secs(20);

/// The tool of util-linux that makes namespaces, and those it makes.
const UNSHARE: &str = "unshare";
const NAMESPACES: [&str; 12] = [
    "--user",
    "--map-root-user",
    "--mount",
    "--pid",
    "--fork",
    "--kill-child",
    "--net",
    "--ipc",
    "--uts",
    "--cgroup",
    "--mount-proc",
    "--",
];

/// A worker that several benches use.
pub(crate) type Shared = Rc<RefCell<Placed>>;

/// A worker in its place. Dropped in this order: the group is removed when it is empty.
pub(crate) struct Placed {
    pub(crate) worker: Worker,
    _group: Option<Group>,
}

/// Environments that are here, with the workers of those that have one.
#[derive(Clone, Default)]
pub struct Places {
    pub(crate) all: Vec<(Environment, Option<Shared>)>,
}

impl Places {
    /// Which they are.
    pub fn environments(&self) -> Vec<Environment> {
        self.all
            .iter()
            .map(|(environment, _)| *environment)
            .collect()
    }

    /// How long each worker took to be ready, in seconds.
    pub(crate) fn ready(&self) -> impl Iterator<Item = (Environment, f64)> {
        let ready = |(environment, worker): &(Environment, Option<Shared>)| {
            let ready_s = worker.as_ref()?.borrow().worker.ready_s;
            Some((*environment, ready_s))
        };
        self.all.iter().filter_map(ready)
    }
}

/// Makes environments ready when they are first asked for, and keeps them.
pub(crate) struct Hosts {
    helper: (PathBuf, Vec<String>),
    limits: Limits,
    tried: BTreeMap<Environment, Result<Option<Shared>, String>>,
    groups: usize,
}

impl Hosts {
    /// Nothing is ready yet.
    pub(crate) fn new(helper: &(PathBuf, Vec<String>), limits: Limits) -> Hosts {
        Hosts {
            helper: helper.clone(),
            limits,
            tried: BTreeMap::new(),
            groups: 0,
        }
    }

    /// That an environment cannot be had, whatever the machine says.
    #[cfg(test)]
    pub(crate) fn refuse(&mut self, environment: Environment, reason: &str) {
        self.tried.insert(environment, Err(reason.to_owned()));
    }

    /// That an environment of this process is here, whatever the machine says.
    #[cfg(test)]
    pub(crate) fn assume(&mut self, environment: Environment) {
        self.tried.insert(environment, Ok(None));
    }

    /// An environment's worker, `None` for those of this process; or why it is not here. One
    /// that has died is started again.
    pub(crate) fn get(&mut self, environment: Environment) -> Result<Option<Shared>, String> {
        let is_dead = |tried: &Result<Option<Shared>, String>| matches!(tried, Ok(Some(placed)) if placed.borrow().worker.is_dead());
        match self.tried.get(&environment) {
            Some(tried) if !is_dead(tried) => return tried.clone(),
            _ => {}
        }
        let tried = self
            .start(environment)
            .map_err(|error| format!("{error:#}"));
        self.tried.insert(environment, tried.clone());
        tried
    }

    fn start(&mut self, environment: Environment) -> Result<Option<Shared>> {
        let placed = match environment {
            Environment::Native => return Ok(None),
            Environment::KvmMicro => return environment::has_guest().map(|()| None),
            Environment::Cgroup | Environment::Container => self.limited(environment)?,
            Environment::KvmLinux | Environment::Tcg => Placed {
                worker: guest::start(environment, &self.helper)?,
                _group: None,
            },
        };
        Ok(Some(Rc::new(RefCell::new(placed))))
    }

    /// A worker in a cgroup; a container's is in namespaces, too.
    fn limited(&mut self, environment: Environment) -> Result<Placed> {
        self.groups += 1;
        let name = format!("aerostat-lab-{}-{}", std::process::id(), self.groups);
        let group = Group::new(self.limits, &self.helper, &name)?;
        let (program, before) = &self.helper;
        let mut command = Command::new(program);
        command.args(before).args(["helper", "worker"]);
        for folder in group.folders() {
            command.arg("--cgroup").arg(folder);
        }
        if environment == Environment::Container {
            command.arg("--contained");
        }
        let worker = Worker::start(command, START)?;
        if environment == Environment::Container {
            is_apart(&worker.hello, &Hello::here())?;
        }
        Ok(Placed {
            worker,
            _group: Some(group),
        })
    }
}

/// A worker that is a process of this system like the lab itself.
///
/// # Errors
/// When it cannot be started.
pub(crate) fn start_worker((program, before): &(PathBuf, Vec<String>)) -> Result<Worker> {
    let mut command = Command::new(program);
    command.args(before).args(["helper", "worker"]);
    Worker::start(command, START)
}

/// Whether a worker is in none of this process's namespaces.
fn is_apart(worker: &Hello, lab: &Hello) -> Result<()> {
    let shared: Vec<&String> = worker
        .namespaces
        .iter()
        .filter(|one| lab.namespaces.contains(one))
        .collect();
    if !shared.is_empty() || worker.namespaces.is_empty() {
        bail!("the container shares namespaces with the lab: {shared:?}");
    }
    Ok(())
}

/// Becomes a worker in a cgroup, in namespaces of its own if it is to be contained.
///
/// # Errors
/// When it cannot get there, or its output is closed.
pub(crate) fn work(cgroup: &[PathBuf], is_contained: bool) -> Result<()> {
    join(cgroup)?;
    if !is_contained {
        return serve();
    }
    let arguments: Vec<std::ffi::OsString> = std::env::args_os().skip(1).collect();
    // This command again, without what has been done.
    let before = arguments.iter().take_while(|one| *one != "worker");
    let program = std::env::current_exe().context("this program has no path")?;
    let error = std::os::unix::process::CommandExt::exec(
        Command::new(UNSHARE)
            .args(NAMESPACES)
            .arg(program)
            .args(before)
            .arg("worker"),
    );
    Err(error).with_context(|| format!("cannot start {UNSHARE} (Debian: util-linux)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_share_no_namespace() {
        let hello = |names: &[&str]| Hello {
            namespaces: names.iter().map(|name| (*name).to_owned()).collect(),
            ..Hello::default()
        };
        let lab = hello(&["pid:[1]", "net:[2]"]);
        assert!(is_apart(&hello(&["pid:[3]", "net:[4]"]), &lab).is_ok());
        let error = is_apart(&hello(&["pid:[3]", "net:[2]"]), &lab).unwrap_err();
        assert!(error.to_string().contains("net:[2]"), "{error}");
        assert!(is_apart(&hello(&[]), &lab).is_err(), "nothing is known");
    }

    #[test]
    fn what_was_refused_stays_refused() {
        let mut hosts = Hosts::new(&Default::default(), Limits::default());
        hosts.refuse(Environment::Tcg, "no emulator");
        assert_eq!(hosts.get(Environment::Tcg).err().unwrap(), "no emulator");
        assert!(hosts.get(Environment::Native).unwrap().is_none());
    }
}
