//! The loop that sends a stream: each burst when it is due.

use std::sync::atomic::{AtomicBool, Ordering};

use failure::Failure;
use hptime::OsClock;

use crate::pacing::timing::{self, ClockChoice, Waiter};
use crate::transport::{Sent, Spacing, Stream};

/// Time between the decision to begin and the first packet, so that this one is on time, too.
const LEAD_NS: i64 = 20_000;

/// A sender that is behind by more than the stream's own length and this gives up.
const PATIENCE_NS: i64 = 1_000_000_000;

/// A change between the time of day and the monotonic clock that is a step.
const STEP_NS: i64 = 1_000_000;

/// Packets that leave together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    /// Number of the first.
    pub first: u32,
    /// How many.
    pub packets: u32,
    /// When they are due.
    pub planned_ns: i64,
    /// When the wait ended: now.
    pub actual_ns: i64,
}

impl Burst {
    /// What the sender saw of one of its packets.
    #[must_use]
    pub fn sent(&self, left: bool) -> Sent {
        Sent { planned_ns: self.planned_ns, actual_ns: self.actual_ns, left }
    }
}

/// A way to hand packets to the operating system.
pub trait Handover {
    /// Hands over a burst at once, and adds one entry for each of its packets.
    ///
    /// # Errors
    /// What stands in the way of all packets; one that is refused for a full queue is an entry, not an error.
    fn hand_over(&mut self, burst: &Burst, sent: &mut Vec<Sent>) -> Result<(), Failure>;
}

/// What sending a stream was like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmission {
    /// What was asked for.
    pub stream: Stream,
    /// By number; shorter than asked for if sending was given up.
    pub sent: Vec<Sent>,
    /// Time spent in handing packets over.
    pub busy_ns: u64,
    /// From the first handover to the end of the last.
    pub elapsed_ns: u64,
    /// CPU time of the sending thread.
    pub cpu_ns: u64,
}

/// Sends a stream.
///
/// # Errors
/// Those of the handover; [`Failure::ClockStep`] if the sender's clock was set meanwhile; [`Failure::Cancelled`].
pub fn transmit(
    stream: &Stream,
    waiter: &Waiter,
    handover: &mut impl Handover,
    cancel: &AtomicBool,
) -> Result<Transmission, Failure> {
    let mut sent = Vec::with_capacity(stream.packets as usize);
    let cpu_before_ns = OsClock::ThreadCpu.now_ns();
    let lead_before_ns = realtime_lead_ns(waiter.clock);
    let mut ended_ns = waiter.now_ns();
    let start_ns = ended_ns + LEAD_NS;
    let give_up_ns = start_ns + 2 * stream.duration_ns() as i64 + PATIENCE_NS;
    let burst_ps = i128::from(stream.burst) * i128::from(stream.gap_ps);
    let (mut first, mut busy_ns) = (0, 0);
    let (mut begun_ns, mut previous_ns) = (start_ns, start_ns);
    while first < stream.packets && ended_ns <= give_up_ns {
        if cancel.load(Ordering::Relaxed) {
            return Err(Failure::Cancelled);
        }
        let planned_ns = match stream.spacing {
            Spacing::AfterPrevious if first > 0 => previous_ns + (burst_ps / 1000) as i64,
            _ => start_ns + stream.due_ns(first) as i64,
        };
        let actual_ns = waiter.wait_until(planned_ns, ended_ns)?;
        let burst = Burst { first, packets: stream.burst.min(stream.packets - first), planned_ns, actual_ns };
        handover.hand_over(&burst, &mut sent)?;
        ended_ns = waiter.now_ns();
        timing::forward(actual_ns, ended_ns)?;
        if first == 0 {
            begun_ns = actual_ns;
        }
        busy_ns += ended_ns.saturating_sub(actual_ns).max(0) as u64;
        previous_ns = actual_ns;
        first += burst.packets;
    }
    let step_ns = realtime_lead_ns(waiter.clock) - lead_before_ns;
    if step_ns.abs() > STEP_NS {
        return Err(Failure::ClockStep { clock: "the sender's clock", step_ns });
    }
    let (elapsed_ns, cpu_ns) = ((ended_ns - begun_ns).max(0) as u64, OsClock::ThreadCpu.now_ns() - cpu_before_ns);
    Ok(Transmission { stream: *stream, sent, busy_ns, elapsed_ns, cpu_ns })
}

