//! The messages of the protocol. Their JSON is documented in `docs/balloon.md`.
//!
//! Unknown fields are ignored, so that a later minor addition does not break a peer. A message of an
//! unknown type is refused.

use serde::{Deserialize, Serialize};

/// The version of the protocol that this crate speaks.
pub const VERSION: u32 = 1;

/// The longest name of a participant, in bytes.
pub const NAME_BYTES_MAX: usize = 64;

/// The most points of a participant's costs.
pub const COSTS_MAX: usize = 64;

/// A message from a participant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FromParticipant {
    /// The first message of a connection.
    Hello(Hello),
    /// Memory is being given back.
    Progress(Report),
    /// The target of an epoch is reached, or as much of it as the participant can reach now.
    Done(Report),
    /// How much more memory would be worth, or less would cost.
    Demand(Demand),
    /// Its limits are others than those of its hello.
    Limits(Limits),
    /// The participant is alive.
    Heartbeat(Report),
    /// The participant leaves. Its memory is free when its process has gone.
    Bye,
}

/// A message from the broker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FromBroker {
    /// The answer to a hello.
    Welcome(Welcome),
    /// How much memory the participant is to have from now on.
    Target(Target),
    /// The broker is alive.
    Heartbeat,
    /// The connection ends.
    Refused(Refused),
}

/// What a participant says of itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// The version of the protocol that the participant speaks.
    pub version: u32,
    /// The secret that the broker asks for where connections come over the network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The participant's name on this broker, of at most [`NAME_BYTES_MAX`] letters, digits, `-`, `_` and
    /// `.`.
    pub name: String,
    /// What kind of program it is, for people.
    #[serde(default)]
    pub kind: String,
    /// Tells this run of the program from another one of the same name.
    pub instance: String,
    /// The process whose memory this is about; without it the process that has the socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The control group whose memory this is about, as a folder of the machine's cgroup hierarchy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// Bytes that it cannot work without.
    pub floor: u64,
    /// The most bytes that it can use.
    pub ceiling: u64,
    /// Bytes that it has in use.
    pub used: u64,
    /// Bytes that it allows itself now.
    pub target: u64,
    /// How fast it gives memory back, in bytes a second, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gives_bytes_per_s: Option<u64>,
    /// Whether it cannot give memory back at all.
    #[serde(default)]
    pub is_fixed: bool,
}

/// Between which amounts a participant can be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes that it cannot work without.
    pub floor: u64,
    /// The most bytes that it can use.
    pub ceiling: u64,
    /// Whether it cannot give memory back at all.
    #[serde(default)]
    pub is_fixed: bool,
}

/// Where a participant stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The epoch that it applied last; 0 before the first.
    pub epoch: u64,
    /// Bytes that it has in use.
    pub used: u64,
    /// Bytes that it allows itself now.
    pub target: u64,
}

/// What a participant would do with another amount of memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Demand {
    /// Bytes that it has in use.
    pub used: u64,
    /// Bytes that it would use if it had them.
    pub wanted: u64,
    /// Whether work waits for memory now.
    #[serde(default)]
    pub is_stalled: bool,
    /// At several amounts of memory, ascending, what its lack costs there; at most [`COSTS_MAX`].
    #[serde(default)]
    pub costs: Vec<Cost>,
}

/// What the lack of memory costs a participant that has so many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Bytes that it has.
    pub bytes: u64,
    /// Milliseconds of work that are lost in each second, over all threads.
    pub ms_per_s: f64,
}

/// What the broker answers to a hello that it accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The version of the protocol that is spoken from now on.
    pub version: u32,
    /// What the participant is to have, as in [`Target`].
    pub epoch: u64,
    /// What the participant is to have, as in [`Target`].
    pub bytes: u64,
    /// How often it is to send a heartbeat.
    pub heartbeat_ms: u64,
    /// After how much silence the broker takes it for lost.
    pub lease_ms: u64,
}

/// How much memory a participant is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Identifies the target; greater than every earlier one of this broker's.
    pub epoch: u64,
    /// Bytes.
    pub bytes: u64,
    /// How long the broker waits for it before it takes what has been given back.
    pub deadline_ms: u64,
}

/// Why the broker ends a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// The reason, for programs.
    pub code: RefusedCode,
    /// The reason, for people.
    pub message: String,
}

/// Why the broker ends a connection, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusedCode {
    /// The broker does not speak the participant's version.
    Version,
    /// The token is missing or wrong, or the peer may not speak for this process.
    Denied,
    /// The message is not one of the protocol's, or contradicts itself.
    Invalid,
    /// Another process that lives has this name.
    NameInUse,
    /// There is not as much memory as the participant's floor: nothing is kept for it. It may come back later.
    NoRoom,
    /// The broker takes no further participant.
    Full,
    /// The broker ends, or cannot go on with the participant for now. What was granted is kept for it.
    Closing,
}

