//! Measures a port by itself, for `benchmarks/packets_ports.py`:
//!
//!     tester send PORT INTERFACE DESTINATION_MAC RATE_PPS SECONDS CPU
//!     tester loop PORT TRANSMIT RECEIVE DESTINATION_MAC RATE_PPS SECONDS TX_CPU RX_CPU
//!     tester drop INTERFACE
//!
//! `send` does not receive; `loop` is a whole trial; `drop` has an XDP program drop all that comes to an interface, until
//! its standard input is closed.  Rate 0 is as fast as possible.  Frames have 64 bytes.  The answer is one line of JSON.

use std::env;
use std::io::Read;
use std::net::Ipv4Addr;
use std::process::ExitCode;

use failure::Failure;
use hptime::{Clock, Sleeper};
use packets::frame::Flow;
use packets::histogram::Histogram;
use packets::port::Kind;
use packets::schedule::Pace;
use packets::transmission::{Timed, Transmission};
use packets::trial::{Settings, Trial, send_only};

static CLOCK: Clock = Clock::new();
static SLEEPER: Sleeper<'static> = Sleeper::new(&CLOCK);

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["send", port, interface, mac, rate, seconds, cpu] => {
            settings(port, interface, interface, mac, rate, seconds, cpu, cpu).map(|settings| {
                let cpu_and_transmission = send_only(&settings, &SLEEPER);
                cpu_and_transmission.map(|(transmission, cpu_ns)| println!("{{{}}}", sent(&transmission, cpu_ns)))
            })
        }
        ["loop", port, transmit, receive, mac, rate, seconds, tx_cpu, rx_cpu] => {
            settings(port, transmit, receive, mac, rate, seconds, tx_cpu, rx_cpu).map(looped)
        }
        ["drop", interface] => Some(packets::port::drop_all(interface).map(|_attached| {
            println!("{{}}");
            // Whoever started this closes it.
            let _ = std::io::stdin().read(&mut [0]);
        })),
        _ => None,
    };
    match outcome {
        Some(Ok(())) => ExitCode::SUCCESS,
        Some(Err(failure)) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
        None => {
            eprintln!("wrong usage; see the beginning of this program's source");
            ExitCode::from(2)
        }
    }
}

fn looped(settings: Settings) -> Result<(), Failure> {
    let trial = Trial::open(settings, &SLEEPER)?;
    let outcome = trial.run(|_| Ok::<(), Failure>(()))?;
    let received: u64 = outcome.analyser.flows().iter().map(|tally| tally.received).sum();
    let span_ns = outcome.analyser.arrivals_ns().map_or(0, |(first, last)| last - first);
    println!(
        "{{{}, \"received\": {received}, \"span_ns\": {span_ns}, \"rx_cpu_ns\": {}, \"ring_full\": {}, {}}}",
        sent(&outcome.transmission, outcome.tx_cpu_ns),
        outcome.rx_cpu_ns,
        outcome.receiver_loss.ring_full,
        quantiles("latency", &outcome.analyser.latency()),
    );
    Ok(())
}

fn sent(transmission: &Transmission, cpu_ns: u64) -> String {
    format!(
        "\"sent\": {}, \"refused\": {}, \"late\": {}, \"elapsed_ns\": {}, \"tx_cpu_ns\": {cpu_ns}, {}, {}",
        transmission.total(),
        transmission.refused,
        transmission.late,
        transmission.end_ns - transmission.start_ns,
        quantiles("gap", &transmission.gaps),
        quantiles("lateness", &transmission.lateness),
    )
}

fn quantiles(name: &str, histogram: &Histogram) -> String {
    let shares = [("p1", 0.01), ("p50", 0.5), ("p99", 0.99), ("p999", 0.999), ("max", 1.0)];
    let figures: Vec<String> = shares
        .iter()
        .map(|(label, share)| format!("\"{name}_{label}_ns\": {}", histogram.quantile(*share).unwrap_or(0)))
        .collect();
    figures.join(", ")
}

/// `None` when a word is not understood.
#[allow(clippy::too_many_arguments, reason = "one for each word of the command line")]
fn settings(
    port: &str,
    transmit: &str,
    receive: &str,
    mac: &str,
    rate: &str,
    seconds: &str,
    tx_cpu: &str,
    rx_cpu: &str,
) -> Option<Settings> {
    let port: Kind = port.parse().ok()?;
    let (rate, seconds): (f64, f64) = (rate.parse().ok()?, seconds.parse().ok()?);
    let duration_ns = (seconds * 1e9) as u64;
    let bytes: Vec<u8> = mac.split(':').map_while(|byte| u8::from_str_radix(byte, 16).ok()).collect();
    let flow = Flow {
        source_mac: [2, 0, 0, 0, 0, 1],
        destination_mac: bytes.try_into().ok()?,
        source: Ipv4Addr::new(10, 0, 0, 1),
        destination: Ipv4Addr::new(10, 1, 0, 2),
    };
    Some(Settings {
        port: Some(port),
        transmit: transmit.into(),
        receive: receive.into(),
        flows: vec![(flow, 1.0)],
        length: 60,
        pace: if rate > 0.0 { Pace::new(rate, duration_ns) } else { Pace::burst(1 << 30) },
        timed: Timed::All,
        give_up_ns: duration_ns + if rate > 0.0 { duration_ns / 4 } else { 0 },
        drain_ns: 200_000_000,
        tx_cpu: Some(tx_cpu.parse().ok()?),
        rx_cpu: Some(rx_cpu.parse().ok()?),
        seed: 1,
    })
}
