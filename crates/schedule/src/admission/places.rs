//! The decision: who runs, who waits, who is refused. Pure; [`super`] has the lock and the tasks.
//!
//! After every change nobody waits for whom there is room. So whoever finds room on arrival passes nobody that
//! waits for the same, and the order of arrival is kept without asking for it.

use std::collections::{BTreeMap, HashMap};

/// So many statements of a tenant are let in although the node runs as many as it may: statements that sleep, or
/// wait for a lock, keep their places, and would keep every other tenant out. Four get a tenant on with short
/// statements, and hundreds of tenants at once exceed the bound by no more than a few times what it is.
pub const OWN_PLACES: u32 = 4;

/// So many statements of superusers run beyond the node's bound, so that an operator gets in while it is reached. They are
/// in no tenant's bound, and wait as others do where superusers themselves are the load.
pub const RESERVED_PLACES: u32 = 32;

/// How many of a tenant's statements run, and how many wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// So many run at once; `None` for any number.
    pub running_max: Option<u32>,
    /// So many wait; `None` for any number.
    pub waiting_max: Option<u32>,
}

/// Which places a statement needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Needs {
    /// Its tenant's alone: it runs where its connection is, and takes no thread that others want.
    Tenant,
    /// The node's, too.
    Node,
    /// The node's alone, of which some are reserved for such: it is a superuser's.
    Reserve,
}

/// Why a statement is refused: there is no room for it to run, and none to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// How many of the tenant's statements run.
    pub running: u32,
    /// How many of them wait.
    pub waiting: u32,
    /// Whether it is the node that has no room.
    pub is_of_node: bool,
}

/// Which tenant. No two of a node have the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct EntranceNo(u64);

/// The number of a statement that waits, in order of arrival over the whole node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(u64);

/// What becomes of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entered {
    Now,
    Waits(Ticket),
}

/// The places of a node.
pub(crate) struct Places<W> {
    node_max: Option<u32>,
    node_running: u32,
    /// Of those, superusers'.
    of_reserve: u32,
    tenants: HashMap<EntranceNo, Tenant<W>>,
    waiting: usize,
    next: u64,
}

struct Tenant<W> {
    limits: Limits,
    weight: u32,
    running: u32,
    /// Of those, the ones that have places of the node.
    on_node: u32,
    /// By what they need.
    queue_of_tenant: BTreeMap<Ticket, W>,
    queue_of_node: BTreeMap<Ticket, W>,
    queue_of_reserve: BTreeMap<Ticket, W>,
}

impl<W> Tenant<W> {
    /// How many wait, of those that the tenant's bounds are for.
    fn waiting(&self) -> usize {
        self.queue_of_tenant.len() + self.queue_of_node.len()
    }

    fn waiting_all(&self) -> u32 {
        let all = self.waiting() + self.queue_of_reserve.len();
        u32::try_from(all).unwrap_or(u32::MAX)
    }

    fn queue(&mut self, needs: Needs) -> &mut BTreeMap<Ticket, W> {
        match needs {
            Needs::Tenant => &mut self.queue_of_tenant,
            Needs::Node => &mut self.queue_of_node,
            Needs::Reserve => &mut self.queue_of_reserve,
        }
    }

    fn has_room(&self) -> bool {
        self.limits.running_max.is_none_or(|max| self.running < max)
    }
}

impl<W> Places<W> {
    pub(crate) fn new(node_max: Option<u32>) -> Self {
        Self {
            node_max,
            node_running: 0,
            of_reserve: 0,
            tenants: HashMap::new(),
            waiting: 0,
            next: 0,
        }
    }

    /// Another tenant, without bounds and of weight 1.
    pub(crate) fn open(&mut self) -> EntranceNo {
        let no = EntranceNo(self.next_number());
        let tenant = Tenant {
            limits: Limits::default(),
            weight: 1,
            running: 0,
            on_node: 0,
            queue_of_tenant: BTreeMap::new(),
            queue_of_node: BTreeMap::new(),
            queue_of_reserve: BTreeMap::new(),
        };
        self.tenants.insert(no, tenant);
        no
    }

