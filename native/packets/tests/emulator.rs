//! An emulated link delays, limits and loses real frames as it was asked for, and accounts for each.

mod laboratory;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use laboratory::{SLEEPER, enter_new_namespace, outcome, pair, received, run, settings};
use packets::emulator::line::Shape;
use packets::emulator::{Emulator, Settings, Work};
use packets::interface::Counters;
use packets::port::Kind;
use packets::schedule::Pace;
use packets::trial::Outcome;

const BARE: Shape = Shape { rate_bps: None, delay_ns: 0, loss: 0.0, queue_bytes: 1 << 24 };

fn link(from: &str, to: &str, shape: Shape, both: bool) -> Settings {
    Settings { port: None, from: from.into(), to: to.into(), shape, both, seed: 11 }
}

/// A trial of frames of one length through a link between two pairs of interfaces.
fn through(link: Settings, length: usize, pace: Pace) -> (Outcome, Work) {
    let judged = thread::spawn(move || {
        enter_new_namespace();
        pair("tx", "in");
        pair("out", "rx");
        let emulator = Emulator::open(&link, &SLEEPER).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let working = {
            let stop = Arc::clone(&stop);
            thread::spawn(move || emulator.run(&stop).unwrap())
        };
        let mut settings = settings(Some(Kind::AfPacket), length, pace);
        settings.flows.truncate(1);
        // The emulator may pause for most of it.
        settings.drain_ns = 3_000_000_000;
        let outcome = outcome(settings);
        stop.store(true, Ordering::Relaxed);
        (outcome, working.join().unwrap())
    });
    judged.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Every frame sent is one that left, was lost or dropped, and those that left have come.
fn accounted(outcome: &Outcome, work: &Work) {
    let passed = work.there;
    let sent = outcome.transmission.total() - outcome.transmission.refused;
    assert_eq!(passed.forwarded + passed.dropped_queue + passed.dropped_loss + passed.missed, sent, "{passed:?}");
    assert_eq!((passed.dropped_offloaded, passed.abandoned), (0, 0), "{passed:?}");
    assert_eq!(received(outcome), [passed.forwarded - passed.refused]);
    assert_eq!(outcome.analyser.flows()[0].reordered + outcome.analyser.corrupted(), 0);
    assert_eq!(work.lateness.len(), passed.forwarded);
    assert!(work.cpu_ns > 0 && work.elapsed_ns > 0);
}

#[test]
fn no_frame_is_under_way_for_less_than_the_delay() {
    let ports = [Kind::AfXdp, Kind::AfPacket];
    for (kind, delay_ns) in ports.into_iter().flat_map(|kind| [(kind, 100_000), (kind, 5_000_000)]) {
        let link = Settings { port: Some(kind), ..link("in", "out", Shape { delay_ns, ..BARE }, false) };
        let (outcome, work) = through(link, 1514, Pace::new(5_000.0, 400_000_000));
        accounted(&outcome, &work);
        assert_eq!((work.there.forwarded, work.there.bytes, work.back), (2000, 2000 * 1514, None));
        assert_eq!(work.port, kind);
        // The clock by which the tester's receiver stamps is read apart from that of its sender.
        let (least_ns, _) = outcome.analyser.latency().extremes().unwrap();
        assert!(least_ns + 5_000 >= delay_ns, "{least_ns}");
    }
}

#[test]
fn no_more_passes_than_the_rate_and_what_the_queue_does_not_hold_is_dropped() {
    // 12.112 Mbit/s are a frame each millisecond; three times as many come.
    const QUEUE: u64 = 200;
    let shape = Shape { rate_bps: Some(12.112e6), queue_bytes: QUEUE * 1514, ..BARE };
    let (outcome, work) = through(link("in", "out", shape, false), 1514, Pace::new(3_000.0, 600_000_000));
    accounted(&outcome, &work);
    let (sent_ns, passed) = (outcome.transmission.end_ns - outcome.transmission.start_ns, work.there);
    // As many as there was time for, and those that waited when the last one came.
    assert!((QUEUE..=sent_ns / 1_000_000 + QUEUE + 2).contains(&passed.forwarded), "{passed:?} {sent_ns}");
    let (first_ns, last_ns) = outcome.analyser.arrivals_ns().unwrap();
    let needed_ns = (received(&outcome)[0] - 1) * 1_000_000;
    // Only a first frame that was late brings the others nearer.
    let late_ns = work.lateness.extremes().unwrap().1;
    assert!(last_ns - first_ns + late_ns + 1_000_000 >= needed_ns, "{} {needed_ns}", last_ns - first_ns);
}

#[test]
fn as_many_frames_are_lost_as_was_asked_for() {
    let (outcome, work) =
        through(link("in", "out", Shape { loss: 0.1, ..BARE }, false), 60, Pace::new(10_000.0, 500_000_000));
    accounted(&outcome, &work);
    // Of 5000, 500 and five standard deviations.
    assert!(work.there.dropped_loss.abs_diff(500) <= 106, "{:?}", work.there);
}

#[test]
fn the_way_back_is_delayed_and_has_no_other_limit() {
    let shape = Shape { rate_bps: Some(1e4), delay_ns: 2_000_000, loss: 1.0, queue_bytes: 1 << 24 };
    // From the receiver's side to the sender's.
    let (outcome, work) = through(link("out", "in", shape, true), 1514, Pace::new(2_000.0, 200_000_000));
    let back = work.back.unwrap();
    assert_eq!((received(&outcome), back.forwarded, back.dropped_loss), (vec![400], 400, 0));
    assert!(outcome.analyser.latency().extremes().unwrap().0 + 5_000 >= 2_000_000);
    assert_eq!(work.there.forwarded + work.there.dropped_loss, 0);
}

#[test]
fn what_comes_faster_than_it_is_taken_is_told() {
    const SENT: u64 = 12_000;
    let judged = thread::spawn(|| {
        enter_new_namespace();
        pair("tx", "in");
        pair("out", "rx");
        // More than may wait, while nobody takes any.
        let emulator = Emulator::open(&link("in", "out", BARE, false), &SLEEPER).unwrap();
        let sending = settings(Some(Kind::AfPacket), 60, Pace::burst(SENT));
        let (transmission, _) = packets::trial::send_only(&sending, &SLEEPER).unwrap();
        let dropped = Counters::read("tx").unwrap().send_dropped;
        let stop = Arc::new(AtomicBool::new(false));
        let working = {
            let stop = Arc::clone(&stop);
            thread::spawn(move || emulator.run(&stop).unwrap())
        };
        thread::sleep(Duration::from_secs(2));
        stop.store(true, Ordering::Relaxed);
        let passed = working.join().unwrap().there;
        assert!(passed.missed > 0 && passed.forwarded > 0, "{passed:?}");
        let came = transmission.total() - transmission.refused.max(dropped);
        assert_eq!(passed.forwarded + passed.missed, came, "{passed:?}");
    });
    judged.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

#[test]
fn nothing_stays_on_an_interface_and_an_unknown_one_is_named() {
    thread::spawn(|| {
        enter_new_namespace();
        pair("one", "other");
        let known = link("one", "other", BARE, true);
        let emulator = Emulator::open(&known, &SLEEPER).unwrap();
        let work = emulator.run(&AtomicBool::new(true)).unwrap();
        assert_eq!((work.there.forwarded, work.port), (0, Kind::AfXdp));
        assert!(!laboratory::said("ip -details link show").contains("xdp"));
        let other = Settings { port: Some(Kind::XdpLive), ..known };
        assert!(Emulator::open(&other, &SLEEPER).is_err());
        let unknown = link("one", "nothing", BARE, false);
        let failure = Emulator::open(&unknown, &SLEEPER).err().unwrap();
        assert!(failure.to_string().contains("\"nothing\""), "{failure}");
        run("ip link delete one");
    })
    .join()
    .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    // Tests run where the machine was started, or in a container.
    let failure = Emulator::open(&link("lo", "lo", BARE, false), &SLEEPER).err().unwrap();
    assert!(failure.to_string().contains("namespace"), "{failure}");
}
