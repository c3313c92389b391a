//! What this host can pace, measured over sockets: on its own loopback, where it harms nobody, or on a path.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use failure::Failure;

use crate::control::client;
use crate::control::listener::{self, Listener};
use crate::pacing::placement::Placement;
use crate::pacing::profile::Profile;
use crate::pacing::sweep::{self, Rung};
use crate::pacing::timing::Waiter;
use crate::transport::Stream;
use crate::udp::handover::Method;
use crate::udp::packet;
use crate::udp::receiving::Stamps;
use crate::udp::transport::{Pacing, Settings, UdpTransport};

/// Rate by which the length of the first stream is chosen, the one that is sent as fast as possible.
const ASSUMED_BPS: f64 = 10e9;

/// Most packets of one try: beyond it, the account of them does not fit into caches, and slows what it counts.
const MOST_PACKETS: f64 = 1e6;

/// How long each try sends where it is only to be known what the host paces.
const SHORT_TRY_NS: u64 = 20_000_000;

/// Bursts that a try should have: of fewer, one in a hundred is none.
const ENOUGH_BURSTS: f64 = 200.0;

/// So much longer than asked for may a try be to have them.
const LONGEST_TRY: f64 = 5.0;

/// How to calibrate.
#[derive(Clone, Debug)]
pub struct Plan {
    /// By which clock and sleep.
    pub waiter: Waiter,
    /// Where the sending thread runs.
    pub placement: Placement,
    /// Length of each IP packet.
    pub packet_bytes: u32,
    /// How long each try sends.
    pub duration_ns: u64,
    /// Ways to try.
    pub methods: Vec<Method>,
    /// Set by whoever wants an end.
    pub cancel: Arc<AtomicBool>,
}

impl Plan {
    /// In some two seconds before an estimate that is to be made with these settings.
    #[must_use]
    pub fn before_estimate(settings: &Settings, packet_bytes: u32) -> Self {
        let methods = match settings.method {
            None => vec![Method::Send, Method::Gso, Method::Sendmmsg],
            Some(Method::Send) => vec![Method::Send],
            // Single packets are sent by `send` anyway.
            Some(method) => vec![Method::Send, method],
        };
        Self {
            waiter: settings.waiter,
            placement: settings.placement,
            packet_bytes,
            duration_ns: SHORT_TRY_NS,
            methods,
            cancel: Arc::clone(&settings.listener.cancel),
        }
    }
}

/// A way of sending that does not work here, and why.
pub type Unsupported = (Method, String);

/// What was found.
#[derive(Clone, Debug)]
pub struct Calibration {
    /// One for each way that works.
    pub rungs: Vec<Rung>,
    /// The others.
    pub unsupported: Vec<Unsupported>,
}

/// On this host's loopback, with a listener of its own.
///
/// # Errors
/// [`Failure::Unsupported`] where the loopback interface is down.
pub fn on_loopback(plan: &Plan) -> Result<Calibration, Failure> {
    let settings = listener::Settings {
        address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        port: 0,
        secret: None,
        stamps: Stamps::Kernel,
        placement: Placement::default(),
        sessions: Some(1),
    };
    let listener = Listener::bind(settings)?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| listener.serve(&stop, &|_| {}));
        let sending = scope.spawn(|| {
            let to = client::Settings {
                host: listener.address().ip().to_string(),
                port: listener.address().port(),
                secret: None,
                cancel: Arc::clone(&plan.cancel),
            };
            let (waiter, placement) = (plan.waiter, plan.placement);
            let mut transport =
                UdpTransport::open(Settings { listener: to, waiter, placement, method: None, pacing: None })?;
            let calibration = over(&mut transport, plan);
            transport.close();
            calibration
        });
        let joined = sending.join();
        stop.store(true, Ordering::Relaxed);
        let calibration = joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        calibration.map_err(|failure| match failure {
            Failure::PeerLost(reason) => Failure::Unsupported(format!(
                "this host's loopback does not carry packets, so that its pacing cannot be measured there ({reason}); \
                 `ip link set lo up`"
            )),
            failure => failure,
        })
    })
}

/// Over an open path, which is filled as far as this host can fill it.
pub fn over(transport: &mut UdpTransport, plan: &Plan) -> Result<Calibration, Failure> {
    let mut calibration = Calibration { rungs: Vec::new(), unsupported: Vec::new() };
    for &method in &plan.methods {
        match rung(transport, plan, method) {
            Ok(rung) => calibration.rungs.push(rung),
            Err(Failure::Unsupported(reason)) => calibration.unsupported.push((method, reason)),
            Err(failure) => return Err(failure),
        }
    }
    Ok(calibration)
}

fn rung(transport: &mut UdpTransport, plan: &Plan, method: Method) -> Result<Rung, Failure> {
    let without_gso = transport.method_reason().filter(|_| method == Method::Gso);
    if let Some(reason) = without_gso {
        return Err(Failure::Unsupported(reason.to_owned()));
    }
    let payload_bytes = packet::payload_bytes(plan.packet_bytes, &transport.session().peer().ip())?;
    let burst = method.best_burst(payload_bytes);
    let mut reached_bps = ASSUMED_BPS;
    sweep::climb(method.name(), plan.packet_bytes, |rate_bps| {
        let expected_bps = rate_bps.unwrap_or(reached_bps);
        let bits = f64::from(plan.packet_bytes) * 8.0;
        let packets = expected_bps * plan.duration_ns as f64 / 1e9 / bits;
        let enough = (ENOUGH_BURSTS * f64::from(burst)).min(LONGEST_TRY * packets);
        let packets = packets.max(enough).clamp(2.0 * f64::from(burst), MOST_PACKETS) as u32;
        let mut stream = Stream::at_rate(packets, plan.packet_bytes, expected_bps).in_bursts_of(burst);
        if rate_bps.is_none() {
            stream.gap_ps = 0;
        }
        let (transmission, report) = transport.pace(&stream, method)?;
        let mut profile = Profile::of(&transmission);
        let left = transmission.sent.iter().filter(|sent| sent.left).count();
        profile.received_share = (left > 0).then(|| f64::from(report.received) / left as f64);
        reached_bps = profile.achieved_bps.max(1.0);
        Ok(profile)
    })
}

