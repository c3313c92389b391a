//! The session between two machines that estimate a bandwidth together.
//!
//! One machine listens and stamps what comes; the other sends and estimates.  They converse over TCP, in frames of a
//! length (u32, big endian) and a `MessagePack` map, as controller and agent do:
//!
//! | sender | listener |
//! |---|---|
//! | `hello`: version, the listener's secret if it has one | `welcome`: version, the session's token; or `refused` |
//! | `stream`: what will come | `armed` |
//! | *probes, over UDP, to the same address and port number* | |
//! | `sent`: how many left | `report`: what came and when |
//! | `bye` | *closes, once it is free for the next sender* |
//!
//! Probes go only to the address that has welcomed the sender, and count only if they come from the address that the
//! listener has welcomed and hold the session's token, which is new for each session.

pub mod channel;
pub mod client;
pub mod listener;
pub mod message;
mod session;
pub mod token;

/// Version of the messages and of the probes' header.
pub const PROTOCOL: u32 = 1;

/// The version of this program, for people.
pub const TOOL_VERSION: &str = env!("CARGO_PKG_VERSION");

/// The port, of TCP and of UDP, where nobody chose another.
pub const PORT: u16 = 8763;
