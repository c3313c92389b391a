//! What is refused, what fails, and what is counted.

mod paths;

use std::cell::Cell;
use std::ops::ControlFlow;

use bandwidth::Effort;
use bandwidth::estimators::{Estimator, kite2};
use bandwidth::outcome::{Cost, Outcome, Progress, Verdict, Why};
use bandwidth::simulated::{CrossTraffic, Hop, Path, Sender, SimulatedPath, Stalls};
use bandwidth::transport::{Limits, Observation, Stream, Transport};
use failure::{Failure, PacingLimit};
use paths::{constant, link, poisson, run};

fn all() -> impl Iterator<Item = Estimator> {
    Estimator::NAMES.iter().map(|name| Estimator::named(name).expect("an estimator of this name"))
}

fn ten_gigabit(sender: Sender) -> Path {
    Path { sender, ..Path::of(Hop::ethernet(10e9)) }
}

fn pacing_limit(result: Result<Outcome, Failure>) -> PacingLimit {
    match result {
        Err(Failure::CannotPace(limit)) => limit,
        other => panic!("not refused: {other:?}"),
    }
}

fn ours() -> Estimator {
    Estimator::named("kite2").expect("ours")
}

#[test]
fn a_path_faster_than_the_host_is_refused_with_the_hosts_own_limit() {
    // 3 µs for each packet are 4 Gbit/s at most.
    let sender = Sender { packet_cost_ns: 3000.0, ..Sender::default() };
    let limit = pacing_limit(run(&ours(), &ten_gigabit(sender), 1));
    assert!((2.8e9..=4.2e9).contains(&limit.max_paced_bps), "{limit:?}");
    assert!(limit.asked_bps > limit.max_paced_bps && limit.asked_bps < 6e9, "{limit:?}");
    assert!(limit.carried_bps.is_some_and(|bps| (bps / limit.max_paced_bps - 1.0).abs() < 1e-3), "{limit:?}");
    assert_eq!(limit.undisturbed_bps, None);
    assert!(Failure::CannotPace(limit).to_string().contains("the highest rate that it keeps"));
}

#[test]
fn what_is_known_of_the_host_is_not_tried() {
    let mut path = ten_gigabit(Sender::default());
    path.limits.max_paced_bps = Some(2e9);
    let mut highest_bps = 0.0f64;
    let mut watch = |progress: &Progress| {
        if progress.verdict != Verdict::Measured {
            highest_bps = highest_bps.max(progress.rate_bps);
        }
        ControlFlow::Continue(())
    };
    let mut transport = SimulatedPath::new(path, 1);
    let result = ours().estimate(&mut transport, &mut watch);
    let limit = pacing_limit(result);
    assert!(limit.carried_bps.is_some_and(|carried_bps| carried_bps > 1.8e9), "{limit:?}");
    assert!((limit.max_paced_bps - 2e9).abs() < 1.0 && highest_bps <= 2e9);
}

#[test]
fn a_host_that_is_kept_from_its_pace_is_told_what_it_kept_and_what_it_could() {
    // Interrupted almost all the time, after a calibration in a quiet moment.
    let stalls = Stalls { per_second: 4000.0, mean_ns: 2e6, unseen: 0.0 };
    let mut path = Path { sender: Sender { stalls, ..Sender::default() }, ..link(1e9, constant(500e6)) };
    path.limits.max_paced_bps = Some(19.664e9);
    let limit = pacing_limit(run(&ours(), &path, 1));
    assert!(limit.max_paced_bps < limit.asked_bps && limit.asked_bps < 19.664e9, "{limit:?}");
    assert_eq!(limit.undisturbed_bps, Some(19.664e9));
    let message = Failure::CannotPace(limit).to_string();
    assert!(message.contains("kept 19664.0 Mbit/s") && message.contains("--fifo"), "{message}");
}

/// A path from a host whose highest rate changes.
struct Slowing<'a> {
    path: SimulatedPath,
    max_paced_bps: &'a Cell<Option<f64>>,
    asked: Cell<u32>,
}

impl Transport for Slowing<'_> {
    fn limits(&self) -> Limits {
        self.asked.set(self.asked.get() + 1);
        assert!(self.asked.get() < 10_000, "asked for the same rate for ever, without sending");
        Limits { max_paced_bps: self.max_paced_bps.get(), ..self.path.limits() }
    }

    fn now_ns(&mut self) -> i64 {
        self.path.now_ns()
    }

    fn rest(&mut self, duration_ns: u64) -> Result<(), Failure> {
        self.path.rest(duration_ns)
    }

    fn send(&mut self, stream: &Stream) -> Result<Observation, Failure> {
        self.path.send(stream)
    }
}

