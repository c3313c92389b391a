//! The conversation with the controller, as `docs/protocol.md` lays it down.

pub mod bounded;
pub mod frame;
pub mod message;
pub mod serial;
pub mod session;
pub mod stream;
pub mod writer;
