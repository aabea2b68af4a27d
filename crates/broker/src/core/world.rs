//! What the broker acts on: the kernel, the disk and the sockets, or a test's model of them.

use std::io;

use aerostat_balloon::message::FromBroker;

use crate::ledger::{Ledger, Owner, Process};

/// A connection's number; none is used twice.
pub type SessionId = u64;

/// What the kernel says that an owner has in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Account {
    /// The owner has gone, and its memory with it.
    Gone,
    /// It has so many bytes that cannot be had without it.
    Bytes(u64),
    /// The owner is not of this machine, or the kernel does not say.
    Unknown,
}

/// Something that happened, for the audit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditEntry<'a> {
    /// What happened, in a word or two.
    pub what: &'static str,
    /// To whom; empty where it is the broker's own matter.
    pub name: &'a str,
    /// How many bytes it is about.
    pub bytes: u64,
    /// Why.
    pub why: &'a str,
}

/// What a broker acts on.
pub trait World {
    /// Makes a ledger durable as a whole, or leaves the one before.
    ///
    /// # Errors
    /// The disk refuses.
    fn persist(&mut self, ledger: &Ledger) -> io::Result<()>;

    /// Sends a message. A connection that takes none is closed.
    fn send(&mut self, session: SessionId, message: FromBroker);

    /// Closes a connection after what was sent.
    fn close(&mut self, session: SessionId);

    /// The process of a number that runs now.
    fn process(&mut self, pid: u32) -> Option<Process>;

    /// What an owner has in memory. Called for everybody on each tick.
    fn account(&mut self, owner: &Owner) -> Account;

    /// Sets the limit of an owner's control group. An owner without one has none.
    ///
    /// # Errors
    /// The kernel refuses, such as a limit below what is in use.
    fn limit(&mut self, owner: &Owner, bytes: u64) -> io::Result<()>;

    /// The share of time in which some task of the machine waited for memory, in percent over the last
    /// ten seconds; 0 where the kernel does not say.
    fn pressure(&mut self) -> f64;

    /// Writes down what happened.
    fn audit(&mut self, entry: AuditEntry<'_>);
}
