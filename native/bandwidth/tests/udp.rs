//! Streams over real sockets: on loopback, and over a virtual pair between two namespaces.

mod session;

use std::sync::atomic::Ordering;

use bandwidth::pacing::timing::{ClockChoice, SleepChoice, Waiter};
use bandwidth::transport::{Observation, Spacing, Stamp, Stream, Transport};
use bandwidth::udp::handover::Method;
use bandwidth::udp::receiving::Stamps;
use bandwidth::udp::transport::{Settings, UdpTransport};
use failure::Failure;
use session::{Listening, open, sender, settings, to};

/// Every packet came, once and in order, was stamped by the kernel, and did not leave before its time.
fn assert_complete(observation: &Observation) {
    let stream = &observation.stream;
    assert_eq!(observation.sent.len(), stream.packets as usize);
    assert_eq!(
        (observation.lost(), observation.refused(), observation.reordered(), observation.duplicates),
        (0, 0, 0, 0)
    );
    assert_eq!(observation.received.len(), stream.packets as usize);
    assert!(observation.sent.iter().all(|sent| sent.actual_ns >= sent.planned_ns));
    assert!(observation.received.windows(2).all(|pair| pair[0].at_ns <= pair[1].at_ns));
}

fn coalesced(observation: &Observation) -> usize {
    observation.received.iter().filter(|received| received.coalesced).count()
}

/// The listener's clock is this machine's, so that a packet cannot have come before it left.
fn assert_delays_are_possible(observation: &Observation) {
    for received in &observation.received {
        let sent = &observation.sent[received.sequence as usize];
        let delay_ns = received.at_ns - sent.actual_ns;
        assert!((-20_000..10_000_000_000).contains(&delay_ns), "{delay_ns}");
    }
}

#[test]
fn a_stream_is_sent_and_told_packet_by_packet() {
    let listening = Listening::on_loopback();
    let mut transport = open(listening.address);
    for packet_bytes in [64, 200, 1500, 9000] {
        let observation = transport.send(&Stream::at_rate(200, packet_bytes, 40e6)).unwrap();
        assert_complete(&observation);
        assert_delays_are_possible(&observation);
        assert!(observation.received.iter().all(|received| received.stamp == Stamp::Kernel));
        assert_eq!((coalesced(&observation), observation.resolution_ns), (0, 1));
        assert_eq!(observation.bytes(), 200 * u64::from(packet_bytes));
    }
    assert_eq!((transport.tally().streams, transport.tally().packets), (5, 808));
}

#[test]
fn bursts_are_divided_by_the_kernel_and_marked_as_one_piece() {
    let listening = Listening::on_loopback();
    for method in [None, Some(Method::Gso)] {
        let mut transport = session::patiently(&Settings { method, ..sender(to(listening.address)) });
        assert_eq!((transport.method(), transport.method_reason()), (Method::Gso, None));
        // 64 packets of 1500 B do not fit into one message; the last burst is shorter.
        let observation = transport.send(&Stream::at_rate(600, 1500, 200e6).in_bursts_of(64)).unwrap();
        assert_complete(&observation);
        // 44 and 20 of each 64: all but the first of each piece, and of the last burst of 24 all but one.
        assert_eq!(coalesced(&observation), 9 * 62 + 23);
        transport.close();
    }
}

#[test]
fn every_way_of_sending_sends_the_same() {
    let listening = Listening::on_loopback();
    let mut transport =
        UdpTransport::open(Settings { method: Some(Method::Sendmmsg), ..sender(to(listening.address)) }).unwrap();
    let observation = transport.send(&Stream::at_rate(500, 1500, 200e6).in_bursts_of(16)).unwrap();
    assert_complete(&observation);
    let stream = Stream::at_rate(3000, 700, 100e6).in_bursts_of(8);
    for method in Method::ALL {
        let (transmission, report) = transport.pace(&stream, method).unwrap();
        assert_eq!((transmission.sent.len(), report.received, report.times.len()), (3000, 3000, 0), "{method}");
    }
}

#[test]
fn the_receiver_may_stamp_itself_and_says_so() {
    for clock in [ClockChoice::System, ClockChoice::Gettimeofday, ClockChoice::Hptime] {
        let listening = Listening::start(
            bandwidth::control::listener::Settings { stamps: Stamps::Program(clock), ..settings("127.0.0.1") },
            None,
        );
        let mut transport = open(listening.address);
        assert!(transport.session().no_kernel_stamps.as_ref().is_some_and(|reason| reason.contains("told to")));
        let observation = transport.send(&Stream::at_rate(100, 500, 4e6)).unwrap();
        assert_complete(&observation);
        assert_delays_are_possible(&observation);
        assert!(observation.received.iter().all(|received| received.stamp == Stamp::Program));
        assert_eq!(observation.resolution_ns, clock.resolution_ns());
    }
}

#[test]
fn clock_and_sleep_are_exchanged_without_changing_what_is_sent() {
    let listening = Listening::on_loopback();
    for (_, clock) in ClockChoice::NAMES {
        for (_, sleep) in SleepChoice::NAMES {
            let waiter = Waiter::new(clock, sleep, None);
            let mut transport = session::patiently(&Settings { waiter, ..sender(to(listening.address)) });
            for spacing in [Spacing::Absolute, Spacing::AfterPrevious] {
                let stream = Stream { spacing, ..Stream::at_rate(50, 1000, 16e6) };
                let observation = transport.send(&stream).unwrap();
                assert_complete(&observation);
                let planned: Vec<i64> = observation.sent.iter().map(|sent| sent.planned_ns).collect();
                match spacing {
                    Spacing::Absolute => assert_eq!(planned[49] - planned[0], 49 * 500_000),
                    Spacing::AfterPrevious => assert_eq!(planned[49] - observation.sent[48].actual_ns, 500_000),
                }
            }
            transport.rest(1_000_000).unwrap();
            transport.close();
        }
    }
}

