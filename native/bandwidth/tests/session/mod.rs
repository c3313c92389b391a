//! A listener on a thread of its own, senders to it, and network namespaces between them, which live as long as the thread
//! that made them and its children.

#![allow(dead_code, unreachable_pub, reason = "each test program includes it and uses its own part")]

#[path = "../../../tries.rs"]
pub mod tries;

use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use bandwidth::control::client;
use bandwidth::control::listener::{Event, Listener, Settings};
use bandwidth::control::token::Token;
use bandwidth::pacing::placement::Placement;
use bandwidth::pacing::timing::{ClockChoice, SleepChoice, Waiter};
use bandwidth::udp::receiving::Stamps;
use bandwidth::udp::transport::{self, UdpTransport};
use failure::Failure;

/// A listener, ended when it is dropped.
pub struct Listening {
    pub address: SocketAddr,
    stop: Arc<AtomicBool>,
    events: Arc<Mutex<Vec<Event>>>,
    thread: Option<JoinHandle<Result<(), Failure>>>,
}

pub fn settings(address: &str) -> Settings {
    Settings {
        address: address.parse().unwrap(),
        port: 0,
        secret: None,
        stamps: Stamps::Kernel,
        placement: Placement::default(),
        sessions: None,
    }
}

impl Listening {
    /// In the calling thread's namespace, or in another.
    pub fn start(settings: Settings, namespace: Option<File>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let events: Arc<Mutex<Vec<Event>>> = Arc::default();
        let (tell, told) = std::sync::mpsc::channel();
        let (thread_stop, thread_events) = (Arc::clone(&stop), Arc::clone(&events));
        let thread = std::thread::spawn(move || {
            if let Some(namespace) = namespace {
                enter(&namespace);
            }
            let listener = Listener::bind(settings)?;
            tell.send(listener.address()).unwrap();
            listener.serve(&thread_stop, &|event| thread_events.lock().unwrap().push(event.clone()))
        });
        Self { address: told.recv().unwrap(), stop, events, thread: Some(thread) }
    }

    pub fn on_loopback() -> Self {
        Self::start(settings("127.0.0.1"), None)
    }

    /// Ends it; what happened.
    pub fn end(mut self) -> Vec<Event> {
        self.finish();
        self.events.lock().unwrap().clone()
    }

    pub fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap().clone()
    }

    fn finish(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap().unwrap();
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.finish();
        }
    }
}

/// How to reach a listener.
pub fn to(address: SocketAddr) -> client::Settings {
    client::Settings { host: address.ip().to_string(), port: address.port(), secret: None, cancel: Arc::default() }
}

/// How to send to it, by the system's clock and hptime's sleep.
pub fn sender(listener: client::Settings) -> transport::Settings {
    let waiter = Waiter::new(ClockChoice::System, SleepChoice::Hptime, None);
    transport::Settings { listener, waiter, placement: Placement::default(), method: None, pacing: None }
}

pub fn open(address: SocketAddr) -> UdpTransport {
    UdpTransport::open(sender(to(address))).unwrap()
}

/// The same once the listener has heard that the sender before has finished, and its port of probes is closed in a process,
/// too, that another test was about to start.
pub fn patiently(settings: &transport::Settings) -> UdpTransport {
    let begun = std::time::Instant::now();
    loop {
        match UdpTransport::open(settings.clone()) {
            Ok(transport) => return transport,
            Err(failure) => {
                let (said, early) = (failure.to_string(), begun.elapsed().as_secs() < 10);
                assert!(early && (said.contains("another sender") || said.contains("is in use")), "{failure}");
            }
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

pub fn secret() -> Token {
    Token::random().unwrap()
}

/// Moves the calling thread into a new network namespace; what it starts from now on is there, too.
pub fn enter_new() -> File {
    // SAFETY: no memory is involved.
    let answer = unsafe { libc::unshare(libc::CLONE_NEWNET) };
    let error = std::io::Error::last_os_error();
    assert_eq!(answer, 0, "these tests make network namespaces and must run as root: {error}");
    let own = File::open("/proc/thread-self/ns/net").unwrap();
    run("ip link set dev lo up");
    own
}

/// Moves the calling thread into a namespace that was made before.
pub fn enter(namespace: &File) {
    // SAFETY: no memory is involved.
    assert_eq!(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) }, 0);
}

/// Runs a program in the calling thread's namespace.
pub fn run(command: &str) {
    let mut words = command.split_whitespace();
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Address of the sending end of [`pair`].
pub const NEAR: &str = "10.77.0.1";

/// Address of the listening end.
pub const FAR: &str = "10.77.0.2";

/// Two namespaces joined by a virtual pair, `near` and `far`; the calling thread is in the first.  The other is returned.
pub fn pair() -> File {
    let far = std::thread::spawn(enter_new).join().unwrap();
    enter_new();
    let descriptor = far.as_raw_fd();
    let own = std::process::id();
    run(&format!("ip link add name near type veth peer name far netns /proc/{own}/fd/{descriptor}"));
    run(&format!("ip address add {NEAR}/24 dev near"));
    run("ip link set dev near up");
    within(&far, || {
        run(&format!("ip address add {FAR}/24 dev far"));
        run("ip link set dev far up");
    });
    far
}

/// Does something in another namespace, on a thread of its own.
pub fn within<T: Send>(namespace: &File, what: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            enter(namespace);
            what()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Does something on a thread of its own, whose namespaces end with it.
pub fn apart<T: Send>(what: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| scope.spawn(what).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
}
