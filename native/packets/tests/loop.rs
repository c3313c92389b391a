//! What is sent through one end of a pair of interfaces and received from the other is accounted for, by every port.

mod laboratory;

use laboratory::{enter_new_namespace, outcome, pair, received, settings};
use packets::port::Kind;
use packets::schedule::Pace;
use packets::transmission::Timed;

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
        laboratory::run("ip link set dev rx down");
        match packets::trial::Trial::open(settings(Some(kind), 60, Pace::burst(10)), &laboratory::SLEEPER) {
            Err(failure) => assert!(!failure.to_string().is_empty()),
            Ok(trial) => {
                if let Ok(outcome) = trial.run(|_| Ok::<(), failure::Failure>(())) {
                    assert_eq!(received(&outcome).iter().sum::<u64>(), 0);
                }
            }
        }
    });
}
