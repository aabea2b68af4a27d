//! Snapshots, and which row versions they see.

use std::{fmt, sync::Arc};

use aerostat_types::{CommitTs, TxnId};

use crate::{
    own::OwnIds,
    stamp::Stamp,
    txns::{TxnManager, TxnState},
};

/// A point in the commit order, registered so that no version it sees is
/// collected until the last clone is dropped. A block's has, besides, what the
/// block's statements had done by then.
#[derive(Clone)]
pub struct Snapshot {
    point: Arc<Registration>,
    /// `None` for none.
    own: Option<Arc<OwnIds>>,
}

struct Registration {
    txns: Arc<TxnManager>,
    at: CommitTs,
    /// Whether what it sees is kept.
    is_registered: bool,
}

/// What a snapshot says of a row version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// The snapshot contains the version.
    Visible,
    /// It does not.
    Hidden,
    /// A stamp's transaction has just ended and its stamps are final by now: read
    /// the version's stamps again and ask again.
    Reread,
}

impl TxnManager {
    /// A snapshot of everything committed so far.
    pub fn snapshot(self: &Arc<Self>) -> Snapshot {
        let at = self.register_snapshot();
        Snapshot::registered(Arc::clone(self), at)
    }
}

impl Snapshot {
    fn registered(txns: Arc<TxnManager>, at: CommitTs) -> Self {
        Self {
            point: Arc::new(Registration {
                txns,
                at,
                is_registered: true,
            }),
            own: None,
        }
    }

    /// The newest point, of who reads nothing: no version is kept for it.
    pub(crate) fn unregistered(txns: &Arc<TxnManager>) -> Self {
        Self {
            point: Arc::new(Registration {
                at: txns.last_commit(),
                txns: Arc::clone(txns),
                is_registered: false,
            }),
            own: None,
        }
    }

    /// The same point, with these statements of a block.
    pub(crate) fn with_own(self, own: Arc<OwnIds>) -> Self {
        Self {
            point: self.point,
            own: Some(own),
        }
    }

    /// The newest point, with all that this one has of a block, and with `id`.
    pub(crate) fn renewed(&self, id: TxnId) -> Self {
        let mut own = self.own.as_deref().cloned().unwrap_or_default();
        own.push(id);
        self.point.txns.snapshot().with_own(Arc::new(own))
    }

    /// Whether this is a statement whose work it contains before that has committed.
    pub(crate) fn owns(&self, id: TxnId) -> bool {
        self.own.as_ref().is_some_and(|own| own.contains(id))
    }

    /// The last commit the snapshot sees.
    pub fn at(&self) -> CommitTs {
        self.point.at
    }

    /// Whether the version with these stamps is in the snapshot.
    pub fn sees(&self, begin: u64, end: u64) -> Visibility {
        match self.includes(begin) {
            Visibility::Visible => match self.includes(end) {
                Visibility::Visible => Visibility::Hidden,
                Visibility::Hidden => Visibility::Visible,
                Visibility::Reread => Visibility::Reread,
            },
            other => other,
        }
    }

    /// Whether what was stamped so had happened by the snapshot.
    fn includes(&self, raw: u64) -> Visibility {
        let ts = match Stamp::of(raw) {
            Stamp::At(ts) => ts,
            Stamp::Locked(_) => return Visibility::Hidden,
            Stamp::By(id) if self.owns(id) => return Visibility::Visible,
            Stamp::By(id) => match self.point.txns.state(id) {
                Some(TxnState::Committed(ts)) => ts,
                Some(_) => return Visibility::Hidden,
                None => return Visibility::Reread,
            },
        };
        if ts <= self.point.at {
            Visibility::Visible
        } else {
            Visibility::Hidden
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if self.is_registered {
            self.txns.unregister_snapshot(self.at);
        }
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Snapshot").field(&self.point.at).finish()
    }
}
