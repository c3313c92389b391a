//! One direction of an emulated link: frames are taken from an interface and leave through another when they are due.

use std::collections::VecDeque;

use failure::Failure;
use hptime::{OsClock, Sleeper};
use serde::Serialize;

use crate::emulator::line::{Fate, Line, Shape};
use crate::frame::LONGEST;
use crate::histogram::Histogram;
use crate::port::packet_socket::{PacketReceiver, PacketTransmitter};
use crate::port::xdp_socket::XdpReceiver;
use crate::port::{Came, Kind, Receiver, ReceiverLoss};
use crate::transmission::Queue;

/// Frames that may wait to be taken: those of 80 ms at 100 000 a second.
const WAITING: usize = 8192;

/// Frames taken before those that are due are looked at again.
const TAKEN_AT_ONCE: usize = 64;

/// What became of the frames of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Passed {
    /// Frames that left.
    pub forwarded: u64,
    /// Bytes of these, less the check sequences.
    pub bytes: u64,
    /// Frames that found the queue full.
    pub dropped_queue: u64,
    /// Frames lost as was asked for.
    pub dropped_loss: u64,
    /// Frames that were not complete, because their sender left checksums, segments or tags to a network card.
    pub dropped_offloaded: u64,
    /// Frames that came faster than they were taken.
    pub missed: u64,
    /// Of the frames that left, those that the interface refused.
    pub refused: u64,
    /// Frames that were under way at the end.
    pub abandoned: u64,
}

enum Intake {
    Xdp(Box<XdpReceiver>),
    Packet(PacketReceiver),
}

/// One direction.
pub(super) struct Way {
    intake: Intake,
    outlet: PacketTransmitter,
    line: Line,
    held: VecDeque<(u64, Vec<u8>)>,
    /// Memory of frames that have left.
    spare: Vec<Vec<u8>>,
    passed: Passed,
}

impl Way {
    /// From one interface, where frames are taken by this port, to another.
    pub(super) fn open(
        port: Option<Kind>,
        from: u32,
        to: u32,
        shape: Shape,
        seed: u64,
        sleeper: &'static Sleeper<'static>,
    ) -> Result<Self, Failure> {
        let xdp = || XdpReceiver::open(from, None, WAITING).map(|receiver| Intake::Xdp(Box::new(receiver)));
        let packet = || PacketReceiver::open(from, LONGEST).map(Intake::Packet);
        let intake = match port {
            None => xdp().or_else(|_| packet())?,
            Some(Kind::AfXdp) => xdp()?,
            Some(Kind::AfPacket) => packet()?,
            Some(kind) => {
                return Err(Failure::Unsupported(format!("{} takes no frames of others", kind.name())));
            }
        };
        let outlet = PacketTransmitter::open(to, LONGEST, sleeper)?;
        let line = Line::new(shape, OsClock::Monotonic.now_ns(), seed);
        Ok(Self { intake, outlet, line, held: VecDeque::new(), spare: Vec::new(), passed: Passed::default() })
    }

    /// How frames are taken.
    pub(super) fn port(&self) -> Kind {
        match self.intake {
            Intake::Xdp(_) => Kind::AfXdp,
            Intake::Packet(_) => Kind::AfPacket,
        }
    }

    /// Takes some of what has come; whether there may be more.
    pub(super) fn take(&mut self) -> bool {
        let Self { intake, line, held, spare, passed, .. } = self;
        let admit = |came: Came<'_>| {
            if !came.complete || came.bytes.len() > LONGEST {
                passed.dropped_offloaded += 1;
                return;
            }
            match line.admit(came.at_ns, came.bytes.len()) {
                Fate::Lost => passed.dropped_loss += 1,
                Fate::Overflows => passed.dropped_queue += 1,
                Fate::Leaves(leaves_ns) => {
                    let mut frame = spare.pop().unwrap_or_default();
                    frame.clear();
                    frame.extend_from_slice(came.bytes);
                    held.push_back((leaves_ns, frame));
                }
            }
        };
        let taken = match intake {
            Intake::Xdp(receiver) => receiver.take(TAKEN_AT_ONCE, admit),
            Intake::Packet(receiver) => receiver.take(TAKEN_AT_ONCE, admit),
        };
        taken == TAKEN_AT_ONCE
    }

    /// Lets go what is due; when the next frame is.
    pub(super) fn let_go(&mut self, lateness: &mut Histogram) -> Result<Option<u64>, Failure> {
        loop {
            let now_ns = OsClock::Monotonic.now_ns();
            let mut written = 0;
            while let Some((leaves_ns, frame)) = self.held.front() {
                if *leaves_ns > now_ns {
                    break;
                }
                let Some(slot) = self.outlet.slot(frame.len()) else { break };
                slot.copy_from_slice(frame);
                lateness.record(now_ns - leaves_ns);
                self.passed.bytes += frame.len() as u64;
                written += 1;
                self.spare.extend(self.held.pop_front().map(|(_, frame)| frame));
            }
            if written == 0 {
                return Ok(self.held.front().map(|&(leaves_ns, _)| leaves_ns));
            }
            self.passed.forwarded += written;
            self.passed.refused += self.outlet.send()?;
        }
    }

    /// What became of the frames.
    pub(super) fn passed(mut self) -> Result<Passed, Failure> {
        let ReceiverLoss { ring_full, dropped } = match &mut self.intake {
            Intake::Xdp(receiver) => receiver.loss()?,
            Intake::Packet(receiver) => receiver.loss()?,
        };
        Ok(Passed { missed: ring_full + dropped, abandoned: self.held.len() as u64, ..self.passed })
    }
}
