//! What is known of a setting.

/// A setting that Aerostat knows.
pub(crate) struct KnownSetting {
    pub(crate) name: &'static str,
    pub(crate) default: &'static str,
    pub(crate) description: &'static str,
    pub(crate) effect: Effect,
    pub(super) check: Check,
}

/// What comes of setting a setting. docs/sql.md lists every setting by this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The session or its statements do something else.
    Acts,
    /// Only the value that is true here is taken.
    Fixed,
    /// It tells something, and is not set.
    Tells,
    /// Taken because clients set it, and without effect.
    Ignored,
}

pub(super) enum Check {
    /// Any text.
    Text,
    /// A name that others are shown: printable ASCII, of the length of an identifier.
    Label,
    /// One of these, compared without case; the first spelling is kept.
    OneOf(&'static [&'static str]),
    /// A whole number in this range.
    Integer(i64, i64),
    /// Milliseconds, or a number with a unit.
    Duration,
    /// Kilobytes, or a number with a unit.
    Kilobytes,
    /// Pages of 8 kB, or a number with a unit.
    Blocks,
    /// A number that is not negative.
    Real,
    /// An encoding that is converted.
    Encoding,
    /// A name of the time zone database, or an offset.
    TimeZone,
    /// What CREATE TABLE takes as layout, or `pairs`.
    Layout,
    /// Told, never set.
    Constant,
}

pub(super) const ON_OFF: Check = Check::OneOf(&["on", "off"]);
