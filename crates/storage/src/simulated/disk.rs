//! A disk in memory that loses unsynced writes when the power fails, and fails where a seed says.
//!
//! ```text
//!  file     synced bytes ── writes and cuts since ──► what is read now
//!  folder   synced names ── names since           ──► what is listed now
//!
//!  crash    file     any of the writes since its sync, each whole or torn by sectors, or none
//!           folder   the first so many of its changes since its sync
//! ```
//!
//! * Files and folders are synced separately: a synced file has a name only once its folder was
//!   synced.
//! * A sync of a file that fails may lose what it was to make durable: the written bytes can
//!   still be read, and no later sync makes them durable (Rebello et al., ATC 2020).
//! * A crash is a picture of the disk, taken within one of its calls; the disk goes on.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    fmt, io,
    path::{Component, Path, PathBuf},
    rc::Rc,
    sync::Arc,
};

use parking_lot::Mutex;
use rand::{Rng, SeedableRng, rngs::StdRng};

use crate::files::disk::{Disk, DiskFile, DiskLock, DiskSpace, Found, Opened};

/// What is written to a disk as a whole.
const SECTOR_BYTES: usize = 512;

type NodeId = u64;

const ROOT: NodeId = 0;

/// A disk of a simulation.
pub struct SimDisk(Mutex<State>);

struct State {
    random: StdRng,
    nodes: BTreeMap<NodeId, Node>,
    next: NodeId,
    locked: BTreeSet<PathBuf>,
    /// How often a call fails.
    fault_rate: f64,
    /// Whose calls have failed, by the first folder of their paths.
    failed: BTreeSet<String>,
    /// The power fails in so many calls.
    crash_in: Option<u64>,
    crashed: Option<Arc<SimDisk>>,
}

#[derive(Clone)]
enum Node {
    File(Bytes),
    Folder(Names),
}

#[derive(Clone, Default)]
struct Bytes {
    synced: Vec<u8>,
    now: Vec<u8>,
    since: Vec<Change>,
}

#[derive(Clone)]
enum Change {
    Write(usize, Vec<u8>),
    Cut(usize),
}

#[derive(Clone, Default)]
struct Names {
    synced: BTreeMap<String, NodeId>,
    now: BTreeMap<String, NodeId>,
    since: Vec<Naming>,
}

#[derive(Clone)]
enum Naming {
    Set(String, NodeId),
    Remove(String),
    Rename(String, String),
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Change::Write(at, written) => {
                bytes.resize(bytes.len().max(*at), 0);
                let over = written.len().min(bytes.len() - at);
                let (inside, behind) = written.split_at(over);
                bytes[*at..at + over].copy_from_slice(inside);
                bytes.extend_from_slice(behind);
            }
            Change::Cut(length) => bytes.resize(*length, 0),
        }
    }

    /// As much of it as a crash leaves.
    fn torn(&self, bytes: &mut Vec<u8>, random: &mut StdRng) {
        let Change::Write(at, written) = self else {
            return self.apply(bytes);
        };
        // Whole sectors: those before some place, or any.
        let is_prefix = random.random_bool(0.5);
        let kept = random.random_range(0..=written.len());
        let mut from = 0;
        while from < written.len() {
            let to = written
                .len()
                .min((at + from) / SECTOR_BYTES * SECTOR_BYTES + SECTOR_BYTES - at);
            let stays = match is_prefix {
                true => to <= kept,
                false => random.random_bool(0.5),
            };
            if stays {
                Change::Write(at + from, written[from..to].to_vec()).apply(bytes);
            }
            from = to;
        }
    }
}

impl Naming {
    fn apply(&self, names: &mut BTreeMap<String, NodeId>) {
        match self {
            Naming::Set(name, node) => drop(names.insert(name.clone(), *node)),
            Naming::Remove(name) => drop(names.remove(name)),
            Naming::Rename(from, to) => {
                if let Some(node) = names.remove(from) {
                    names.insert(to.clone(), node);
                }
            }
        }
    }
}

impl Bytes {
    fn change(&mut self, change: Change) {
        change.apply(&mut self.now);
        self.since.push(change);
    }

    fn sync(&mut self) {
        for change in self.since.drain(..) {
            change.apply(&mut self.synced);
        }
    }

