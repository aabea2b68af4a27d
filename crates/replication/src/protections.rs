//! The rules that can be taken out, for tests that show what each is for.

/// Which rules hold. All of them, but in tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protections {
    /// A process that starts is another member than the one before it. The driver's to keep.
    pub incarnation: bool,
    /// What comes from an earlier epoch is refused.
    pub fencing: bool,
    /// A member takes its leader's place only once that one's read lease is over.
    pub promotion_lease: bool,
    /// A leader answers strong reads only while no member may have taken its place.
    pub read_lease: bool,
    /// Who goes on alone has everything on its disk first, and each commit before it is one.
    pub degraded_sync: bool,
    /// A copy has everything, and is waited for, before it becomes a member.
    pub join_order: bool,
    /// A node gives up its files once the store says that it is no member, and its process has ended. The driver's to
    /// keep.
    pub leave_order: bool,
}

impl Default for Protections {
    fn default() -> Self {
        Self {
            incarnation: true,
            fencing: true,
            promotion_lease: true,
            read_lease: true,
            degraded_sync: true,
            join_order: true,
            leave_order: true,
        }
    }
}
