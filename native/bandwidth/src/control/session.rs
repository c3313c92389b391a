//! The listener's end of a session: probes are received while the sender is listened to, on one thread.

use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use failure::Failure;

use crate::control::channel::{self, Channel};
use crate::control::listener::{Closed, PATIENCE};
use crate::control::message::{Answer, Request};
use crate::udp::receiving::Receiver;
use crate::udp::recorder::Expected;

/// A sender that says nothing for so long is gone.
const SILENCE: Duration = Duration::from_secs(120);

/// How often everything is looked at while nothing comes.
const LOOK: Duration = Duration::from_millis(50);

/// How long probes lie that the kernel has stamped.  Nobody is woken for each of them, which on one machine would be the
/// sender's work.
const REST: Duration = Duration::from_micros(200);

/// Longest wait for stragglers that a sender may ask for.
const LONGEST_QUIET: Duration = Duration::from_secs(10);

/// Why a session ended.
enum End {
    Channel(Failure),
    Machine(Failure),
    Sender(String),
    Bye,
}

/// A stream of which all has been sent.
struct Draining {
    packets: u32,
    quiet: Duration,
    since: Instant,
}

/// Serves a sender until it or somebody here ends the session.
pub(super) fn run(channel: &mut Channel, receiver: &mut Receiver, peer: SocketAddr, stop: &AtomicBool) -> Closed {
    let mut closed =
        Closed { peer, reason: String::new(), streams: 0, packets: 0, ignored: receiver.ignored(), overflowed: 0 };
    let Err(end) = serve(channel, receiver, stop, &mut closed);
    closed.ignored = receiver.ignored();
    closed.reason = match end {
        End::Bye => "the sender has finished".into(),
        End::Channel(Failure::PeerLost(_)) => "the sender vanished".into(),
        End::Channel(Failure::Cancelled) => "the listener was told to end".into(),
        End::Channel(failure) => channel::reason(failure),
        End::Machine(failure) => told(channel, failure.to_string(), stop),
        End::Sender(message) => told(channel, message, stop),
    };
    closed
}

/// Tells the sender why the session ends.
fn told(channel: &mut Channel, message: String, stop: &AtomicBool) -> String {
    // Whoever is gone already need not hear it.
    let _ = channel.send(&Answer::Error { message: message.clone() }, PATIENCE, stop);
    message
}

fn serve(
    channel: &mut Channel,
    receiver: &mut Receiver,
    stop: &AtomicBool,
    closed: &mut Closed,
) -> Result<std::convert::Infallible, End> {
    let mut draining: Option<Draining> = None;
    let mut heard = Instant::now();
    let mut before = None;
    loop {
        if stop.load(Ordering::Relaxed) {
            return Err(End::Channel(Failure::Cancelled));
        }
        let resting = receiver.expects() && receiver.may_rest();
        let wait = match (resting, &draining) {
            (true, _) => REST,
            (false, Some(_)) => Duration::from_millis(1),
            (false, None) => LOOK,
        };
        // Descriptors below zero are not waited for.
        let probes = if resting { -1 } else { receiver.as_raw_fd() };
        let mut wanted = [(probes, libc::POLLIN), (channel.stream().as_raw_fd(), libc::POLLIN)];
        let [probes, words] =
            channel::ready(&mut wanted, wait).map_err(|error| End::Channel(channel::failed(error)))?;
        if (probes || resting) && receiver.drain().map_err(End::Machine)? > 0 {
            if let Some(draining) = &mut draining {
                draining.since = Instant::now();
            }
        }
        if words {
            channel.fill().map_err(End::Channel)?;
            heard = Instant::now();
        }
        while let Some(request) = channel.heard().map_err(End::Channel)? {
            match request {
                Request::Stream { stream, packets, payload_bytes, in_bursts, count_only } if draining.is_none() => {
                    if before.is_some_and(|before| stream <= before) {
                        return Err(End::Sender(format!("stream {stream} is not after the one before")));
                    }
                    before = Some(stream);
                    let expected = Expected { stream, packets, payload_bytes, count_only };
                    receiver.expect(&expected, in_bursts).map_err(End::Machine)?;
                    channel.send(&Answer::Armed { stream }, PATIENCE, stop).map_err(End::Channel)?;
                }
                Request::Sent { packets, quiet_ms } if draining.is_none() && receiver.expects() => {
                    let quiet = Duration::from_millis(u64::from(quiet_ms)).min(LONGEST_QUIET);
                    draining = Some(Draining { packets, quiet, since: Instant::now() });
                }
                Request::Bye => return Err(End::Bye),
                _ => return Err(End::Sender("the sender spoke out of turn".into())),
            }
        }
        if let Some(Draining { packets, quiet, since }) = draining {
            if receiver.received() >= packets || since.elapsed() >= quiet {
                draining = None;
                let report = receiver.report().map_err(End::Machine)?;
                closed.streams += 1;
                closed.packets += u64::from(report.received);
                closed.overflowed += u64::from(report.overflowed);
                channel.send(&Answer::Report(report), PATIENCE, stop).map_err(End::Channel)?;
            }
        } else if heard.elapsed() > SILENCE {
            return Err(End::Channel(channel::silent(SILENCE)));
        }
    }
}
