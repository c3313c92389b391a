//! Sending: what is to be sent, what was, and the loop of the ports that send from user space.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use failure::Failure;
use hptime::{OsClock, Sleeper};

use crate::frame::Template;
use crate::histogram::Histogram;
use crate::schedule::{Order, Pace};

/// Which frames are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timed {
    /// Every one.
    All,
    /// One, the first that is due after so many (RFC 2544 section 26.2: half-way through the stream).
    One(u64),
}

impl Timed {
    /// Whether this frame holds the time of sending.
    #[inline]
    #[must_use]
    pub fn includes(self, frame: u64) -> bool {
        match self {
            Self::All => true,
            Self::One(only) => frame == only,
        }
    }
}

/// What is to be sent.
#[derive(Clone, Debug)]
pub struct Stream {
    /// One for each flow.
    pub templates: Vec<Template>,
    /// Length of each frame, less the check sequence.
    pub length: usize,
    /// Whose turn it is.
    pub order: Order,
    /// When.
    pub pace: Pace,
    /// Which frames are timed.
    pub timed: Timed,
    /// A frame sent so long after it was due is late.
    pub late_ns: u64,
    /// Sending ends so long after it began, however much is left.
    pub give_up_ns: u64,
}

/// What others may see of a transmission while it runs, and how they end it.
#[derive(Debug, Default)]
pub struct Watch {
    sent: AtomicU64,
    stop: AtomicBool,
}

impl Watch {
    /// Frames sent so far.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Asks for an end.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether an end was asked for.
    #[inline]
    #[must_use]
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub(crate) fn set_sent(&self, frames: u64) {
        self.sent.store(frames, Ordering::Relaxed);
    }
}

/// What was sent.
#[derive(Clone, Debug)]
pub struct Transmission {
    /// Frames of each flow that were handed to the interface.
    pub sent: Vec<u64>,
    /// Those among them that the interface refused: a queue behind it was full, and they are its loss.
    pub refused: u64,
    /// Frames sent too long after they were due; none of a burst's.
    pub late: u64,
    /// How long after it was due each frame was sent; empty for a burst.
    pub lateness: Histogram,
    /// Time between the sending of successive frames.
    pub gaps: Histogram,
    /// When the first frame was sent.
    pub start_ns: u64,
    /// When the last frame had been sent.
    pub end_ns: u64,
}

impl Transmission {
    /// Empty, for so many flows.
    #[must_use]
    pub fn new(flows: usize) -> Self {
        Self {
            sent: vec![0; flows],
            refused: 0,
            late: 0,
            lateness: Histogram::new(),
            gaps: Histogram::new(),
            start_ns: 0,
            end_ns: 0,
        }
    }

    /// Frames of all flows.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.sent.iter().sum()
    }

    /// What the frames took: each is followed by its own gap, the last one too, or so many at a rate would seem one more.
    #[must_use]
    pub fn elapsed_ns(&self, pace: &Pace) -> u64 {
        self.end_ns.saturating_sub(self.start_ns) + pace.due_ns(1)
    }
}

/// Sends a stream through an interface.
pub trait Transmitter: Send {
    /// Sends all of it, or what time and [`Watch`] permit.
    fn transmit(&mut self, stream: &Stream, watch: &Arc<Watch>) -> Result<Transmission, Failure>;
}

/// A queue to an interface that user space fills.
pub(crate) trait Queue {
    /// Most frames between two calls of [`Queue::send`].
    const CAPACITY: usize;

    /// Memory for the next frame, of this length, filled with the pattern behind its head; `None` while all is in use.
    fn slot(&mut self, length: usize) -> Option<&mut [u8]>;

    /// Sends the frames written since the last call; how many of them the interface refused.
    fn send(&mut self) -> Result<u64, Failure>;
}

/// A sender that is behind by less writes few frames at a time: those written first would be stamped long before they go.
const FAR_BEHIND_NS: u64 = 50_000;

/// Frames sent at a time by a sender that is on time.
const FEW: usize = 4;

/// Waits longer than this are slept, by hptime, not spun.
const WORTH_A_SLEEP_NS: u64 = 300_000;

/// Sends a stream: each frame when it is due, or as soon afterwards as the queue permits.
pub(crate) fn paced<Q: Queue>(
    queue: &mut Q,
    stream: &Stream,
    watch: &Watch,
    sleeper: &Sleeper<'_>,
) -> Result<Transmission, Failure> {
    let mut transmission = Transmission::new(stream.templates.len());
    let mut sequences = vec![0u32; stream.templates.len()];
    let start_ns = OsClock::Monotonic.now_ns();
    let mut now_ns = start_ns;
    let (mut frame, mut previous_ns) = (0, 0);
    transmission.start_ns = start_ns;
    while frame < stream.pace.frames && now_ns - start_ns <= stream.give_up_ns && !watch.stopped() {
        let due_ns = start_ns + stream.pace.due_ns(frame);
        now_ns = wait_until(due_ns, sleeper);
        let most = if now_ns - due_ns > FAR_BEHIND_NS { Q::CAPACITY } else { FEW };
        let mut written = 0;
        while written < most && frame < stream.pace.frames {
            let due_ns = start_ns + stream.pace.due_ns(frame);
            if written > 0 {
                now_ns = OsClock::Monotonic.now_ns();
                if now_ns < due_ns {
                    break;
                }
            }
            let Some(slot) = queue.slot(stream.length) else { break };
            let flow = usize::from(stream.order.flow(frame));
            let time_ns = if stream.timed.includes(frame) { now_ns } else { 0 };
            stream.templates[flow].write(slot, sequences[flow], time_ns);
            sequences[flow] += 1;
            if frame > 0 {
                transmission.gaps.record(now_ns - previous_ns);
            }
            previous_ns = now_ns;
            if stream.pace.gap > 0 {
                let lateness_ns = now_ns - due_ns;
                transmission.lateness.record(lateness_ns);
                transmission.late += u64::from(lateness_ns > stream.late_ns);
            }
            written += 1;
            frame += 1;
        }
        transmission.refused += queue.send()?;
        watch.set_sent(frame);
        now_ns = OsClock::Monotonic.now_ns();
    }
    transmission.end_ns = now_ns;
    for (sent, sequence) in transmission.sent.iter_mut().zip(sequences) {
        *sent = u64::from(sequence);
    }
    Ok(transmission)
}

/// The time, once it is not before the deadline.
#[inline]
fn wait_until(deadline_ns: u64, sleeper: &Sleeper<'_>) -> u64 {
    loop {
        let now_ns = OsClock::Monotonic.now_ns();
        if now_ns >= deadline_ns {
            return now_ns;
        }
        if deadline_ns - now_ns > WORTH_A_SLEEP_NS {
            // When it fails or ends early, the loop waits on.
            let _ = sleeper.sleep_until((deadline_ns - WORTH_A_SLEEP_NS / 4) as i64);
        }
        std::hint::spin_loop();
    }
}
