//! A row's lock: a mode, and the number of the set of its holders.

/// How strongly a row is locked. Each is in the way of more than those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RowLock {
    /// Keeps the row and its key where they are: what a foreign key needs.
    KeyShare,
    /// Keeps the row as it is.
    Share,
    /// What an update takes that leaves the key as it is.
    NoKeyUpdate,
    /// What a delete takes, and an update of the key.
    Update,
}

impl RowLock {
    /// All, the weakest first.
    pub const ALL: [RowLock; 4] = [
        RowLock::KeyShare,
        RowLock::Share,
        RowLock::NoKeyUpdate,
        RowLock::Update,
    ];

    /// Whether two transactions cannot have these locks of one row at once.
    ///
    /// |               | KEY SHARE | SHARE | NO KEY UPDATE | UPDATE |
    /// |---------------|-----------|-------|---------------|--------|
    /// | KEY SHARE     |           |       |               | x      |
    /// | SHARE         |           |       | x             | x      |
    /// | NO KEY UPDATE |           | x     | x             | x      |
    /// | UPDATE        | x         | x     | x             | x      |
    pub const fn conflicts_with(self, other: RowLock) -> bool {
        self as u8 + other as u8 >= RowLock::Update as u8
    }
}

/// The number of a set of holders, which rows' end stamps name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockSetId(pub u64);
