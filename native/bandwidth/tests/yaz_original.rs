//! The known limits of Yaz as it was published: each is kept.

mod paths;

use bandwidth::Effort;
use bandwidth::estimators::{Estimator, yaz_original};
use bandwidth::outcome::{Outcome, Step};
use bandwidth::simulated::{CrossTraffic, Path, Sender};
use bandwidth::transport::Spacing;
use paths::{constant, link, poisson, run};

fn original(settings: yaz_original::Settings, path: &Path) -> Outcome {
    run(&Estimator::YazOriginal(settings), path, 1).expect("an estimate")
}

fn by_default(path: &Path) -> Outcome {
    original(yaz_original::Settings::default(), path)
}

/// A path of which exactly this is available, in bit/s of IP packets.
fn fluid_path(available_bps: f64) -> Path {
    let left_bps = available_bps * 1538.0 / 1500.0;
    link(1e9, CrossTraffic::Fluid { rate_bps: 1e9 - left_bps })
}

#[test]
fn three_hundred_megabit_are_its_own_ceiling() {
    // 1500 B each 40 µs are 300 Mbit/s, whatever the path carries.
    for (cross, truth) in [(CrossTraffic::None, 975.3e6), (constant(500e6), 487.6e6), (poisson(500e6), 487.6e6)] {
        let path = link(1e9, cross);
        assert!((path.available_bps(1500) / truth - 1.0).abs() < 1e-3);
        let found = by_default(&path).estimate;
        assert!((found.available_bps - 300e6).abs() < 1.0 && found.lower_bound, "{found:?}");
    }
}

#[test]
fn a_full_300_megabit_link_is_said_to_carry_more_than_it_can() {
    // 292.6 Mbit/s of IP packets fill the wire; 41 µs are within the tolerated microsecond of 40.
    let path = link(300e6, CrossTraffic::None);
    assert!((path.available_bps(1500) - 292.6e6).abs() < 0.1e6);
    assert!((by_default(&path).estimate.available_bps - 300e6).abs() < 1.0);
}

#[test]
fn a_shorter_first_gap_lifts_the_ceiling_but_not_the_microseconds() {
    // As in the copy that the published 1 Gbit/s figures come from.
    let settings = yaz_original::Settings { first_gap_us: 10, ..Default::default() };
    let path = link(1e9, CrossTraffic::Fluid { rate_bps: 500e6 });
    let error = original(settings, &path).estimate.available_bps / path.available_bps(1500) - 1.0;
    assert!((0.02..0.25).contains(&error), "{error}");
}

#[test]
fn whole_microseconds_make_it_report_too_much() {
    // 60.9 µs fit; it can say 60 or 61, and a microsecond of tolerance lets a shorter gap pass.
    for gap_us in [45.9, 60.9, 80.9, 100.9] {
        let truth = 1500.0 * 8.0 / gap_us * 1e6;
        let path = fluid_path(truth);
        let found = by_default(&path);
        for instant in &found.instants {
            let reported_us = 1500.0 * 8e6 / instant.available_bps;
            assert!((reported_us - reported_us.round()).abs() < 1e-9, "{reported_us}");
            assert!(reported_us < gap_us, "{reported_us} of {gap_us}");
        }
        assert!(found.estimate.available_bps / truth - 1.0 > 0.015);
        // An interval that knows nothing of this does not hold the truth.
        assert!(found.estimate.low_bps > truth);
    }
}

#[test]
fn the_gap_only_grows() {
    let path = link(300e6, poisson(150e6));
    let shrinks = |outcome: &Outcome| {
        let within = |pair: &[Step]| pair[0].instant == pair[1].instant;
        outcome.trace.windows(2).any(|pair| within(pair) && pair[1].stream.gap_ps < pair[0].stream.gap_ps)
    };
    let found = by_default(&path);
    assert!(found.trace.len() > 2 * found.instants.len(), "it had to move");
    assert!(!shrinks(&found));
    assert!(found.trace.iter().all(|step| step.stream.spacing == Spacing::AfterPrevious));
}

#[test]
fn lateness_of_the_sender_adds_up_and_lowers_the_ceiling() {
    // Each packet 10 µs late on average, as after an imprecise sleep: 50 µs instead of 40.
    let sender = Sender { lateness_ns: 10_000.0, ..Sender::default() };
    let path = Path { sender, ..link(1e9, CrossTraffic::None) };
    let found = by_default(&path).estimate.available_bps;
    assert!((found / 240e6 - 1.0).abs() < 0.1, "{found}");
}

#[test]
fn slow_paths_get_shorter_packets() {
    let path = link(6e6, CrossTraffic::None);
    let outcome = by_default(&path);
    let lengths: Vec<u32> = outcome.trace.iter().map(|step| step.stream.packet_bytes).collect();
    assert!(lengths.contains(&1500) && lengths.contains(&750));
    // Short packets fill less of the wire: the truth is that of their length.
    let truth = path.available_bps(*lengths.last().expect("a stream"));
    let error = outcome.estimate.available_bps / truth - 1.0;
    assert!(error.abs() < 0.1, "{error}");
}

#[test]
fn it_repeats_to_say_how_far_it_can_be_trusted() {
    let settings = yaz_original::Settings {
        effort: Effort { most_instants: 12, fewest_instants: 12, ..Effort::default() },
        ..Default::default()
    };
    let found = original(settings, &link(300e6, poisson(200e6)));
    assert_eq!(found.instants.len(), 12);
    assert!(found.estimate.low_bps < found.estimate.available_bps);
    assert!(found.estimate.high_bps > found.estimate.available_bps);
}