#[test]
fn a_host_that_slows_down_between_two_judged_rates_is_told_of_and_not_asked_again() {
    let max_paced_bps = Cell::new(None);
    let (mut carried_bps, mut congested_bps, mut streams) = (0.0f64, f64::INFINITY, 0);
    let mut watch = |progress: &Progress| {
        let rate_bps = progress.rate_bps;
        if rate_bps > carried_bps * 1.001 && rate_bps < congested_bps * 0.999 && congested_bps.is_finite() {
            max_paced_bps.set(Some(carried_bps * 1.0001));
        }
        match progress.verdict {
            Verdict::Carried => carried_bps = carried_bps.max(rate_bps),
            Verdict::Congested => congested_bps = congested_bps.min(rate_bps),
            _ => {}
        }
        streams = progress.streams;
        ControlFlow::Continue(())
    };
    let path = SimulatedPath::new(link(1e9, constant(500e6)), 1);
    let mut slowing = Slowing { path, max_paced_bps: &max_paced_bps, asked: Cell::new(0) };
    let limit = pacing_limit(ours().estimate(&mut slowing, &mut watch));
    assert!(max_paced_bps.get().is_some_and(|bps| limit.asked_bps > bps), "{limit:?}");
    assert!(limit.carried_bps.is_some_and(|bps| (bps / carried_bps - 1.0).abs() < 0.01), "{limit:?}");
    assert!(streams < 200, "{streams}");
}

#[test]
fn a_host_that_is_often_interrupted_still_measures() {
    // Two of three trains are.
    let stalls = Stalls { per_second: 220.0, mean_ns: 2e6, unseen: 0.0 };
    let mut path = Path { sender: Sender { stalls, ..Sender::default() }, ..link(1e9, constant(500e6)) };
    path.limits.max_paced_bps = Some(19.664e9);
    let found = run(&ours(), &path, 1).expect("an estimate");
    assert!(found.stalled as usize * 2 > found.trace.len(), "{} of {}", found.stalled, found.trace.len());
    assert!((found.estimate.available_bps / path.available_bps(1500) - 1.0).abs() < 0.03);
}

#[test]
fn packets_that_cost_more_than_their_gap_are_refused_whatever_the_burst() {
    let mut path = ten_gigabit(Sender::default());
    (path.limits.burst_cost_ns, path.limits.packet_cost_ns) = (1000, 6000);
    let limit = pacing_limit(run(&ours(), &path, 1));
    assert!(limit.asked_bps < 2.2e9, "{limit:?}");
}

#[test]
fn a_slow_host_still_measures_a_slower_path() {
    let sender = Sender { packet_cost_ns: 3000.0, ..Sender::default() };
    let path = Path { sender, ..link(1e9, constant(500e6)) };
    let found = run(&ours(), &path, 1).expect("an estimate");
    let error = found.estimate.available_bps / path.available_bps(1500) - 1.0;
    assert!(error.abs() < 0.03, "{error}");
}

#[test]
fn trains_with_a_stall_or_a_refused_packet_are_discarded_and_counted() {
    let stalls = Stalls { per_second: 50.0, mean_ns: 2e6, unseen: 0.0 };
    let stalled = Path { sender: Sender { stalls, ..Sender::default() }, ..link(1e9, constant(500e6)) };
    let refusing = Path { sender: Sender { refusal: 1e-3, ..Sender::default() }, ..link(1e9, constant(500e6)) };
    for (path, fault) in [(stalled, Why::SenderStalled), (refusing, Why::SenderRefused)] {
        let found = run(&ours(), &path, 1).expect("an estimate");
        let discarded: Vec<_> = found.trace.iter().filter(|step| step.verdict == Verdict::Discarded).collect();
        assert!(!discarded.is_empty() && discarded.iter().all(|step| step.why == fault), "{fault:?}: {discarded:?}");
        assert_eq!(found.discarded as usize, discarded.len());
        assert_eq!(found.stalled > 0, fault == Why::SenderStalled);
        assert!((found.estimate.available_bps / path.available_bps(1500) - 1.0).abs() < 0.03);
    }
}