#[test]
fn ipv6_has_longer_headers_and_works_as_well() {
    let listening = Listening::start(settings("::1"), None);
    let mut transport = open(listening.address);
    assert_eq!(transport.limits().shortest_bytes, 84);
    for packet_bytes in [84, 1500] {
        assert_complete(&transport.send(&Stream::at_rate(100, packet_bytes, 40e6)).unwrap());
    }
    assert!(matches!(transport.send(&Stream::at_rate(1, 83, 1e6)), Err(Failure::Invalid(_))));
}

#[test]
fn streams_beyond_the_limits_are_refused_before_anything_is_sent() {
    let listening = Listening::on_loopback();
    let mut transport = open(listening.address);
    let limits = transport.limits();
    assert_eq!((limits.shortest_bytes, limits.longest_bytes, limits.most_burst), (64, 9000, 64));
    let even = Stream::at_rate(10, 1500, 1e8);
    let before = transport.tally();
    for wrong in [
        Stream { packet_bytes: 63, ..even },
        Stream { packet_bytes: 9001, ..even },
        Stream { packets: 0, ..even },
        Stream { packets: limits.most_packets + 1, ..even },
        Stream { burst: 0, ..even },
        Stream { burst: 65, ..even },
        Stream { gap_ps: 10_000_000_000_000, ..even },
    ] {
        let failure = transport.send(&wrong).unwrap_err();
        assert!(matches!(failure, Failure::Invalid(_)), "{wrong:?}: {failure}");
    }
    assert_eq!(transport.tally(), before);
    assert_complete(&transport.send(&even).unwrap());
}

#[test]
fn an_end_that_is_asked_for_comes_during_a_stream_and_during_a_rest() {
    let listening = Listening::on_loopback();
    let settings = sender(to(listening.address));
    let cancel = std::sync::Arc::clone(&settings.listener.cancel);
    let mut transport = UdpTransport::open(settings).unwrap();
    std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(50));
        cancel.store(true, Ordering::Relaxed);
    });
    // 30 seconds.
    let cancelled = transport.send(&Stream::at_rate(30_000, 100, 800e3));
    assert!(matches!(cancelled, Err(Failure::Cancelled)));
    assert!(matches!(transport.rest(60_000_000_000), Err(Failure::Cancelled)));
}

#[test]
fn a_virtual_pair_carries_streams_up_to_its_mtu() {
    session::apart(|| {
        let far = session::pair();
        let listening = Listening::start(settings(session::FAR), Some(far));
        let mut transport = open(listening.address);
        assert_eq!(transport.limits().longest_bytes, 1500);
        assert_complete(&transport.send(&Stream::at_rate(300, 1500, 100e6)).unwrap());
        let bursts = transport.send(&Stream::at_rate(440, 1500, 200e6).in_bursts_of(44)).unwrap();
        assert_complete(&bursts);
        let failure = transport.send(&Stream::at_rate(10, 1501, 1e8)).unwrap_err();
        assert!(matches!(failure, Failure::Unsupported(_)) && failure.to_string().contains("MTU"), "{failure}");
    });
}

#[test]
fn a_shaper_on_the_way_pulls_packets_apart_and_what_it_drops_is_lost() {
    session::apart(|| {
        let far = session::pair();
        // 50 Mbit/s, and room for some 60 packets.
        session::run("tc qdisc add dev near root tbf rate 50mbit burst 3200 limit 90000");
        let listening = Listening::start(settings(session::FAR), Some(far));
        let mut transport = open(listening.address);
        let observation = transport.send(&Stream::at_rate(50, 1500, 100e6)).unwrap();
        assert_complete(&observation);
        let spread_ns = observation.received[49].at_ns - observation.received[9].at_ns;
        // 40 packets of 1514 B, as the shaper counts.
        let shaped_ns = 40.0 * 1514.0 * 8.0 / 50e6 * 1e9;
        assert!(spread_ns as f64 > 0.95 * shaped_ns, "{spread_ns}");
        let flooded = transport.send(&Stream::at_rate(1000, 1500, 400e6)).unwrap();
        assert!((500..950).contains(&(flooded.lost() + flooded.refused())), "{}", flooded.lost());
    });
}

#[test]
fn probes_that_a_firewall_keeps_back_are_told_from_a_host_that_is_down() {
    session::apart(|| {
        let far = session::pair();
        // The far end looks up all but UDP as before.
        session::within(&far, || {
            session::run("ip rule del pref 0");
            session::run("ip rule add pref 100 lookup local");
            session::run("ip rule add pref 10 ipproto udp blackhole");
        });
        let listening = Listening::start(settings(session::FAR), Some(far));
        let failure = UdpTransport::open(sender(to(listening.address))).err().unwrap();
        let message = failure.to_string();
        assert!(
            matches!(failure, Failure::Unsupported(_)) && message.contains("UDP") && message.contains("firewall"),
            "{message}"
        );
    });
}