    /// What is left of it after a crash.
    fn crashed(&self, random: &mut StdRng) -> Bytes {
        let mut left = self.synced.clone();
        let of_all = match random.random_range(0..4) {
            0 => 0.0,
            1 => 1.0,
            _ => random.random_range(0.0..1.0),
        };
        for change in &self.since {
            if random.random_bool(of_all) {
                match random.random_bool(0.3) {
                    true => change.torn(&mut left, random),
                    false => change.apply(&mut left),
                }
            }
        }
        Bytes {
            synced: left.clone(),
            now: left,
            since: Vec::new(),
        }
    }
}

impl Names {
    fn change(&mut self, naming: Naming) {
        naming.apply(&mut self.now);
        self.since.push(naming);
    }

    fn sync(&mut self) {
        self.synced = self.now.clone();
        self.since.clear();
    }

    fn crashed(&self, random: &mut StdRng) -> Names {
        let mut left = self.synced.clone();
        let count = match random.random_range(0..3) {
            0 => 0,
            1 => self.since.len(),
            _ => random.random_range(0..=self.since.len()),
        };
        for naming in &self.since[..count] {
            naming.apply(&mut left);
        }
        Names {
            synced: left.clone(),
            now: left,
            since: Vec::new(),
        }
    }
}

thread_local! {
    /// Told of the moment of a crash.
    static WITNESS: RefCell<Option<Rc<dyn Fn()>>> = const { RefCell::new(None) };
}

/// Has somebody told when the power of a disk of this thread fails, within a call; `None`: nobody
/// any more.
pub fn set_witness(witness: Option<Rc<dyn Fn()>>) {
    WITNESS.set(witness);
}

impl SimDisk {
    /// Nothing in it yet.
    pub fn new(seed: u64) -> Arc<SimDisk> {
        let root = Node::Folder(Names::default());
        SimDisk::of(StdRng::seed_from_u64(seed), [(ROOT, root)].into(), 1)
    }

    fn of(random: StdRng, nodes: BTreeMap<NodeId, Node>, next: NodeId) -> Arc<SimDisk> {
        Arc::new(SimDisk(Mutex::new(State {
            random,
            nodes,
            next,
            locked: BTreeSet::new(),
            fault_rate: 0.0,
            failed: BTreeSet::new(),
            crash_in: None,
            crashed: None,
        })))
    }

    /// How often calls fail from now on.
    pub fn fail_at(&self, rate: f64) {
        self.0.lock().fault_rate = rate;
    }

    /// Whether a call has failed on purpose for a path that begins with this folder.
    pub fn has_failed(&self, folder: &str) -> bool {
        self.0.lock().failed.contains(folder)
    }

    /// Forgets whose calls failed.
    pub fn forgive(&self) {
        self.0.lock().failed.clear();
    }

    /// The power fails in so many calls; `None`: it does not.
    pub fn crash_in(&self, calls: Option<u64>) {
        self.0.lock().crash_in = calls;
    }

    /// What a crash now would leave.
    pub fn crash_now(&self) -> Arc<SimDisk> {
        self.0.lock().picture()
    }

    /// What the crash left, if there was one.
    pub fn crashed(&self) -> Option<Arc<SimDisk>> {
        self.0.lock().crashed.clone()
    }

    /// A call for a path: it may fail, and the power may fail in the middle of it, when `started`
    /// has happened and `done` has not.
    fn call<T>(
        &self,
        path: &Path,
        started: impl FnOnce(&mut State) -> io::Result<T>,
        done: impl FnOnce(&mut State, &T),
    ) -> io::Result<T> {
        let mut state = self.0.lock();
        let fails = state.fails(path);
        if let Some(error) = fails {
            return Err(error);
        }
        let result = started(&mut state)?;
        let crashes = state.crashes_now();
        if crashes {
            let picture = state.picture();
            state.crashed = Some(picture);
        }
        done(&mut state, &result);
        drop(state);
        if crashes {
            let witness = WITNESS.with_borrow(Clone::clone);
            if let Some(witness) = witness {
                witness();
            }
        }
        Ok(result)
    }

    fn read_call<T>(
        &self,
        path: &Path,
        read: impl FnOnce(&mut State) -> io::Result<T>,
    ) -> io::Result<T> {
        self.call(path, read, |_, _| {})
    }

    fn name(
        &self,
        path: &Path,
        naming: impl FnOnce(&mut State, String) -> io::Result<Naming>,
    ) -> io::Result<()> {
        self.call(
            path,
            |state| {
                let (folder, name) = state.place(path)?;
                let naming = naming(state, name)?;
                state.folder(folder)?.change(naming);
                Ok(())
            },
            |_, ()| {},
        )
    }
}

fn not_found() -> io::Error {
    io::ErrorKind::NotFound.into()
}