#[test]
fn an_end_asked_for_comes_at_once() {
    for estimator in all() {
        let mut seen = 0;
        let mut watch = |progress: &Progress| {
            seen += 1;
            assert_eq!(progress.streams, seen);
            if seen == 7 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let mut transport = SimulatedPath::new(link(300e6, poisson(150e6)), 1);
        let result = estimator.estimate(&mut transport, &mut watch);
        assert!(matches!(result, Err(Failure::Cancelled)), "{}: {result:?}", estimator.name());
        assert_eq!(seen, 7);
    }
}

#[test]
fn a_listener_that_vanishes_is_an_error_and_not_an_estimate() {
    for estimator in all() {
        let mut transport = SimulatedPath::new(link(1e9, CrossTraffic::None), 1).vanishing_after(9);
        let result = estimator.estimate(&mut transport, &mut |_| ControlFlow::Continue(()));
        assert!(matches!(result, Err(Failure::PeerLost(_))), "{}: {result:?}", estimator.name());
    }
}

#[test]
fn a_path_that_carries_nothing_has_no_answer() {
    let path = Path { loss: 1.0, ..link(1e9, CrossTraffic::None) };
    for estimator in all() {
        let result = run(&estimator, &path, 1);
        assert!(matches!(result, Err(Failure::NoAnswer(_))), "{}: {result:?}", estimator.name());
    }
}

#[test]
fn the_number_of_streams_is_bounded() {
    let effort = Effort { most_streams: 20, ..Effort::default() };
    let estimator = Estimator::Kite2(kite2::Settings { effort, ..Default::default() });
    match run(&estimator, &link(300e6, poisson(150e6)), 1) {
        Err(Failure::NoAnswer(reason)) => assert!(reason.contains("20 streams"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn settings_out_of_range_are_named() {
    let path = link(1e9, CrossTraffic::None);
    for (settings, name) in [
        (r#"{"estimator": "yaz-original", "first_gap_us": 0}"#, "first gap"),
        (r#"{"estimator": "kite2", "packet_bytes": 20}"#, "packet_bytes"),
        (r#"{"estimator": "kite2", "lowest_bps": 5e9, "highest_bps": 1e9}"#, "lowest_bps"),
        (r#"{"estimator": "kite2", "most_packets": 1000000}"#, "most_packets"),
        (r#"{"estimator": "kite2", "rate_tolerance": -1}"#, "rate_tolerance"),
        (r#"{"estimator": "kite2", "probing_share": 0}"#, "probing_share"),
        (r#"{"estimator": "kite2", "effort": {"fewest_instants": 0}}"#, "fewest_instants"),
        (r#"{"estimator": "kite2", "effort": {"confidence": 1}}"#, "confidence"),
    ] {
        let estimator: Estimator = serde_json::from_str(settings).expect("well-formed settings");
        match run(&estimator, &path, 1) {
            Err(Failure::Invalid(reason)) => assert!(reason.contains(name), "{reason}"),
            other => panic!("{settings}: {other:?}"),
        }
    }
}

#[test]
fn settings_may_be_partial_but_not_misspelt() {
    let given: Estimator = serde_json::from_str(r#"{"estimator": "kite2", "effort": {"seed": 5}}"#).expect("settings");
    let effort = Effort { seed: 5, ..Effort::default() };
    assert_eq!(given, Estimator::Kite2(kite2::Settings { effort, ..Default::default() }));
    assert!(serde_json::from_str::<Estimator>(r#"{"estimator": "kite2", "packet_byte": 1500}"#).is_err());
    for estimator in all() {
        let text = serde_json::to_string(&estimator).expect("text");
        assert_eq!(serde_json::from_str::<Estimator>(&text).expect("settings"), estimator);
        assert!(text.contains(estimator.name()));
    }
}

#[test]
fn everything_sent_is_in_the_trace_and_a_seed_repeats_it() {
    let path = link(1e9, poisson(500e6));
    for estimator in all() {
        let found = run(&estimator, &path, 4).expect("an estimate");
        assert_eq!(found.bytes, found.trace.iter().map(|step| step.stream.bytes()).sum::<u64>());
        assert_eq!(found.packets, found.trace.iter().map(|step| u64::from(step.stream.packets)).sum::<u64>());
        assert!(found.trace.is_sorted_by_key(|step| step.at_ns));
        assert_eq!(found.trace.last().map(|step| step.instant as usize + 1), Some(found.instants.len()));
        assert!(found.instants.len() >= 10);
        let cost = |figure: fn(&Cost) -> u64| found.instants.iter().map(|instant| figure(&instant.cost)).sum::<u64>();
        assert_eq!(
            (cost(|cost| cost.bytes), cost(|cost| u64::from(cost.streams))),
            (found.bytes, found.trace.len() as u64)
        );
        assert_eq!(cost(|cost| u64::from(cost.discarded)), u64::from(found.discarded));
        assert!(cost(|cost| cost.duration_ns) <= found.duration_ns);
        assert!(found.instants.iter().all(|instant| instant.cost.duration_ns > 0 && instant.cost.streams > 0));
        assert_eq!(run(&estimator, &path, 4).expect("an estimate"), found);
        let text = serde_json::to_string(&found).expect("text");
        assert!(text.contains("\"available_bps\"") && !text.contains("null,\"low_bps\""));
    }
}
