//! Which port is used, what it says when it cannot be, and what it leaves behind; what is sent through one end of a pair of
//! interfaces and received from the other is accounted for, by every port.

mod laboratory;

use failure::Failure;
use laboratory::{SLEEPER, enter_new_namespace, offload_receiving, outcome, pair, received, run, said, settings};
use packets::port::Kind;
use packets::schedule::Pace;
use packets::transmission::Timed;
use packets::trial::Trial;

fn in_new_namespace(state: fn()) {
    let judged = std::thread::spawn(move || {
        enter_new_namespace();
        state();
    });
    judged.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

#[test]
fn the_fastest_port_that_works_is_chosen() {
    in_new_namespace(|| {
        pair("tx", "rx");
        let trial = Trial::open(settings(None, 60, Pace::burst(10)), &SLEEPER).unwrap();
        assert_eq!(trial.chosen().kind, Kind::XdpLive, "{:?}", trial.chosen());
        assert!(trial.chosen().reasons.is_empty());
    });
}

#[test]
fn a_port_that_does_not_work_is_named_with_the_reason_and_what_helps() {
    in_new_namespace(|| {
        // The other end of the sending pair is not polled.
        pair("tx", "other");
        pair("more", "rx");
        let trial = Trial::open(settings(None, 60, Pace::burst(10)), &SLEEPER).unwrap();
        assert_eq!(trial.chosen().kind, Kind::AfXdp);
        let (kind, reason) = &trial.chosen().reasons[0];
        assert_eq!(*kind, Kind::XdpLive);
        assert!(reason.contains("gro on"), "{reason}");
        drop(trial);
        assert!(Trial::open(settings(Some(Kind::XdpLive), 60, Pace::burst(10)), &SLEEPER).is_err());
        offload_receiving("other");
        let trial = Trial::open(settings(None, 60, Pace::burst(10)), &SLEEPER).unwrap();
        assert_eq!(trial.chosen().kind, Kind::XdpLive);
    });
}

#[test]
fn nothing_stays_on_an_interface() {
    in_new_namespace(|| {
        pair("tx", "rx");
        let before = said("ip -details link show");
        assert!(!before.contains("xdp"));
        for kind in Kind::ALL {
            outcome(settings(Some(kind), 60, Pace::burst(100)));
            assert!(!said("ip -details link show").contains("xdp"), "{}", kind.name());
        }
    });
}

#[test]
fn a_rate_that_cannot_be_sent_ends_in_time_and_is_told() {
    in_new_namespace(|| {
        pair("tx", "rx");
        for kind in Kind::ALL {
            let mut settings = settings(Some(kind), 60, Pace::new(1e8, 100_000_000));
            settings.give_up_ns = 200_000_000;
            let outcome = outcome(settings);
            let (total, elapsed_ns) =
                (outcome.transmission.total(), outcome.transmission.end_ns - outcome.transmission.start_ns);
            assert!(0 < total && total < 10_000_000, "{}: {total}", kind.name());
            assert!(elapsed_ns < 5_000_000_000, "{}: {elapsed_ns}", kind.name());
            assert!(outcome.transmission.late > 0, "{}", kind.name());
            let received: u64 = outcome.analyser.flows().iter().map(|tally| tally.received).sum();
            let lost_by_receiver = outcome.receiver_loss.ring_full + outcome.receiver_loss.dropped;
            assert!(
                received <= total
                    && (received == total
                        || lost_by_receiver
                            + outcome.transmit_counters.send_dropped
                            + outcome.receive_counters.receive_dropped
                            + outcome.transmission.refused
                            > 0),
                "{}: {received} of {total}",
                kind.name()
            );
        }
    });
}

#[test]
fn an_end_that_is_asked_for_comes_at_once() {
    in_new_namespace(|| {
        pair("tx", "rx");
        for kind in Kind::ALL {
            let trial = Trial::open(settings(Some(kind), 60, Pace::new(1000.0, 600_000_000_000)), &SLEEPER).unwrap();
            let mut asked = 0;
            let outcome = trial.run(|_| {
                asked += 1;
                if asked < 5 { Ok(()) } else { Err(Failure::Cancelled) }
            });
            assert!(matches!(outcome, Err(Failure::Cancelled)), "{}", kind.name());
        }
    });
}

#[test]
fn the_machines_own_namespace_is_refused_before_anything_is_opened() {
    let mut settings = settings(None, 60, Pace::burst(1));
    settings.transmit = "lo".into();
    settings.receive = "lo".into();
    let failure = Trial::open(settings, &SLEEPER).err().unwrap();
    assert!(failure.to_string().contains("namespace"), "{failure}");
}

#[test]
fn interfaces_of_another_namespace_cannot_be_named() {
    in_new_namespace(|| {
        run("ip link set dev lo up");
        let failure = Trial::open(settings(None, 60, Pace::burst(1)), &SLEEPER).err().unwrap();
        assert!(failure.to_string().contains("\"tx\""), "{failure}");
    });
}

fn each_port(state: fn(Kind)) {
    for kind in Kind::ALL {
        std::thread::spawn(move || {
            enter_new_namespace();
            pair("tx", "rx");
            state(kind);
        })
        .join()
        .unwrap_or_else(|_| panic!("with {}", kind.name()));
    }
}

#[test]
fn every_frame_that_is_sent_comes_back_once() {
    each_port(|kind| {
        for length in [60, 61, 124, 508, 1514] {
            let outcome = outcome(settings(Some(kind), length, Pace::new(20_000.0, 200_000_000)));
            assert_eq!(outcome.transmission.total(), 4000, "{length}: {outcome:?}", outcome = outcome.transmission);
            assert_eq!(received(&outcome), outcome.transmission.sent, "{length}");
            assert_eq!((outcome.transmission.refused, outcome.analyser.corrupted()), (0, 0), "{length}");
            assert!(outcome.analyser.flows().iter().all(|tally| tally.duplicates + tally.reordered == 0), "{length}");
            let sent = &outcome.transmission.sent;
            assert!(
                sent[0].abs_diff(500) < 10 && sent[1].abs_diff(1000) < 10 && sent[2].abs_diff(2500) < 10,
                "{sent:?}"
            );
            assert_eq!(outcome.analyser.latency().len(), 4000, "{length}");
            let (min, max) = outcome.analyser.latency().extremes().unwrap();
            assert!(min < 1_000_000 && max < 2_000_000_000, "{min} {max}");
            assert_eq!(outcome.transmission.gaps.len(), 3999);
            assert!(
                outcome.transmit_counters.sent >= 4000 && outcome.receive_counters.received >= 4000,
                "{outcome:?}",
                outcome = outcome.receive_counters
            );
        }
    });
}

#[test]
fn frames_are_sent_at_no_higher_a_rate_than_asked_for() {
    each_port(|kind| {
        let pace = Pace::new(100.0, 100_000_000);
        let sent = outcome(settings(Some(kind), 60, pace)).transmission;
        assert_eq!(sent.total(), 10);
        assert!(sent.elapsed_ns(&pace) >= 100_000_000, "{sent:?}");
    });
}

#[test]
fn a_burst_is_sent_as_fast_as_possible() {
    each_port(|kind| {
        let outcome = outcome(settings(Some(kind), 60, Pace::burst(3000)));
        assert_eq!(outcome.transmission.total(), 3000);
        assert_eq!(received(&outcome).iter().sum::<u64>(), 3000);
        assert!(outcome.transmission.gaps.quantile(0.5).unwrap() < 50_000);
        assert_eq!((outcome.transmission.late, outcome.transmission.lateness.len()), (0, 0));
    });
}

#[test]
fn one_frame_in_a_stream_can_be_timed() {
    each_port(|kind| {
        let mut settings = settings(Some(kind), 60, Pace::new(10_000.0, 100_000_000));
        settings.timed = Timed::One(500);
        let outcome = outcome(settings);
        assert_eq!(received(&outcome).iter().sum::<u64>(), 1000);
        assert_eq!(outcome.analyser.latency().len(), 1);
    });
}

#[test]
fn an_interface_that_is_down_is_an_error_or_loss_but_never_a_panic() {
    each_port(|kind| {
        run("ip link set dev rx down");
        match Trial::open(settings(Some(kind), 60, Pace::burst(10)), &SLEEPER) {
            Err(failure) => assert!(!failure.to_string().is_empty()),
            Ok(trial) => {
                if let Ok(outcome) = trial.run(|_| Ok::<(), Failure>(())) {
                    assert_eq!(received(&outcome).iter().sum::<u64>(), 0);
                }
            }
        }
    });
}
