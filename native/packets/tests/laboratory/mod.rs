//! Network namespaces for tests.  They live as long as the thread that made them and its children.

#![allow(dead_code, unreachable_pub, reason = "each test program includes it and uses its own part")]

use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;

use hptime::{Clock, Sleeper};
use packets::frame::Flow;
use packets::port::Kind;
use packets::schedule::Pace;
use packets::transmission::Timed;
use packets::trial::{Outcome, Settings, Trial};

static CLOCK: Clock = Clock::new();
pub static SLEEPER: Sleeper<'static> = Sleeper::new(&CLOCK);

/// Moves the calling thread into a new network namespace; what it starts from now on is there, too.
pub fn enter_new_namespace() -> File {
    // SAFETY: no memory is involved.
    let answer = unsafe { libc::unshare(libc::CLONE_NEWNET) };
    assert_eq!(
        answer,
        0,
        "these tests make network namespaces and must run as root: {}",
        std::io::Error::last_os_error()
    );
    for name in ["all", "default"] {
        std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1").ok();
    }
    File::open("/proc/thread-self/ns/net").unwrap()
}

/// Moves the calling thread into a namespace that was made before.
pub fn enter(namespace: &File) {
    // SAFETY: no memory is involved.
    assert_eq!(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) }, 0);
}

/// Has an interface polled, so that its peer can send it XDP frames (`ethtool -K NAME gro on`).
pub fn offload_receiving(name: &str) {
    #[repr(C)]
    struct Value {
        command: u32,
        data: u32,
    }
    const SET_GRO: u32 = 0x2c;
    const SIOCETHTOOL: libc::c_ulong = 0x8946;
    let mut value = Value { command: SET_GRO, data: 1 };
    // SAFETY: a request is plain integers and a pointer, for which zero is a value; the call reads one of each.
    unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_data = (&raw mut value).cast();
        let socket = OwnedFd::from_raw_fd(libc::socket(libc::AF_INET, libc::SOCK_DGRAM, 0));
        let answer = libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request);
        assert_eq!(answer, 0, "{}", std::io::Error::last_os_error());
    }
}

/// What a program prints in the calling thread's namespace.
pub fn said(command: &str) -> String {
    let mut words = command.split_whitespace();
    String::from_utf8(Command::new(words.next().unwrap()).args(words).output().unwrap().stdout).unwrap()
}

/// Runs a program in the calling thread's namespace.
pub fn run(command: &str) {
    let mut words = command.split_whitespace();
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A pair of interfaces, up, in the calling thread's namespace.
pub fn pair(one: &str, other: &str) {
    run(&format!("ip link add name {one} type veth peer name {other}"));
    run(&format!("ip link set dev {one} up"));
    run(&format!("ip link set dev {other} up"));
}

/// Flows to a host that nobody is, so that no kernel answers.
pub fn flow(number: u8, destination_mac: [u8; 6]) -> Flow {
    Flow {
        source_mac: [2, 0, 0, 0, 0, 1],
        destination_mac,
        source: Ipv4Addr::new(10, 0, 0, 1),
        destination: Ipv4Addr::new(10, 1, number, 2),
    }
}

/// A trial from `tx` to `rx` of three flows in shares 1 : 2 : 5.
pub fn settings(port: Option<Kind>, length: usize, pace: Pace) -> Settings {
    let mac = [2, 0, 0, 0, 0, 2];
    Settings {
        port,
        transmit: "tx".into(),
        receive: "rx".into(),
        flows: vec![(flow(0, mac), 1.0), (flow(1, mac), 2.0), (flow(2, mac), 5.0)],
        length,
        pace,
        timed: Timed::All,
        give_up_ns: 20_000_000_000,
        drain_ns: 100_000_000,
        tx_cpu: None,
        rx_cpu: None,
        seed: 5,
    }
}

/// Carries out a trial.
pub fn outcome(settings: Settings) -> Outcome {
    let trial = Trial::open(settings, &SLEEPER).unwrap();
    trial.run(|_| Ok::<(), failure::Failure>(())).unwrap()
}

/// Frames received of each flow.
pub fn received(outcome: &Outcome) -> Vec<u64> {
    outcome.analyser.flows().iter().map(|tally| tally.received).collect()
}
