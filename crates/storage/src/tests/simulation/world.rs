//! All tenants of a simulation with their disk and clock, from one life to the next.

use std::cell::Cell;

use super::*;

/// How often a call of the disk fails, in a life in which any does.
const FAULT_RATES: [f64; 3] = [0.003, 0.02, 0.1];

/// The power fails within so many calls of the disk, mostly fewer.
const CALLS_MAX_LOG2: u32 = 10;

/// What the next life of all tenants begins with.
pub(super) struct World {
    random: StdRng,
    disk: Arc<SimDisk>,
    clock: Arc<SimClock>,
    tenants: Vec<(Known, Numbers)>,
}

impl World {
    pub(super) fn new(seed: u64) -> World {
        let numbers = Numbers {
            key: 0,
            txn: 0,
            table: BAG,
            backup: 0,
        };
        let mut random = StdRng::seed_from_u64(seed);
        let disk = SimDisk::new(random.random());
        let machine = Machine {
            disk: Arc::new(Handle(Arc::clone(&disk))),
            clock: Arc::new(SimClock::new()),
        };
        for tenant in 0..TENANTS {
            let root = root(&format!("t{tenant}"));
            machine.disk.make_folder_for_good(&root).unwrap();
        }
        World {
            random,
            disk,
            clock: Arc::new(SimClock::new()),
            tenants: vec![(Known::default(), numbers); TENANTS],
        }
    }

    fn machine(&self) -> Machine {
        Machine {
            disk: Arc::new(Handle(Arc::clone(&self.disk))),
            clock: Arc::clone(&self.clock) as _,
        }
    }

    /// Opens the tenants on a disk that fails, or whose power does; what is left is opened next.
    fn attempt(&mut self) {
        let machine = self.machine();
        if self.random.random_bool(0.5) {
            self.disk.crash_in(Some(self.random.random_range(0..60)));
        }
        self.disk
            .fail_at([0.0, 0.02][self.random.random_range(0..2)]);
        for tenant in 0..TENANTS {
            let folder = root(&format!("t{tenant}")).join("tenant");
            let opened = try_opened(1, &folder, &machine);
            let is_excused = self.disk.has_failed(&format!("t{tenant}"));
            assert!(opened.is_ok() || is_excused, "{:?}", opened.err());
        }
        self.end();
    }

    /// The next life begins with what is on the disk now, or what the crash left.
    fn end(&mut self) {
        self.disk.crash_in(None);
        self.disk.fail_at(0.0);
        self.disk.forgive();
        if let Some(left) = self.disk.crashed() {
            self.disk = left;
        }
    }

    /// Opens all tenants, and holds each against what is known of it.
    pub(super) fn begin(&mut self) -> Vec<Shared> {
        if self.random.random_bool(0.3) {
            self.attempt();
        }
        let machine = self.machine();
        let begin = |(tenant, (known, numbers)): (usize, (Known, Numbers))| {
            let random = StdRng::seed_from_u64(self.random.random());
            let name = format!("t{tenant}");
            let life = Life::begin(name, &self.disk, &machine, known, numbers, random);
            Rc::new(RefCell::new(life))
        };
        let tenants = std::mem::take(&mut self.tenants);
        tenants.into_iter().enumerate().map(begin).collect()
    }

    /// Plays the tenants to their end.
    pub(super) fn live(&mut self) {
        let lives: Rc<Vec<Shared>> = Rc::new(self.begin());
        if self.random.random_bool(0.4) {
            let rate = FAULT_RATES[self.random.random_range(0..FAULT_RATES.len())];
            self.disk.fail_at(rate);
        }
        if self.random.random_bool(0.75) {
            let calls = 1 << self.random.random_range(0..=CALLS_MAX_LOG2);
            self.disk.crash_in(Some(self.random.random_range(0..calls)));
        }
        let crashed = witnessed(&lives);
        let at = Rc::new(Cell::new(0));
        visited(&lives, &at, StdRng::seed_from_u64(self.random.random()));
        let steps = self.random.random_range(5..STEPS_MAX);
        let play_all = |steps: usize| {
            for step in 0..steps {
                if self.disk.crashed().is_none() {
                    at.set(step % TENANTS);
                    play(&lives[at.get()]);
                }
            }
        };
        play_all(steps);
        if self.random.random_bool(0.15) {
            self.disk.fail_at(1.0);
            play_all(10 * TENANTS);
        }
        visit::set(None);
        set_witness(None);
        // Nobody would note what is known.
        self.disk.crash_in(None);
        self.disk.fail_at(0.0);
        let lives = Rc::into_inner(lives).unwrap();
        for life in lives {
            let mut life = Rc::into_inner(life).unwrap().into_inner();
            life.finish_all();
            self.tenants
                .push((life.known.borrow().clone(), life.numbers));
        }
        if let Some(known) = crashed.take() {
            for (tenant, known) in self.tenants.iter_mut().zip(known) {
                tenant.0 = known;
            }
        }
        self.end();
    }
}

/// What is known of each tenant when the power fails.
fn witnessed(lives: &[Shared]) -> Rc<RefCell<Option<Vec<Known>>>> {
    let crashed = Rc::new(RefCell::new(None));
    let each = |life: &Shared| {
        let life = life.borrow();
        (Arc::clone(&life.store), Rc::clone(&life.known))
    };
    let all: Vec<_> = lives.iter().map(each).collect();
    let noted = Rc::clone(&crashed);
    let note = move || {
        let known = |(store, known): &(Arc<TenantStore>, Rc<RefCell<Known>>)| {
            let mut known = known.borrow().clone();
            known.seen = store.txns().last_commit();
            known
        };
        *noted.borrow_mut() = Some(all.iter().map(known).collect());
    };
    set_witness(Some(Rc::new(note)));
    crashed
}

/// Has others step in between wherever the tenant at hand passes a place.
fn visited(lives: &Rc<Vec<Shared>>, at: &Rc<Cell<usize>>, mut random: StdRng) {
    let (lives, at) = (Rc::clone(lives), Rc::clone(at));
    visit::set(Some(Box::new(move |place| {
        // Who plays holds nothing while it calls the store, but for steps of sessions.
        if let Ok(mut life) = lives[at.get()].try_borrow_mut() {
            life.passed(place);
        }
        let other = random.random_range(0..TENANTS);
        if other != at.get() && random.random_bool(0.2) {
            let mut other = lives[other].borrow_mut();
            if other.disk.crashed().is_none() {
                other.step(WaitPoint::Free);
            }
        }
    })));
}
