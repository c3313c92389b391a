//! An estimate over a path that three agents make: one sends, one emulates the link, one listens.

mod controller;

use std::fs::File;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use controller::{Controller, field, integers, ip, map, real, text, unsigned};
use rmpv::Value;

const TOKEN: &str = "00112233445566778899aabbccddeeff";
const NEAR: &str = "10.78.0.1";
const FAR: &str = "10.78.0.2";

/// As the emulated link counts; of 1514 bytes, 1500 are the IP packet's.
const RATE_BPS: f64 = 50e6;

/// Half of a round trip.
const DELAY_NS: u64 = 2_000_000;

/// A machine that is kept from pacing, or from emulating, may spoil some tries.
const TRIES: u64 = 6;

/// An agent in a network namespace of its own.
fn agent_apart() -> Controller {
    Controller::apart(|| drop(std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1")))
}

/// Does something in an agent's namespace.
fn within(agent: &Controller, what: impl FnOnce() + Send) {
    let namespace = File::open(format!("/proc/{}/ns/net", agent.pid())).unwrap();
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: no memory is involved.
            assert_eq!(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) }, 0);
            what();
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// Leaves checksums and segments of an interface to nobody (`ethtool -K NAME tso off gso off tx off`).
fn do_everything_oneself(name: &str) {
    #[repr(C)]
    struct Switch {
        command: u32,
        on: u32,
    }
    const SIOCETHTOOL: libc::c_ulong = 0x8946;
    for command in [0x1f, 0x24, 0x17] {
        let mut switch = Switch { command, on: 0 };
        // SAFETY: a request is plain integers and a pointer, for which zero is a value; the call reads one of each.
        unsafe {
            let mut request: libc::ifreq = std::mem::zeroed();
            for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
                *to = from as libc::c_char;
            }
            request.ifr_ifru.ifru_data = (&raw mut switch).cast();
            let socket = OwnedFd::from_raw_fd(libc::socket(libc::AF_INET, libc::SOCK_DGRAM, 0));
            let answer = libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request);
            assert_eq!(answer, 0, "{}", std::io::Error::last_os_error());
        }
    }
}

/// Sender, emulator and listener, joined by `near` and `far` at the emulator and `eth0` at the others.
fn path() -> [Controller; 3] {
    let [near, link, far] = [agent_apart(), agent_apart(), agent_apart()];
    for (end, name, address) in [(&near, "near", NEAR), (&far, "far", FAR)] {
        let pid = end.pid();
        within(&link, || {
            ip(&format!("link add name {name} type veth peer name eth0 netns {pid}"));
            ip(&format!("link set dev {name} up"));
        });
        within(end, || {
            do_everything_oneself("eth0");
            ip(&format!("address add {address}/24 dev eth0"));
            ip("link set dev eth0 up");
            ip("link set dev lo up");
        });
    }
    [near, link, far]
}

fn start(controller: &mut Controller, id: u64, name: &str, params: Value) -> u64 {
    let started = controller.ask(id, "load_start", &[("name", name.into()), ("params", params)]);
    assert_eq!(text(&started, "type"), "result", "{started}");
    unsigned(&started, "value.load")
}

fn emulation(loss: f64) -> Value {
    map(&[
        ("from", "near".into()),
        ("to", "far".into()),
        ("rate_bps", RATE_BPS.into()),
        ("delay_ns", DELAY_NS.into()),
        ("loss", loss.into()),
        ("queue_bytes", 500_000.into()),
        ("both", true.into()),
        ("cpu", Value::Nil),
        ("fifo", 40.into()),
        ("seed", 1.into()),
    ])
}

