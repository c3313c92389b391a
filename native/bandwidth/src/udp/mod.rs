//! The transport over UDP sockets.
//!
//! [`transport`] is the sender's end.  It hands probes over by one of the ways of [`handover`], when
//! [`crate::pacing`] says so.  [`receiving`] is the listener's end, and [`recorder`] its account of what came.

pub mod handover;
pub mod packet;
pub mod receiving;
pub mod recorder;
pub mod socket;
pub mod transport;
