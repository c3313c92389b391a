//! Which port is used, what it says when it cannot be, and what it leaves behind.

mod laboratory;

use failure::Failure;
use laboratory::{SLEEPER, enter_new_namespace, offload_receiving, outcome, pair, run, said, settings};
use packets::port::Kind;
use packets::schedule::Pace;
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
