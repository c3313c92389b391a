//! What becomes of an estimate when the listener reports what cannot be used.

mod session;

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bandwidth::control::PROTOCOL;
use bandwidth::control::channel::Channel;
use bandwidth::control::message::{Answer, Ignored, Report, Request};
use bandwidth::transport::{Stream, Transport};
use bandwidth::udp::transport::UdpTransport;
use failure::Failure;
use session::{sender, to};

static GO_ON: AtomicBool = AtomicBool::new(false);
const LIMIT: Duration = Duration::from_secs(20);
const PACKETS: u32 = 10;

/// All of a stream, as a listener would report it.
fn all(packets: u32) -> Report {
    let each = || 0..packets;
    Report {
        received: packets,
        sequences: each().flat_map(u32::to_le_bytes).collect::<Vec<u8>>().into(),
        times: each().flat_map(|packet| (i64::from(packet) * 1000).to_le_bytes()).collect::<Vec<u8>>().into(),
        flags: vec![0; packets as usize].into(),
        resolution_ns: 1,
        ..Report::default()
    }
}

/// A listener that receives nothing and reports everything, and every stream after the first by a rule of its own.
fn listener(rule: impl Fn(Report) -> Report + Send + 'static) -> SocketAddr {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    // So that nothing is refused.
    let udp = std::net::UdpSocket::bind(address).unwrap();
    std::thread::spawn(move || {
        let _udp = udp;
        let mut channel = Channel::over(server.accept().unwrap().0).unwrap();
        let (mut current, mut number) = (0, 0);
        while let Ok(request) = channel.receive(LIMIT, &GO_ON) {
            let answer = match request {
                Request::Hello { .. } => Answer::Welcome {
                    protocol: PROTOCOL,
                    tool_version: "0".into(),
                    token: vec![0; 16].into(),
                    no_kernel_stamps: None,
                    buffer_bytes: 4096,
                },
                Request::Stream { stream, .. } => {
                    (current, number) = (stream, number + 1);
                    Answer::Armed { stream }
                }
                Request::Sent { packets, .. } => {
                    let report = if number == 1 { all(packets) } else { rule(all(packets)) };
                    Answer::Report(Report { stream: current, ..report })
                }
                Request::Bye => return,
            };
            channel.send(&answer, LIMIT, &GO_ON).unwrap();
        }
    });
    address
}

fn stream() -> Stream {
    Stream::at_rate(PACKETS, 200, 16e6)
}

fn failure_of(rule: impl Fn(Report) -> Report + Send + 'static) -> Failure {
    let mut transport = UdpTransport::open(sender(to(listener(rule)))).unwrap();
    transport.send(&stream()).unwrap_err()
}

#[test]
fn a_clock_that_was_stepped_at_the_listener_is_told() {
    let failure = failure_of(|report| Report { stepped_ns: -2_000_000_000, ..report });
    assert!(matches!(failure, Failure::ClockStep { step_ns: -2_000_000_000, .. }), "{failure}");
    assert!(failure.to_string().contains("listener"), "{failure}");
}

#[test]
fn packets_that_the_listeners_own_machine_loses_are_not_the_paths_loss() {
    let lost = |report: Report| Report { overflowed: 4, ..Report { received: PACKETS, ..all(report.received - 4) } };
    let rule = move |report| {
        let mut report = lost(report);
        report.received -= 4;
        report
    };
    let mut transport = UdpTransport::open(sender(to(listener(rule)))).unwrap();
    let failure = transport.send(&stream()).unwrap_err();
    assert!(matches!(failure, Failure::Unsupported(_)), "{failure}");
    let message = failure.to_string();
    assert!(
        message.contains("lost 4 packets") && message.contains("4096 B") && message.contains("rmem_max"),
        "{message}"
    );
    // It was tried three times, and all of them were paid for.
    let tally = transport.tally();
    assert_eq!((tally.repeated, tally.streams, tally.packets), (3, 4, u64::from(8 + 3 * PACKETS)));
}

#[test]
fn a_machine_that_dropped_foreign_packets_only_has_lost_nothing() {
    let ignored = Ignored { stranger: 7, ..Ignored::default() };
    let rule = move |report| Report { overflowed: 4, ignored, ..report };
    let mut transport = UdpTransport::open(sender(to(listener(rule)))).unwrap();
    let observation = transport.send(&stream()).unwrap();
    assert_eq!((observation.lost(), observation.foreign_packets, transport.tally().foreign_packets), (0, 7, 7));
}

#[test]
fn reports_that_contradict_themselves_are_refused() {
    let wrong: [fn(Report) -> Report; 4] = [
        |report| Report { received: report.received + 1, ..report },
        |report| Report { times: vec![0; 3].into(), ..report },
        |report| Report { flags: vec![].into(), ..report },
        |mut report| {
            report.sequences[0] = 200;
            report
        },
    ];
    for rule in wrong {
        let failure = failure_of(rule);
        assert!(matches!(failure, Failure::Protocol(_)), "{failure}");
    }
}