fn parts(path: &Path) -> impl Iterator<Item = String> + '_ {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_str().unwrap().to_owned()),
        _ => None,
    })
}

impl State {
    fn crashes_now(&mut self) -> bool {
        let Some(left) = self.crash_in else {
            return false;
        };
        self.crash_in = left.checked_sub(1);
        left == 0
    }

    /// The error of a call that fails on purpose.
    fn fails(&mut self, path: &Path) -> Option<io::Error> {
        if self.fault_rate == 0.0 || !self.random.random_bool(self.fault_rate) {
            return None;
        }
        self.failed.extend(parts(path).next());
        // EIO and ENOSPC.
        let number = [5, 28][self.random.random_range(0..2)];
        Some(io::Error::from_raw_os_error(number))
    }

    /// The disk as it is after a crash now.
    fn picture(&mut self) -> Arc<SimDisk> {
        let mut random = StdRng::seed_from_u64(self.random.random());
        let mut nodes = BTreeMap::new();
        for (id, node) in &self.nodes {
            let node = match node {
                Node::File(bytes) => Node::File(bytes.crashed(&mut random)),
                Node::Folder(names) => Node::Folder(names.crashed(&mut random)),
            };
            nodes.insert(*id, node);
        }
        SimDisk::of(random, nodes, self.next)
    }

    fn find(&self, path: &Path) -> io::Result<NodeId> {
        let mut at = ROOT;
        for part in parts(path) {
            let Node::Folder(names) = &self.nodes[&at] else {
                return Err(io::ErrorKind::NotADirectory.into());
            };
            at = *names.now.get(&part).ok_or_else(not_found)?;
        }
        Ok(at)
    }

    /// The folder of a path and the name in it.
    fn place(&self, path: &Path) -> io::Result<(NodeId, String)> {
        let name = parts(path).last().ok_or_else(not_found)?;
        Ok((self.find(path.parent().ok_or_else(not_found)?)?, name))
    }

    fn folder(&mut self, id: NodeId) -> io::Result<&mut Names> {
        match self.nodes.get_mut(&id) {
            Some(Node::Folder(names)) => Ok(names),
            _ => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    fn file(&mut self, id: NodeId) -> io::Result<&mut Bytes> {
        match self.nodes.get_mut(&id) {
            Some(Node::File(bytes)) => Ok(bytes),
            _ => Err(io::ErrorKind::IsADirectory.into()),
        }
    }

    fn add(&mut self, node: Node) -> NodeId {
        let id = self.next;
        self.next += 1;
        self.nodes.insert(id, node);
        id
    }
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimDisk").finish_non_exhaustive()
    }
}

/// The disk as a store has it.
#[derive(Clone, Debug)]
pub struct Handle(pub Arc<SimDisk>);

impl Disk for Handle {
    fn open(&self, path: &Path, how: Opened) -> io::Result<Box<dyn DiskFile>> {
        let open = |state: &mut State| {
            let (folder, name) = state.place(path)?;
            let found = state.folder(folder)?.now.get(&name).copied();
            let node = match (found, how) {
                (Some(_), Opened::New) => return Err(io::ErrorKind::AlreadyExists.into()),
                (Some(node), _) => node,
                (None, Opened::Read | Opened::Write) => return Err(not_found()),
                (None, _) => {
                    let node = state.add(Node::File(Bytes::default()));
                    state.folder(folder)?.change(Naming::Set(name, node));
                    node
                }
            };
            let file = state.file(node)?;
            if how == Opened::Empty && !file.now.is_empty() {
                file.change(Change::Cut(0));
            }
            Ok(node)
        };
        let node = self.0.call(path, open, |_, _| {})?;
        Ok(Box::new(SimFile {
            disk: Arc::clone(&self.0),
            node,
            path: path.to_owned(),
        }))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.0.read_call(path, |state| {
            let node = state.find(path)?;
            Ok(state.file(node)?.now.clone())
        })
    }