impl Calibration {
    /// The highest paced rate of all ways, in bit/s of IP packets; 0 if there is none.
    #[must_use]
    pub fn max_paced_bps(&self) -> f64 {
        self.rungs.iter().map(Rung::max_paced_bps).fold(0.0, f64::max)
    }

    /// What a transport needs to know; `None` if no rate was paced, so that it must be seen of each stream.
    #[must_use]
    pub fn pacing(&self) -> Option<Pacing> {
        let max_paced_bps = self.max_paced_bps();
        let (burst_ns, packet_ns) = costs_ns(&self.rungs);
        (max_paced_bps > 0.0).then(|| Pacing {
            burst_cost_ns: burst_ns.ceil() as u64,
            packet_cost_ns: packet_ns.ceil() as u64,
            max_paced_bps,
        })
    }
}

/// What a burst costs, and what each of its packets besides: the line through the paced times between bursts of the way
/// with the smallest burst and of the best one.
///
/// A burst of n packets that is due every a + b·n or later is then paced as well as those two are.  Of a way of which no rate was
/// paced, because the machine was kept from it at every rate, twice the time counts that a burst takes flat out.
fn costs_ns(rungs: &[Rung]) -> (f64, f64) {
    let times = rungs.iter().map(|rung| {
        let kept = rung.paced.as_ref().map(|paced| (paced.burst, paced.achieved_bps));
        let (burst, bps) = kept.unwrap_or((rung.flat_out.burst, rung.flat_out.achieved_bps / 2.0));
        (f64::from(burst), f64::from(burst) * f64::from(rung.packet_bytes) * 8e9 / bps.max(1.0))
    });
    let mut times: Vec<(f64, f64)> = times.collect();
    times.sort_by(|one, other| one.0.total_cmp(&other.0));
    let Some(&(few, few_ns)) = times.first() else { return (0.0, 0.0) };
    let best = times.iter().min_by(|one, other| (one.1 / one.0).total_cmp(&(other.1 / other.0)));
    let &(many, many_ns) = best.unwrap_or(&(few, few_ns));
    if many <= few {
        return (0.0, many_ns / many);
    }
    // A best way that is better with every packet has a call's cost to share; noise may say otherwise.
    let packet_ns = ((many_ns - few_ns) / (many - few)).clamp(0.0, many_ns / many);
    (many_ns - packet_ns * many, packet_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pacing::profile::Measured;

    fn profile(bps: f64, burst: u32) -> Profile {
        Profile::from_measured(&Measured::of_one(Some(bps), bps, burst, 0))
    }

    fn rung(method: &'static str, burst: u32, max_paced_bps: f64) -> Rung {
        let (flat_out, paced) = (profile(2.0 * max_paced_bps, burst), Some(profile(max_paced_bps, burst)));
        Rung { method, packet_bytes: 1500, flat_out, paced, tried: Vec::new() }
    }

    #[test]
    fn a_calls_cost_and_a_packets_are_told_apart() {
        // A call takes 5 µs, and 0.4 µs for each packet.
        let bps = |packets: f64| packets * 12_000.0 / (5_000.0 + 400.0 * packets) * 1e9;
        let rungs = [rung("gso", 44, bps(44.0)), rung("sendmmsg", 64, 6e9), rung("send", 1, bps(1.0))];
        let (call_ns, packet_ns) = costs_ns(&rungs);
        assert!((call_ns - 5_000.0).abs() < 1e-6 && (packet_ns - 400.0).abs() < 1e-6, "{call_ns} {packet_ns}");
    }

    #[test]
    fn where_bursts_gain_nothing_a_packet_costs_what_it_costs_alone() {
        assert_eq!(costs_ns(&[rung("send", 1, 1.5e9), rung("sendmmsg", 64, 1.4e9)]), (0.0, 8_000.0));
        assert_eq!(costs_ns(&[rung("send", 1, 1.5e9)]), (0.0, 8_000.0));
        // 3 Gbit/s flat out, and never paced.
        let unpaced = Rung { paced: None, ..rung("send", 1, 1.5e9) };
        assert_eq!(costs_ns(&[unpaced]), (0.0, 8_000.0));
        assert_eq!(costs_ns(&[]), (0.0, 0.0));
    }

    #[test]
    fn the_highest_rate_is_that_of_the_best_way() {
        let rungs = vec![rung("send", 1, 1.5e9), rung("gso", 44, 16e9)];
        let calibration = Calibration { rungs, unsupported: Vec::new() };
        assert!(calibration.pacing().is_some_and(|pacing| (pacing.max_paced_bps - 16e9).abs() < 1.0));
        let unpaced = Rung { paced: None, ..rung("send", 1, 1e9) };
        let calibration = Calibration { rungs: vec![unpaced], unsupported: Vec::new() };
        assert_eq!((calibration.pacing(), calibration.max_paced_bps()), (None, 0.0));
    }
}
