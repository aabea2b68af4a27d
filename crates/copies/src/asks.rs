//! What a copy asks the store of configurations, which may not answer for long: what it has, or to have another.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aerostat_replication::Config;
use aerostat_storage::MetaStore;

use crate::{
    configurations::{load, swap},
    inbox::Inbox,
    pool::{Entry, Next, Pool, Work},
    told::Told,
};

/// What a copy asks, one thing at a time.
pub(crate) struct Asks(Arc<Entry>, Arc<Asked>);

struct Asked {
    configurations: Arc<dyn MetaStore>,
    /// What nobody has asked yet. What is asked while nobody answers takes its place: the newest swap is enough, and a
    /// swap is answered with what a reading would be.
    next: Mutex<Option<Option<Config>>>,
    inbox: Inbox,
}

impl Asks {
    pub(crate) fn new(pool: &Pool, configurations: Arc<dyn MetaStore>, inbox: Inbox) -> Asks {
        let asked = Arc::new(Asked {
            configurations,
            next: Mutex::default(),
            inbox,
        });
        Asks(pool.entry(Arc::clone(&asked) as _), asked)
    }

    /// Asks, soon: to have another configuration before others read theirs. What is answered is told to the inbox.
    pub(crate) fn ask(&self, config: Option<Config>) {
        let is_swap = config.is_some();
        {
            let mut next = self.1.lock();
            let before = next.take().flatten();
            *next = Some(config.or(before));
        }
        self.0.has_word(is_swap);
    }
}

impl Asked {
    fn lock(&self) -> MutexGuard<'_, Option<Option<Config>>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Work for Asked {
    fn run(&self) -> Next {
        let Some(asked) = self.lock().take() else {
            return Next::Rest;
        };
        let told = match asked {
            None => load(&*self.configurations).map(Told::Config),
            Some(config) => swap(&*self.configurations, &config).map(Told::Swapped),
        };
        if let Some(told) = told {
            self.inbox.tell(told);
        }
        Next::Rest
    }
}
