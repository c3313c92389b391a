//! The program on the receiving interface: hands frames to an `AF_XDP` socket, with the time of their arrival in front of
//! them: all, or a session's, and everything else to the network stack.

use std::os::fd::{AsFd, OwnedFd};

use failure::Failure;

use super::assembler::Register::{R0, R1, R2, R3, R4, R6, R7};
use super::assembler::{Assembler, Condition, Helper, Width};
use super::system::{self, action};
use crate::frame::HEAD;
use crate::kernel::Mapping;

/// Bytes of the time in front of a frame.
pub(crate) const STAMP_BYTES: usize = 8;

/// Offsets in the context of an XDP program.
const DATA: i16 = 0;
const DATA_END: i16 = 4;
const DATA_META: i16 = 8;
const QUEUE: i16 = 16;

/// Offsets in a frame.
const ETHER_TYPE: i16 = 12;
const SESSION: i16 = 42;

const IPV4_IN_MEMORY: i32 = 0x0008;

/// A loaded program, and the memory in which it counts.
pub(crate) struct Redirection {
    pub(crate) program: OwnedFd,
    pub(crate) foreign: Mapping,
}

impl Redirection {
    /// For the frames of a session, or for all.
    pub(crate) fn load(session: Option<u32>, sockets: &OwnedFd) -> Result<Self, Failure> {
        let counter = system::shared_value(8)?;
        let foreign = Mapping::of(counter.as_fd(), 4096, 0)?;
        let mut code = Assembler::default();
        code.set(R6, R1);
        if let Some(session) = session {
            code.load(Width::Four, R2, R6, DATA)
                .load(Width::Four, R3, R6, DATA_END)
                .set(R4, R2)
                .add(R4, HEAD as i32)
                .jump_if(R4, Condition::Above, R3, "foreign")
                .load(Width::Two, R4, R2, ETHER_TYPE)
                .jump_if(R4, Condition::Different, IPV4_IN_MEMORY, "foreign")
                .load(Width::Two, R4, R2, SESSION)
                .jump_if(R4, Condition::Different, (session & 0xffff) as i32, "foreign")
                .load(Width::Two, R4, R2, SESSION + 2)
                .jump_if(R4, Condition::Different, (session >> 16) as i32, "foreign");
        }
        code.call(Helper::MonotonicNs)
            .set(R7, R0)
            .set(R1, R6)
            .set(R2, -(STAMP_BYTES as i32))
            .call(Helper::AdjustMeta)
            .jump_if(R0, Condition::Different, 0, "foreign")
            .load(Width::Four, R2, R6, DATA_META)
            .load(Width::Four, R3, R6, DATA)
            .set(R4, R2)
            .add(R4, STAMP_BYTES as i32)
            .jump_if(R4, Condition::Above, R3, "foreign")
            .store(Width::Eight, R2, 0, R7)
            .load_map(R1, sockets.as_fd())
            .load(Width::Four, R2, R6, QUEUE)
            .set(R3, action::PASS)
            .call(Helper::RedirectMap)
            .leave()
            .label("foreign")
            .load_map_value(R1, counter.as_fd())
            .set(R2, 1)
            .add_atomically(R1, 0, R2)
            .exit(action::PASS);
        Ok(Self { program: system::load(c"vg_redirection", &code.finish())?, foreign })
    }
}

/// A program that drops every frame.
pub(crate) fn load_dropping() -> Result<OwnedFd, Failure> {
    system::load(c"vg_drop", &Assembler::default().exit(action::DROP).finish())
}
