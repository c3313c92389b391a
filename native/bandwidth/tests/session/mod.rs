//! A listener on a thread of its own, and senders to it.

#![allow(dead_code, unreachable_pub, reason = "each test program includes it and uses its own part")]

use std::fs::File;
use std::net::SocketAddr;
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
                crate::namespaces::enter(&namespace);
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