    fn look(&self, path: &Path) -> io::Result<Found> {
        self.0.read_call(path, |state| {
            let node = state.find(path)?;
            Ok(match &state.nodes[&node] {
                Node::Folder(_) => Found {
                    is_folder: true,
                    bytes: 0,
                },
                Node::File(file) => Found {
                    is_folder: false,
                    bytes: file.now.len() as u64,
                },
            })
        })
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<(PathBuf, bool)>> {
        self.0.read_call(folder, |state| {
            let node = state.find(folder)?;
            let names = state.folder(node)?.now.clone();
            let is_folder = |node: &NodeId| matches!(state.nodes[node], Node::Folder(_));
            let each = names
                .iter()
                .map(|(name, node)| (folder.join(name), is_folder(node)));
            Ok(each.collect())
        })
    }

    fn make_folder(&self, path: &Path) -> io::Result<()> {
        let make = |state: &mut State| {
            let mut at = ROOT;
            for part in parts(path) {
                at = match state.folder(at)?.now.get(&part) {
                    Some(node) => *node,
                    None => {
                        let node = state.add(Node::Folder(Names::default()));
                        state.folder(at)?.change(Naming::Set(part, node));
                        node
                    }
                };
            }
            state.folder(at).map(drop)
        };
        self.0.call(path, make, |_, ()| {})
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        let find = |state: &mut State| {
            let node = state.find(path)?;
            state.folder(node)?;
            Ok(node)
        };
        let sync = |state: &mut State, node: &NodeId| {
            state.folder(*node).unwrap().sync();
        };
        self.0.call(path, find, sync).map(drop)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        assert_eq!(from.parent(), to.parent(), "names change in their folders");
        let old = parts(from).last().unwrap();
        self.0.name(to, |state, name| {
            state.find(from)?;
            Ok(Naming::Rename(old, name))
        })
    }

    fn exchange(&self, _a: &Path, _b: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.name(to, |state, name| match state.find(to) {
            Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
            Err(_) => Ok(Naming::Set(name, state.find(from)?)),
        })
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.0.name(path, |state, name| {
            let node = state.find(path)?;
            state.file(node)?;
            Ok(Naming::Remove(name))
        })
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        self.0.name(path, |state, name| {
            let node = state.find(path)?;
            state.folder(node)?;
            Ok(Naming::Remove(name))
        })
    }

    fn lock(&self, path: &Path) -> io::Result<Option<DiskLock>> {
        let is_new = self.0.read_call(path, |state| {
            state.find(path)?;
            Ok(state.locked.insert(path.to_owned()))
        })?;
        let lock = || SimLock {
            disk: Arc::clone(&self.0),
            path: path.to_owned(),
        };
        Ok(is_new.then(|| Box::new(lock()) as DiskLock))
    }

    fn space(&self, _path: &Path) -> io::Result<DiskSpace> {
        Ok(DiskSpace {
            bytes: 1 << 40,
            bytes_free: 1 << 39,
        })
    }

    fn readers(&self) -> usize {
        1
    }
}

#[derive(Debug)]
struct SimLock {
    disk: Arc<SimDisk>,
    path: PathBuf,
}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.disk.0.lock().locked.remove(&self.path);
    }
}

#[derive(Debug)]
struct SimFile {
    disk: Arc<SimDisk>,
    node: NodeId,
    path: PathBuf,
}

impl SimFile {
    fn sync(&self) -> io::Result<()> {
        let synced = self.disk.call(
            &self.path,
            |_| Ok(()),
            |state, ()| state.file(self.node).unwrap().sync(),
        );
        if synced.is_err() {
            let mut state = self.disk.0.lock();
            if state.random.random_bool(0.5) {
                state.file(self.node)?.since.clear();
            }
        }
        synced
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.disk.read_call(&self.path, |state| {
            let bytes = &state.file(self.node)?.now;
            let rest = bytes.get(offset as usize..).unwrap_or_default();
            let count = rest.len().min(buffer.len());
            buffer[..count].copy_from_slice(&rest[..count]);
            Ok(count)
        })
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let at = offset as usize;
        let write = |state: &mut State| {
            let file = state.file(self.node)?;
            file.change(Change::Write(at, bytes.to_vec()));
            Ok(())
        };
        let written = self.disk.call(&self.path, write, |_, ()| {});
        if written.is_err() {
            // Some of it may have been.
            let mut state = self.disk.0.lock();
            let count = state.random.random_range(0..=bytes.len());
            let short = Change::Write(at, bytes[..count].to_vec());
            state.file(self.node)?.change(short);
        }
        written
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        let cut = |state: &mut State| {
            state.file(self.node)?.change(Change::Cut(bytes as usize));
            Ok(())
        };
        self.disk.call(&self.path, cut, |_, ()| {})
    }

    fn sync_data(&self) -> io::Result<()> {
        self.sync()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync()
    }

    fn bytes(&self) -> io::Result<u64> {
        self.disk.read_call(&self.path, |state| {
            Ok(state.file(self.node)?.now.len() as u64)
        })
    }
}
