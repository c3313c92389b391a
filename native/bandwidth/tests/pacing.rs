//! The pacing sweep on real sockets and links.  What a machine reaches is its own affair; what is said of it is not.

mod session;

use std::sync::Arc;

use bandwidth::pacing::calibration::{self, Calibration, Plan};
use bandwidth::pacing::frames::{self, Link};
use bandwidth::pacing::placement::Placement;
use bandwidth::pacing::profile::{LATE_SHARE, RATE_TOLERANCE};
use bandwidth::pacing::sweep::{self, Rung};
use bandwidth::pacing::timing::{ClockChoice, SleepChoice, Waiter};
use bandwidth::transport::Transport;
use bandwidth::udp::handover::Method;
use bandwidth::udp::transport::Pacing;
use failure::Failure;
use packets::port::Kind;
use session::tries::in_one_of_five;
use session::{Listening, open, sender, settings, to};

const DURATION_NS: u64 = 10_000_000;

fn plan(methods: &[Method]) -> Plan {
    Plan {
        waiter: Waiter::new(ClockChoice::System, SleepChoice::Hptime, None),
        placement: Placement::default(),
        packet_bytes: 1500,
        duration_ns: DURATION_NS,
        methods: methods.to_vec(),
        cancel: Arc::default(),
    }
}

/// What holds of every rung, on a machine of any speed.
fn assert_sound(rung: &Rung) {
    assert!(rung.flat_out.achieved_bps > 1e6, "{rung:?}");
    assert!(rung.flat_out.asked_bps.is_none() && !rung.flat_out.paced);
    assert!(!rung.tried.is_empty());
    for &(rate_bps, ayes, unpaced) in &rung.tried {
        assert!((2..=3).contains(&(ayes + unpaced)) && rate_bps <= rung.flat_out.achieved_bps);
    }
    let best = rung.tried.iter().filter(|&&(_, ayes, unpaced)| ayes > unpaced).map(|&(rate_bps, ..)| rate_bps);
    let best = best.fold(None, |best: Option<f64>, rate_bps| Some(best.map_or(rate_bps, |best| best.max(rate_bps))));
    assert_eq!(rung.paced.is_some(), best.is_some());
    if let (Some(paced), Some(best)) = (&rung.paced, best) {
        assert!((paced.asked_bps.unwrap() / best - 1.0).abs() < 1e-3);
        assert!((rung.max_paced_bps() / best - 1.0).abs() <= RATE_TOLERANCE + 1e-3);
        assert!(paced.paced && paced.late_share.unwrap() <= LATE_SHARE);
        let gaps = paced.gaps.as_ref().unwrap();
        assert!(gaps.n == paced.bursts - 1 && gaps.ccdf.last().unwrap().1 == 0.0);
        assert!(paced.received_share.is_none_or(|share| (0.0..=1.0).contains(&share)));
    }
}

fn names(calibration: &Calibration) -> Vec<&'static str> {
    calibration.rungs.iter().map(|rung| rung.method).collect()
}

#[test]
fn every_way_over_sockets_is_measured_on_loopback() {
    in_one_of_five(|| {
        let calibration = calibration::on_loopback(&plan(&Method::ALL)).unwrap();
        assert_eq!(names(&calibration), ["send", "sendmmsg", "gso"]);
        assert!(calibration.unsupported.is_empty());
        calibration.rungs.iter().for_each(assert_sound);
        let impossible_bps = 1e13;
        match sweep::require(impossible_bps, &calibration.rungs) {
            Err(Failure::CannotPace(limit)) => {
                assert_eq!((limit.asked_bps, limit.max_paced_bps), (impossible_bps, calibration.max_paced_bps()));
            }
            other => panic!("{other:?}"),
        }
        // Many packets by one call cost less than half of each by its own, where the machine does not pause just then.
        let [each, many] = [0, 2].map(|index| calibration.rungs[index].flat_out.achieved_bps);
        (many > 2.0 * each, [each, many])
    });
}

#[test]
fn a_transport_passes_on_what_was_measured_or_says_that_nobody_did() {
    let listening = Listening::on_loopback();
    let pacing = Pacing { burst_cost_ns: 4_000, packet_cost_ns: 300, max_paced_bps: 17e9 };
    let limits = |pacing| {
        let mut settings = sender(to(listening.address));
        settings.pacing = pacing;
        let transport = session::patiently(&settings);
        let limits = transport.limits();
        transport.close();
        limits
    };
    let known = limits(Some(pacing));
    assert_eq!((known.max_paced_bps, known.burst_cost_ns, known.packet_cost_ns), (Some(17e9), 4_000, 300));
    let assumed = limits(None);
    assert!(assumed.max_paced_bps.is_none() && assumed.burst_cost_ns > 0 && assumed.packet_cost_ns > 0);
}

#[test]
fn a_path_can_be_climbed_too_and_lengths_that_it_does_not_take_are_told() {
    session::apart(|| {
        let far = session::pair();
        let listening = Listening::start(settings(session::FAR), Some(far));
        let mut transport = open(listening.address);
        let calibration = calibration::over(&mut transport, &plan(&[Method::Sendmmsg, Method::Gso])).unwrap();
        assert_eq!(names(&calibration), ["sendmmsg", "gso"]);
        calibration.rungs.iter().for_each(assert_sound);
        let too_long = Plan { packet_bytes: 4000, ..plan(&[Method::Send]) };
        let calibration = calibration::over(&mut transport, &too_long).unwrap();
        assert!(calibration.rungs.is_empty());
        assert!(calibration.unsupported[0].1.contains("at most 1500 B"), "{:?}", calibration.unsupported);
    });
}

#[test]
fn without_a_loopback_there_is_a_reason_and_no_figure() {
    session::apart(|| {
        session::enter_new();
        session::run("ip link set dev lo down");
        let failure = calibration::on_loopback(&plan(&[Method::Send])).unwrap_err();
        let message = failure.to_string();
        assert!(matches!(failure, Failure::Unsupported(_)) && message.contains("ip link set lo up"), "{message}");
    });
}

#[test]
fn frames_below_the_sockets_are_paced_on_a_link_of_ones_own() {
    session::apart(|| {
        // The end of the pair that takes them lives in the other namespace.
        let _far = session::pair();
        let link = Link { interface: "near".into(), destination_mac: [2, 0, 0, 0, 0, 2], cpu: None };
        let rung = frames::climb(Kind::AfXdp, &link, 1500, DURATION_NS).unwrap();
        assert_eq!((rung.method, rung.packet_bytes), ("af_xdp", 1500));
        assert_sound(&rung);
        // The other end is not polled, and so takes no frames that an XDP program sends.
        let failure = frames::climb(Kind::XdpLive, &link, 1500, DURATION_NS).unwrap_err();
        assert!(matches!(&failure, Failure::Unsupported(reason) if reason.contains("gro on")), "{failure}");
        let failure = frames::climb(Kind::AfXdp, &link, 9000, DURATION_NS).unwrap_err();
        assert!(matches!(&failure, Failure::Unsupported(reason) if reason.contains("1500 B")), "{failure}");
    });
}

#[test]
fn frames_are_not_let_loose_on_the_machines_own_network() {
    let link = Link { interface: "lo".into(), destination_mac: [0; 6], cpu: None };
    let failure = frames::climb(Kind::AfXdp, &link, 1500, DURATION_NS).unwrap_err();
    assert!(failure.to_string().contains("namespace"), "{failure}");
}