/// What a clock that shows the time of day is ahead of the one that cannot be set; 0 of one that cannot be set itself.
///
/// An interruption between two readings is no step: they are repeated until there was none.
fn realtime_lead_ns(clock: ClockChoice) -> i64 {
    if !clock.is_realtime() {
        return 0;
    }
    loop {
        let before_ns = OsClock::Monotonic.now_ns() as i64;
        let shown_ns = clock.now_ns();
        if OsClock::Monotonic.now_ns() as i64 - before_ns < STEP_NS / 4 {
            return shown_ns - before_ns;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pacing::timing::SleepChoice;
    use crate::pacing::timing::tests::set_after;

    static GO_ON: AtomicBool = AtomicBool::new(false);

    /// Takes everything, and one burst too late.
    struct Queue {
        stall_at: u32,
        stall_ns: i64,
        bursts: Vec<Burst>,
    }

    impl Handover for Queue {
        fn hand_over(&mut self, burst: &Burst, sent: &mut Vec<Sent>) -> Result<(), Failure> {
            self.bursts.push(*burst);
            sent.extend((0..burst.packets).map(|_| burst.sent(true)));
            if burst.first == self.stall_at {
                let end_ns = ClockChoice::System.now_ns() + self.stall_ns;
                while ClockChoice::System.now_ns() < end_ns {}
            }
            Ok(())
        }
    }

    fn queue(stall_at: u32, stall_ns: i64) -> Queue {
        Queue { stall_at, stall_ns, bursts: Vec::new() }
    }

    fn waiter() -> Waiter {
        Waiter::new(ClockChoice::System, SleepChoice::Hptime, None)
    }

    #[test]
    fn bursts_are_planned_by_the_stream_and_none_leaves_early() {
        let stream = Stream::at_rate(100, 1500, 300e6).in_bursts_of(8);
        let mut queue = queue(u32::MAX, 0);
        let transmission = transmit(&stream, &waiter(), &mut queue, &GO_ON).unwrap();
        assert_eq!(transmission.sent.len(), 100);
        assert_eq!((queue.bursts.len(), queue.bursts[12].packets), (13, 4));
        let start_ns = queue.bursts[0].planned_ns;
        for burst in &queue.bursts {
            assert_eq!(burst.planned_ns - start_ns, stream.due_ns(burst.first) as i64);
            assert!(burst.actual_ns >= burst.planned_ns);
        }
        assert!(transmission.busy_ns <= transmission.elapsed_ns);
    }

    #[test]
    fn with_absolute_deadlines_a_late_packet_delays_no_other_and_with_yaz_all() {
        let stall_ns = 20_000_000;
        let mut stream = Stream::at_rate(60, 1500, 12e6);
        let plan = |stream: &Stream| {
            let mut queue = queue(10, stall_ns);
            transmit(stream, &waiter(), &mut queue, &GO_ON).unwrap();
            queue.bursts[59].planned_ns - queue.bursts[0].planned_ns
        };
        assert_eq!(plan(&stream), 59_000_000);
        stream.spacing = Spacing::AfterPrevious;
        assert!(plan(&stream) >= 59_000_000 + stall_ns - 1_000_000);
    }

    #[test]
    fn a_time_of_day_that_is_set_meanwhile_makes_a_stream_worthless() {
        let waiter = Waiter::new(ClockChoice::Gettimeofday, SleepChoice::System, Some(0));
        let stream = Stream::at_rate(20, 1500, 120e6);
        for step_ns in [3_600_000_000_000, -3_600_000_000_000, 5_000_000] {
            // Some three readings a packet: each of the places where it may happen.
            for readings in 1..40 {
                set_after(readings, step_ns);
                let stepped = transmit(&stream, &waiter, &mut queue(u32::MAX, 0), &GO_ON);
                assert!(matches!(stepped, Err(Failure::ClockStep { .. })), "{step_ns} after {readings}");
            }
        }
        set_after(0, 0);
        transmit(&stream, &waiter, &mut queue(u32::MAX, 0), &GO_ON).unwrap();
    }

    #[test]
    fn a_sender_that_falls_far_behind_gives_up_and_one_that_is_told_to_end_ends() {
        let stream = Stream::at_rate(1000, 1500, 12e9);
        let mut queue = queue(500, PATIENCE_NS + 50_000_000);
        let transmission = transmit(&stream, &waiter(), &mut queue, &GO_ON).unwrap();
        assert_eq!(transmission.sent.len(), 501);
        let told = transmit(&stream, &waiter(), &mut queue, &AtomicBool::new(true));
        assert!(matches!(told, Err(Failure::Cancelled)));
    }
}