    /// A tenant goes of which nothing runs or waits.
    pub(crate) fn close(&mut self, no: EntranceNo) {
        let gone = self.tenants.remove(&no);
        debug_assert!(
            gone.is_none_or(|tenant| tenant.running == 0 && tenant.waiting_all() == 0),
            "a tenant goes when its last statement has gone"
        );
    }

    fn next_number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn tenant(&mut self, no: EntranceNo) -> &mut Tenant<W> {
        let tenant = self.tenants.get_mut(&no);
        tenant.expect("a tenant is here as long as its entrance is")
    }

    /// Whether the node has a place for another statement of a tenant.
    fn node_has_room(&self, tenant: &Tenant<W>) -> bool {
        let max = self.node_max;
        max.is_none_or(|max| self.node_running < max) || tenant.on_node < OWN_PLACES
    }

    /// Whether it has one for a superuser's statement: the reserve is theirs, however many of others went ahead.
    fn reserve_has_room(&self) -> bool {
        if self.of_reserve < RESERVED_PLACES {
            return true;
        }
        let max = self.node_max.map(|max| max.saturating_add(RESERVED_PLACES));
        max.is_none_or(|max| self.node_running < max)
    }

    /// A statement comes; `waiter` is called if it has to wait.
    pub(crate) fn enter(
        &mut self,
        no: EntranceNo,
        needs: Needs,
        waiter: impl FnOnce() -> W,
    ) -> Result<Entered, Full> {
        let tenant = &self.tenants[&no];
        let (has_room, is_of_node) = match needs {
            Needs::Tenant => (tenant.has_room(), false),
            Needs::Node => {
                let tenant_has_room = tenant.has_room();
                let node_has_room = self.node_has_room(tenant);
                (tenant_has_room && node_has_room, tenant_has_room)
            }
            Needs::Reserve => (self.reserve_has_room(), true),
        };
        if has_room {
            self.enter_ahead(no, needs);
            return Ok(Entered::Now);
        }
        let waiting = u32::try_from(tenant.waiting()).unwrap_or(u32::MAX);
        let is_full = tenant.limits.waiting_max.is_some_and(|max| waiting >= max);
        if is_full && needs != Needs::Reserve {
            return Err(Full {
                running: tenant.running,
                waiting,
                is_of_node,
            });
        }
        let ticket = Ticket(self.next_number());
        self.tenant(no).queue(needs).insert(ticket, waiter());
        self.waiting += 1;
        Ok(Entered::Waits(ticket))
    }

    /// A statement runs, whether there is room for it or not.
    pub(crate) fn enter_ahead(&mut self, no: EntranceNo, needs: Needs) {
        let tenant = self.tenant(no);
        tenant.running += u32::from(needs != Needs::Reserve);
        tenant.on_node += u32::from(needs == Needs::Node);
        self.node_running += u32::from(needs != Needs::Tenant);
        self.of_reserve += u32::from(needs == Needs::Reserve);
    }

    /// A statement that has its tenant's place alone has the node's, too.
    pub(crate) fn take_of_node(&mut self, no: EntranceNo) {
        self.tenant(no).on_node += 1;
        self.node_running += 1;
    }

    /// Whether a tenant runs fewer statements than it may.
    pub(crate) fn tenant_has_room(&self, no: EntranceNo) -> bool {
        self.tenants[&no].has_room()
    }

    /// A statement has ended; gives those that run from now on.
    pub(crate) fn leave(&mut self, no: EntranceNo, needs: Needs) -> Vec<W> {
        let tenant = self.tenant(no);
        let less = |count: &mut u32, is_one: bool| {
            let left = count.checked_sub(u32::from(is_one));
            *count = left.expect("who leaves has a place");
        };
        less(&mut tenant.running, needs != Needs::Reserve);
        less(&mut tenant.on_node, needs == Needs::Node);
        less(&mut self.node_running, needs != Needs::Tenant);
        less(&mut self.of_reserve, needs == Needs::Reserve);
        self.settle()
    }