/// A hello, limits or a demand that contradict themselves.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidMessage {
    /// The name is not one.
    #[error(
        "a name has 1 to {NAME_BYTES_MAX} letters, digits, '-', '_' and '.', this one is {0:?}"
    )]
    Name(String),
    /// The floor is above the ceiling, or one of them is nothing.
    #[error("the floor of {floor} bytes and the ceiling of {ceiling} bytes leave no room")]
    Limits {
        /// In bytes.
        floor: u64,
        /// In bytes.
        ceiling: u64,
    },
    /// Costs that do not ascend in bytes, rise with them, or are no numbers.
    #[error("costs must ascend in bytes, not rise with them, and be at most {COSTS_MAX}")]
    Costs,
    /// The instance is empty or too long.
    #[error("an instance has 1 to {NAME_BYTES_MAX} bytes")]
    Instance,
}

/// Whether a participant may have this name: 1 to [`NAME_BYTES_MAX`] letters, digits, `-`, `_` and `.`.
pub fn is_name(name: &str) -> bool {
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.bytes().all(is_of_name)
}

impl Hello {
    /// Whether what it says can be.
    ///
    /// # Errors
    /// The first contradiction.
    pub fn check(&self) -> Result<(), InvalidMessage> {
        if !is_name(&self.name) {
            let shown = self.name.chars().take(NAME_BYTES_MAX).collect();
            return Err(InvalidMessage::Name(shown));
        }
        if self.instance.is_empty() || self.instance.len() > NAME_BYTES_MAX {
            return Err(InvalidMessage::Instance);
        }
        self.limits().check()
    }

    /// Its limits.
    pub fn limits(&self) -> Limits {
        Limits {
            floor: self.floor,
            ceiling: self.ceiling,
            is_fixed: self.is_fixed,
        }
    }
}

impl Limits {
    /// Whether they can be.
    ///
    /// # Errors
    /// They leave no room.
    pub fn check(&self) -> Result<(), InvalidMessage> {
        let (floor, ceiling) = (self.floor, self.ceiling);
        match ceiling == 0 || floor > ceiling {
            true => Err(InvalidMessage::Limits { floor, ceiling }),
            false => Ok(()),
        }
    }
}

impl Demand {
    /// Whether what it says can be.
    ///
    /// # Errors
    /// Costs out of order.
    pub fn check(&self) -> Result<(), InvalidMessage> {
        let are_numbers = self
            .costs
            .iter()
            .all(|cost| cost.ms_per_s.is_finite() && cost.ms_per_s >= 0.0);
        let are_in_order = self
            .costs
            .windows(2)
            .all(|two| two[0].bytes < two[1].bytes && two[0].ms_per_s >= two[1].ms_per_s);
        match are_numbers && are_in_order && self.costs.len() <= COSTS_MAX {
            true => Ok(()),
            false => Err(InvalidMessage::Costs),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        serde_json::from_str(
            r#"{"version": 1, "name": "shop", "instance": "7", "floor": 1, "ceiling": 9, "used": 2,
                "target": 3, "colour": "ignored"}"#,
        )
        .unwrap()
    }

    #[test]
    fn what_is_optional_may_be_left_out() {
        let hello = hello();
        assert_eq!(hello.check(), Ok(()));
        assert_eq!((hello.pid, hello.is_fixed), (None, false));
        let bye: FromParticipant = serde_json::from_str(r#"{"type": "bye"}"#).unwrap();
        assert_eq!(bye, FromParticipant::Bye);
        assert!(serde_json::from_str::<FromParticipant>(r#"{"type": "ciao"}"#).is_err());
        assert!(
            serde_json::from_str::<FromParticipant>(r#"{"type": "done", "epoch": -1}"#).is_err()
        );
    }

    #[test]
    fn contradictions_are_refused() {
        let with = |change: fn(&mut Hello)| {
            let mut hello = hello();
            change(&mut hello);
            hello.check()
        };
        let limits = with(|hello| hello.floor = 10);
        assert!(matches!(limits, Err(InvalidMessage::Limits { .. })));
        let nothing = with(|hello| (hello.floor, hello.ceiling) = (0, 0));
        assert!(matches!(nothing, Err(InvalidMessage::Limits { .. })));
        let name = with(|hello| hello.name = "a b".to_owned());
        assert!(matches!(name, Err(InvalidMessage::Name(_))));
        let long = with(|hello| hello.name = "a".repeat(65));
        assert!(matches!(long, Err(InvalidMessage::Name(_))));
        let instance = with(|hello| hello.instance.clear());
        assert_eq!(instance, Err(InvalidMessage::Instance));
    }

    #[test]
    fn costs_fall_as_memory_rises() {
        let demand = |costs: &[(u64, f64)]| Demand {
            used: 0,
            wanted: 0,
            is_stalled: false,
            costs: costs
                .iter()
                .map(|&(bytes, ms_per_s)| Cost { bytes, ms_per_s })
                .collect(),
        };
        assert_eq!(demand(&[]).check(), Ok(()));
        assert_eq!(demand(&[(1, 5.0), (2, 5.0), (9, 0.0)]).check(), Ok(()));
        for wrong in [
            &[(1, 5.0), (1, 4.0)][..],
            &[(1, 5.0), (2, 6.0)],
            &[(1, f64::NAN)],
            &[(1, -1.0)],
            &[(1, f64::INFINITY)],
        ] {
            assert_eq!(
                demand(wrong).check(),
                Err(InvalidMessage::Costs),
                "{wrong:?}"
            );
        }
        let many: Vec<(u64, f64)> = (0..65).map(|at| (at, 0.0)).collect();
        assert_eq!(demand(&many).check(), Err(InvalidMessage::Costs));
    }
}
