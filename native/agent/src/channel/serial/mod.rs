//! An acknowledged byte stream over a serial line: a UART, a hypervisor's console, a line of User Mode Linux.
//!
//! Such a line loses what its other end is not ready for, may carry the messages of firmware and kernels as well, and
//! does not say when the other end goes.  `docs/protocol.md` lays the packets down.

mod line;
mod link;
mod packet;

pub use line::{SerialInput, SerialOutput, open};