    /// A statement waits no more; `false` if it does not wait, because it has been let in.
    pub(crate) fn give_up(&mut self, no: EntranceNo, needs: Needs, ticket: Ticket) -> bool {
        let has_waited = self.tenant(no).queue(needs).remove(&ticket).is_some();
        self.waiting -= usize::from(has_waited);
        has_waited
    }

    /// Gives those that run by the new bounds.
    pub(crate) fn set_limits(&mut self, no: EntranceNo, limits: Limits, weight: u32) -> Vec<W> {
        let tenant = self.tenant(no);
        tenant.limits = limits;
        tenant.weight = weight.max(1);
        self.settle()
    }

    /// Lets in whoever there is room for.
    fn settle(&mut self) -> Vec<W> {
        let mut admitted = Vec::new();
        while self.waiting > 0
            && let Some((no, needs)) = self.next()
        {
            self.enter_ahead(no, needs);
            self.waiting -= 1;
            let next = self.tenant(no).queue(needs).pop_first();
            admitted.extend(next.map(|(_, waiter)| waiter));
        }
        admitted
    }

    /// The next for whom there is room: a superuser's; of those that need the tenant's places alone any; of the others one of the
    /// tenant that would have the fewest of the node's places for its weight; of equal ones whoever came first.
    fn next(&self) -> Option<(EntranceNo, Needs)> {
        if self.reserve_has_room()
            && let Some(no) = self.next_of_reserve()
        {
            return Some((no, Needs::Reserve));
        }
        let with_room = self.tenants.iter().filter(|(_, tenant)| tenant.has_room());
        let candidates = with_room.flat_map(|(no, tenant)| {
            let of_tenant = tenant.queue_of_tenant.first_key_value();
            let of_node = tenant.queue_of_node.first_key_value();
            let of_node = of_node.filter(|_| self.node_has_room(tenant));
            let share = (u64::from(tenant.on_node) + 1) * SCALE / u64::from(tenant.weight);
            let first = match (of_tenant, of_node) {
                // Within a tenant the order of arrival counts.
                (Some((own, _)), Some((node, _))) if own < node => Some((0, own, Needs::Tenant)),
                (Some((own, _)), None) => Some((0, own, Needs::Tenant)),
                (_, Some((node, _))) => Some((share, node, Needs::Node)),
                (None, None) => None,
            };
            first.map(|(share, ticket, needs)| (share, *ticket, *no, needs))
        });
        let first = candidates.min_by_key(|(share, ticket, ..)| (*share, *ticket));
        first.map(|(_, _, no, needs)| (no, needs))
    }

    fn next_of_reserve(&self) -> Option<EntranceNo> {
        let first = self.tenants.iter().filter_map(|(no, tenant)| {
            let first = tenant.queue_of_reserve.first_key_value();
            first.map(|(ticket, _)| (*ticket, *no))
        });
        first.min().map(|(_, no)| no)
    }

    /// How many of a tenant's statements run, and how many wait.
    pub(crate) fn counts(&self, no: EntranceNo) -> (u32, u32) {
        let tenant = &self.tenants[&no];
        (tenant.running, tenant.waiting_all())
    }

    /// Whether no tenant is known.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn is_empty(&self) -> bool {
        self.tenants.is_empty()
    }

    /// How many statements have places of the node at most, and how many have.
    pub(crate) fn of_node(&self) -> (Option<u32>, u32) {
        (self.node_max, self.node_running)
    }
}

/// What shares are counted in: a statement of a tenant of the greatest weight counts for more than 1.
const SCALE: u64 = 1 << 20;
