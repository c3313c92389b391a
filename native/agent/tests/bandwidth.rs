//! The probe `bandwidth` with its listener and its cross traffic, all of one agent, on the loopback.

mod controller;

use std::net::{TcpListener, UdpSocket};
use std::time::{Duration, Instant};

use controller::{Controller, field, free_port, integers, map, real, text, unsigned};
use rmpv::Value;

const TOKEN: &str = "00112233445566778899aabbccddeeff";

/// A machine that is kept from pacing may refuse some tries.
const TRIES: u64 = 6;

fn with_changes(mut fields: Vec<(&'static str, Value)>, changes: &[(&'static str, Value)]) -> Value {
    for (name, value) in changes {
        fields.iter_mut().find(|(field, _)| field == name).unwrap().1 = value.clone();
    }
    map(&fields)
}

/// Up to 40 Mbit/s: what a busy machine paces, too.
fn probe(port: u16, changes: &[(&'static str, Value)]) -> Value {
    let fields = vec![
        ("listener", "127.0.0.1".into()),
        ("port", port.into()),
        ("token", TOKEN.into()),
        ("estimator", "kite2".into()),
        ("settings", map(&[("fewest_packets", 40.into())])),
        ("clock", "hptime".into()),
        ("sleep", "hptime".into()),
        ("pacing", "auto".into()),
        ("instants", 2.into()),
        ("packet_bytes", 1500.into()),
        ("cpu", Value::Nil),
        ("fifo", Value::Nil),
        ("lowest_bps", Value::Nil),
        ("highest_bps", 40e6.into()),
    ];
    with_changes(fields, changes)
}

fn listener(port: u16) -> Value {
    map(&[("address", "127.0.0.1".into()), ("port", port.into()), ("token", TOKEN.into())])
}

fn crossing(destination: &str, changes: &[(&'static str, Value)]) -> Value {
    let fields = vec![
        ("destination", destination.into()),
        ("rate_bps", 4e6.into()),
        ("packet_bytes", 500.into()),
        ("kind", "poisson".into()),
        ("cpu", Value::Nil),
        ("fifo", Value::Nil),
        ("seed", 3.into()),
    ];
    with_changes(fields, changes)
}

fn start(controller: &mut Controller, id: u64, name: &str, params: Value) -> u64 {
    let started = controller.ask(id, "load_start", &[("name", name.into()), ("params", params)]);
    assert_eq!(text(&started, "type"), "result", "{started}");
    unsigned(&started, "value.load")
}

fn answer(controller: &mut Controller, id: u64, params: Value) -> Value {
    controller.start_probe(id, "bandwidth", params);
    controller.until_end_of(id).pop().unwrap()
}

#[test]
fn an_estimate_says_what_it_found_what_it_cost_and_how_it_kept_its_time() {
    let mut controller = Controller::greeted();
    let port = free_port();
    let load = start(&mut controller, 1, "bandwidth_listener", listener(port));
    let mut sessions = 0;
    let result = (2..2 + TRIES).find_map(|id| {
        sessions += 1;
        let answer = answer(&mut controller, id, probe(port, &[("pacing", "sendmmsg".into())]));
        let estimated = text(&answer, "type") == "result" && !field(&answer, "value.outcome").is_nil();
        estimated.then_some(answer)
    });
    let result = result.expect("no try paced 40 Mbit/s");
    for (name, expected) in [("estimator", "kite2"), ("clock", "hptime"), ("sleep", "hptime"), ("method", "sendmmsg")] {
        assert_eq!(text(&result, &format!("value.{name}")), expected);
    }
    assert_eq!(text(&result, "value.stamp"), "kernel");
    let available_bps = real(&result, "value.outcome.estimate.available_bps");
    assert!(0.0 < available_bps && available_bps <= 40e6 * 1.001, "{available_bps}");
    let instants = field(&result, "value.outcome.instants").as_array().unwrap();
    assert_eq!(instants.len(), 2);
    let sum = |figure: &str| instants.iter().map(|instant| unsigned(instant, figure)).sum::<u64>();
    assert_eq!(sum("bytes"), unsigned(&result, "value.outcome.bytes"));
    assert_eq!(sum("discarded"), unsigned(&result, "value.outcome.discarded"));
    assert!(sum("streams") >= 4 && sum("duration_ns") <= unsigned(&result, "value.outcome.duration_ns"));
    for (distribution, unit) in [("gaps", "permille"), ("lateness", "ns")] {
        let path = |name: &str| format!("value.{distribution}.{name}");
        assert_eq!(text(&result, &path("unit")), unit);
        let counted: i64 = integers(&result, &path("counts")).iter().sum();
        assert_eq!(counted as u64, unsigned(&result, &path("n")));
        assert!(counted >= 50, "{counted}");
    }
    assert!(real(&result, "value.gaps.mean") > 500.0);
    assert!(field(&result, "value.refusal").is_nil() && field(&result, "value.load").is_nil());
    assert!(unsigned(&result, "value.usage.cpu_ns") > 0);
    let stopped = controller.ask(20, "load_stop", &[("load", load.into())]);
    assert_eq!(unsigned(&stopped, "value.sessions"), sessions, "{stopped}");
    assert!(unsigned(&stopped, "value.packets") >= unsigned(&result, "value.tally.packets"));
    assert_eq!((unsigned(&stopped, "value.refused"), field(&stopped, "value.error").is_nil()), (0, true));
}

#[test]
fn a_rate_that_the_guest_cannot_pace_is_a_result_of_its_own() {
    let mut controller = Controller::greeted();
    let port = free_port();
    start(&mut controller, 1, "bandwidth_listener", listener(port));
    let rates = [("lowest_bps", 9e11.into()), ("highest_bps", 1e12.into())];
    let result = answer(&mut controller, 2, probe(port, &rates));
    assert_eq!(text(&result, "type"), "result", "{result}");
    assert!(field(&result, "value.outcome").is_nil());
    let max_paced_bps = real(&result, "value.refusal.max_paced_bps");
    assert!(max_paced_bps < 9e11, "{max_paced_bps}");
    let message = text(&result, "value.refusal.message");
    assert!(
        message.contains("cannot pace") && message.contains(&format!("{:.1} Mbit/s", max_paced_bps / 1e6)),
        "{message}"
    );
}

#[test]
fn a_listener_that_is_not_there_another_program_and_a_wrong_token_are_told_apart() {
    let mut controller = Controller::greeted();
    let port = free_port();
    let nobody = answer(&mut controller, 1, probe(port, &[]));
    assert_eq!(text(&nobody, "code"), "peer-lost", "{nobody}");
    assert!(text(&nobody, "message").contains("nothing listens"), "{nobody}");
    start(&mut controller, 2, "bandwidth_listener", listener(port));
    let stranger = answer(&mut controller, 3, probe(port, &[("token", "f".repeat(32).into())]));
    assert_eq!(text(&stranger, "code"), "bad-request", "{stranger}");
    assert!(text(&stranger, "message").contains("token"), "{stranger}");
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = other.local_addr().unwrap().port();
    let answering = std::thread::spawn(move || {
        let (mut connection, _) = other.accept().unwrap();
        std::io::Write::write_all(&mut connection, b"SSH-2.0-OpenSSH_9.2\r\n").unwrap();
        connection
    });
    let other = answer(&mut controller, 4, probe(port, &[]));
    drop(answering.join());
    assert_eq!(text(&other, "code"), "peer-version", "{other}");
}

#[test]
fn a_listener_that_vanishes_and_a_cancelled_probe_end_an_estimate_at_once() {
    let mut controller = Controller::greeted();
    let port = free_port();
    // Trains that last for a minute each, so that nothing else ends it.
    let slow = [("estimator", "yaz-original".into()), ("settings", map(&[])), ("instants", 10_000.into())];
    let slow = [&slow[..], &[("highest_bps", Value::Nil)]].concat();
    for (id, code) in [(10, "peer-lost"), (20, "cancelled")] {
        let load = start(&mut controller, id, "bandwidth_listener", listener(port));
        controller.start_probe(id + 1, "bandwidth", probe(port, &slow));
        assert_eq!(text(&controller.receive(), "type"), "started");
        // It listens at its port of UDP as long as there is a session.
        let (begun, port_of_udp) = (Instant::now(), format!(":{port:04X} "));
        while !std::fs::read_to_string("/proc/net/udp").unwrap().contains(&port_of_udp) {
            assert!(begun.elapsed() < controller::PATIENCE);
            std::thread::sleep(Duration::from_millis(10));
        }
        if code == "cancelled" {
            controller.send("cancel", &[("id", (id + 2).into()), ("target", (id + 1).into())]);
            let ended = controller.until_end_of(id + 1).pop().unwrap();
            assert_eq!(text(&ended, "code"), code, "{ended}");
            assert_eq!(text(&controller.ask(id + 3, "load_stop", &[("load", load.into())]), "type"), "result");
        } else {
            controller.send("load_stop", &[("id", (id + 2).into()), ("load", load.into())]);
            let ended = controller.until_end_of(id + 1).pop().unwrap();
            assert_eq!(text(&ended, "code"), code, "{ended}");
            assert!(text(&ended, "message").contains("start it anew"), "{ended}");
        }
    }
}

#[test]
fn cross_traffic_that_is_said_to_have_been_sent_has_come() {
    let mut controller = Controller::greeted();
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let to = receiver.local_addr().unwrap().to_string();
    // A hundred a second, which wait at the socket however long this machine pauses.
    let load = start(&mut controller, 1, "cross_traffic", crossing(&to, &[("rate_bps", 4e5.into())]));
    let mut came = 0;
    while came < 20 {
        assert_eq!(receiver.recv(&mut [0; 1500]).unwrap(), 500 - 28);
        came += 1;
    }
    let stopped = controller.ask(2, "load_stop", &[("load", load.into())]);
    let packets = unsigned(&stopped, "value.packets");
    receiver.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    while receiver.recv(&mut [0; 1500]).is_ok_and(|length| length == 500 - 28) {
        came += 1;
    }
    assert_eq!((packets, unsigned(&stopped, "value.refused")), (came, 0), "{stopped}");
    assert_eq!(unsigned(&stopped, "value.bytes"), 500 * packets);
    assert!(unsigned(&stopped, "value.elapsed_ns") >= 50_000_000 && field(&stopped, "value.error").is_nil());
}

#[test]
fn what_is_not_accepted_is_named() {
    let mut controller = Controller::greeted();
    let wrong: [(&str, Value, &str); 9] = [
        ("listener", "localhost".into(), "invalid IPv4 address"),
        ("port", 0.into(), "params.port: 0"),
        ("token", "12".into(), "32 hexadecimal digits"),
        ("estimator", "pathload".into(), "yaz-original, kite2"),
        ("settings", map(&[("speed", 1.into())]), "unknown field `speed`"),
        ("pacing", "dpdk".into(), "accepted are send, sendmmsg, gso"),
        ("packet_bytes", 63.into(), "64 to 9000"),
        ("instants", 0.into(), "1 to 10000"),
        ("fifo", 100.into(), "1 to 99"),
    ];
    for (id, (field, value, named)) in (1..).zip(wrong) {
        let answer = answer(&mut controller, id, probe(1, &[(field, value)]));
        assert_eq!(text(&answer, "code"), "bad-request", "{answer}");
        assert!(text(&answer, "message").contains(named), "{answer}");
    }
    let mut refused = |id: u64, name: &str, params: Value| {
        let answer = controller.ask(id, "load_start", &[("name", name.into()), ("params", params)]);
        (text(&answer, "code").to_owned(), text(&answer, "message").to_owned())
    };
    let (code, message) = refused(30, "cross_traffic", crossing("10.0.0.1", &[]));
    assert_eq!(
        (code.as_str(), message.starts_with("params.destination: \"10.0.0.1\" is not accepted")),
        ("bad-request", true),
        "{message}"
    );
    let (code, message) = refused(31, "cross_traffic", crossing("127.0.0.1:9", &[("cpu", 1023.into())]));
    assert_eq!((code.as_str(), message.contains("processor 1023")), ("unsupported", true), "{message}");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let (code, message) = refused(32, "bandwidth_listener", listener(taken.local_addr().unwrap().port()));
    assert_eq!((code.as_str(), message.contains("in use")), ("unsupported", true), "{message}");
}