#[test]
fn an_estimate_finds_the_rate_of_an_emulated_link() {
    let [mut near, mut link, mut far] = path();
    let emulator = start(&mut link, 1, "link_emulator", emulation(0.0));
    let listening = [("address", FAR.into()), ("port", 8763.into()), ("token", TOKEN.into())];
    let listener = start(&mut far, 1, "bandwidth_listener", map(&listening));
    let params = map(&[
        ("listener", FAR.into()),
        ("port", 8763.into()),
        ("token", TOKEN.into()),
        ("estimator", "kite2".into()),
        ("clock", "hptime".into()),
        ("sleep", "hptime".into()),
        ("pacing", "auto".into()),
        ("instants", 1.into()),
        ("packet_bytes", 1500.into()),
        ("cpu", Value::Nil),
        ("fifo", 50.into()),
        ("lowest_bps", Value::Nil),
        ("highest_bps", 200e6.into()),
    ]);
    let truth_bps = RATE_BPS * 1500.0 / 1514.0;
    let mut errors = Vec::new();
    for id in 2..2 + TRIES {
        near.start_probe(id, "bandwidth", params.clone());
        let answer = near.until_end_of(id).pop().unwrap();
        if text(&answer, "type") == "result" && !field(&answer, "value.outcome").is_nil() {
            errors.push(real(&answer, "value.outcome.estimate.available_bps") / truth_bps - 1.0);
            if errors.last().is_some_and(|error| error.abs() < 0.1) {
                break;
            }
        }
    }
    assert!(errors.last().is_some_and(|error| error.abs() < 0.1), "{errors:?}");
    let heard = far.ask(20, "load_stop", &[("load", listener.into())]);
    let did = link.ask(20, "load_stop", &[("load", emulator.into())]);
    let figure = |name: &str| unsigned(&did, &format!("value.{name}"));
    assert!(figure("forwarded") >= unsigned(&heard, "value.packets") && figure("back.forwarded") > 0, "{did}");
    assert_eq!((figure("dropped_offloaded"), figure("dropped_loss"), figure("missed")), (0, 0, 0), "{did}");
    let counted: i64 = integers(&did, "value.lateness.counts").iter().sum();
    assert_eq!((text(&did, "value.lateness.unit"), counted as u64), ("ns", figure("lateness.n")));
    assert_eq!(counted as u64, figure("forwarded") + figure("back.forwarded"));
    assert!(figure("lateness.p50_ns") <= figure("lateness.p99_ns") && figure("cpu_ns") > 0);
    assert!(field(&did, "value.error").is_nil() && matches!(text(&did, "value.port"), "af_xdp" | "af_packet"));
}

#[test]
fn a_link_that_loses_everything_lets_nothing_pass_and_a_wrong_one_is_refused() {
    let [near, mut link, _far] = path();
    let emulator = start(&mut link, 1, "link_emulator", emulation(1.0));
    within(&near, || {
        // Who has the address is asked over the link first, and nobody hears it.
        UdpSocket::bind(format!("{NEAR}:0")).unwrap().send_to(b"anybody?", format!("{FAR}:9")).unwrap();
    });
    std::thread::sleep(Duration::from_millis(1500));
    let did = link.ask(2, "load_stop", &[("load", emulator.into())]);
    assert!(unsigned(&did, "value.dropped_loss") > 0, "{did}");
    assert_eq!(unsigned(&did, "value.forwarded"), 0, "{did}");
    assert!(field(&did, "value.lateness").is_nil(), "{did}");
    let refused = |id: u64, controller: &mut Controller, change: (&str, Value)| {
        let Value::Map(mut fields) = emulation(0.0) else { panic!() };
        fields.iter_mut().find(|(name, _)| name.as_str() == Some(change.0)).unwrap().1 = change.1;
        let params = [("name", "link_emulator".into()), ("params", Value::Map(fields))];
        let answer = controller.ask(id, "load_start", &params);
        (text(&answer, "code").to_owned(), text(&answer, "message").to_owned())
    };
    for (id, change, named) in [
        (3, ("both", 1.into()), "params.both: invalid type: integer `1`, expected a boolean"),
        (4, ("loss", 1.5.into()), "params.loss: 1.5; accepted: a number from 0 to 1"),
        (5, ("rate_bps", 0.into()), "params.rate_bps: 0; accepted: a number from 1000 to"),
        (6, ("queue_bytes", 0.into()), "params.queue_bytes: 0"),
    ] {
        let (code, message) = refused(id, &mut link, change);
        assert!(code == "bad-request" && message.starts_with(named), "{code}: {message}");
    }
    let (code, message) = refused(7, &mut link, ("to", "nowhere".into()));
    assert!(code == "unsupported" && message.contains("nowhere"), "{code}: {message}");
    // The machine's own network.
    let (code, message) = refused(1, &mut Controller::greeted(), ("seed", 1.into()));
    assert!(code == "unsupported" && message.contains("namespace"), "{code}: {message}");
}
