//! The numbers that advisory locks are on: keys of one bigint or two integers.

/// What an advisory lock is on. The two kinds are apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AdvisoryKey {
    /// One number.
    One(i64),
    /// Two.
    Two(i32, i32),
}
