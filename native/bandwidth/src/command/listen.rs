//! `listen`.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, Ordering};

use bandwidth::control::PORT;
use bandwidth::control::listener::{Listener, Settings};
use bandwidth::pacing::timing::ClockChoice;
use bandwidth::udp::receiving::Stamps;

use super::arguments::Arguments;
use super::{Error, say, sending, told_to_end};

const OPTIONS: [&str; 8] = ["address", "port", "token", "stamps", "clock", "cpu", "fifo", "sessions"];

pub(crate) fn run(words: Vec<String>) -> Result<(), Error> {
    let arguments = Arguments::of(words, &OPTIONS)?;
    arguments.rest(0)?;
    let clock = arguments.or("clock", ClockChoice::System)?;
    let stamps = match arguments.or("stamps", "kernel".to_owned())?.as_str() {
        "kernel" => Stamps::Kernel,
        "program" => Stamps::Program(clock),
        other => return Err(Error::Usage(format!("--stamps {other}: accepted are kernel and program"))),
    };
    let listener = Listener::bind(Settings {
        address: arguments.or("address", IpAddr::V4(Ipv4Addr::UNSPECIFIED))?,
        port: arguments.or("port", PORT)?,
        secret: sending::token(&arguments)?,
        stamps,
        placement: sending::placement(&arguments)?,
        sessions: arguments.maybe("sessions")?,
    })?;
    let stop = told_to_end();
    let unheard = AtomicBool::new(false);
    listener.serve(&stop, &|event| {
        if say(event).is_err() {
            // Whoever started it is gone.
            unheard.store(true, Ordering::Relaxed);
            stop.store(true, Ordering::Relaxed);
        }
    })?;
    if unheard.load(Ordering::Relaxed) { Err(Error::Unheard) } else { Ok(()) }
}
