//! What the two ends say.

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// From the sender.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Request {
    /// The first message.
    Hello {
        /// Version of the protocol.
        protocol: u32,
        /// Version of the program.
        tool_version: String,
        /// The listener's secret, where its user gave it one.
        secret: Option<ByteBuf>,
    },
    /// Probes will come.
    Stream {
        /// Number of the stream, greater than that of the one before.
        stream: u32,
        /// How many there will be at most.
        packets: u32,
        /// Length of what each carries.
        payload_bytes: u32,
        /// They leave in bursts: what comes in one piece may be handed over in one piece.
        in_bursts: bool,
        /// They are to be counted only, not told one by one.
        count_only: bool,
    },
    /// All probes have been sent.
    Sent {
        /// How many left.
        packets: u32,
        /// How long to wait for stragglers after the last that came, in milliseconds.
        quiet_ms: u32,
    },
    /// No more will come.
    Bye,
}

/// From the listener.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Answer {
    /// The session is open.
    Welcome {
        /// Version of the protocol.
        protocol: u32,
        /// Version of the program.
        tool_version: String,
        /// What every probe of this session must hold.
        token: ByteBuf,
        /// Why the kernel does not stamp probes; nil where it does.
        no_kernel_stamps: Option<String>,
        /// Memory for probes that have not been read yet, as the kernel counts it.
        buffer_bytes: u64,
    },
    /// There is no session.
    Refused {
        /// Version of the protocol.
        protocol: u32,
        /// Version of the program.
        tool_version: String,
        /// Why.
        reason: Refusal,
        /// The same for people.
        message: String,
    },
    /// Probes may come.
    Armed {
        /// Number of the stream.
        stream: u32,
    },
    /// What came.
    Report(Report),
    /// The request cannot be served; the session ends.
    Error {
        /// Why, for people.
        message: String,
    },
}

/// Why there is no session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// The sender speaks another version.
    Version,
    /// The listener has a secret, and this is not it.
    Secret,
    /// Another session is open.
    Busy,
    /// The listener's machine cannot do it.
    Machine,
}

/// What came of one stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Number of the stream.
    pub stream: u32,
    /// Different probes, or all of them where they were only counted.
    pub received: u32,
    /// Number of each in the order in which they came: u32, little endian; empty where they were only counted.
    pub sequences: ByteBuf,
    /// When each came: i64, little endian, nanoseconds of the listener's `CLOCK_MONOTONIC`.
    pub times: ByteBuf,
    /// Of each, the sum of [`COALESCED`] and [`BY_PROGRAM`] as far as they hold.
    pub flags: ByteBuf,
    /// The least time that the stamps tell apart.
    pub resolution_ns: u32,
    /// Probes that came more than once.
    pub duplicates: u32,
    /// Packets that were ignored.
    pub ignored: Ignored,
    /// Packets that the listener's kernel dropped because its program did not read them in time.
    pub overflowed: u32,
    /// How far the listener's real-time clock, which the kernel stamps with, was stepped meanwhile.
    pub stepped_ns: i64,
}

/// Flag of a probe: it came in one piece with the one before, or has its stamp.
pub const COALESCED: u8 = 1;

/// Flag of a probe: not the kernel stamped it, but the program that read it.
pub const BY_PROGRAM: u8 = 2;

/// Packets that came to the listener's port and were ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ignored {
    /// From an address that has no session.
    pub stranger: u64,
    /// With a wrong token, or too short to hold one.
    pub wrong_token: u64,
    /// Of a stream that is over.
    pub stale: u64,
    /// With the token, and a number or a length that was not announced.
    pub malformed: u64,
}

impl Ignored {
    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.stranger + self.wrong_token + self.stale + self.malformed
    }

    /// What was added since an earlier count.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            stranger: self.stranger - earlier.stranger,
            wrong_token: self.wrong_token - earlier.wrong_token,
            stale: self.stale - earlier.stale,
            malformed: self.malformed - earlier.malformed,
        }
    }
}
