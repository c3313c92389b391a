//! Random and damaged bytes against the decoder: it refuses or decodes, and never panics or takes memory without bound.
//!
//! Deterministic: the corpus in `tests/corpus` and a fixed seed.  `VIRTGAUGE_FUZZ_ROUNDS` asks for more rounds.

mod controller;

use std::path::PathBuf;
use std::{env, fs};

use controller::{frame, map, packed, sleep_lateness, timer_cost};
use kernels::random::SplitMix64;
use rmpv::Value;
use virtgauge_agent::channel::frame::read;
use virtgauge_agent::channel::message::{Request, decode};

/// Rounds without being asked for more.
const ROUNDS: u64 = 500_000;

/// One of every request, as the controller sends it.
fn requests() -> Vec<(&'static str, Value)> {
    let request = |kind: &'static str, fields: &[(&str, Value)]| {
        (kind, map(&[&[("seq", Value::from(0)), ("type", kind.into()), ("id", 1.into())], fields].concat()))
    };
    let text = Value::from;
    let neighbour = map(&[("address", text("10.0.0.2")), ("mac", text("52:54:00:00:00:02"))]);
    let route = map(&[("to", text("default")), ("via", text("10.0.0.254"))]);
    let interface = map(&[
        ("mac", text("52:54:00:00:00:01")),
        ("addresses", Value::Array(vec![text("10.0.0.1/24")])),
        ("routes", Value::Array(vec![route])),
        ("neighbours", Value::Array(vec![neighbour])),
        ("mtu", 1500.into()),
        ("up", true.into()),
    ]);
    let run = [
        ("argv", Value::Array(vec![text("true")])),
        ("env", map(&[("A", text("b"))])),
        ("timeout_ms", 1000.into()),
        ("output_limit", 10.into()),
    ];
    vec![
        request("hello", &[("protocol", 1.into()), ("token", text("t"))]),
        request("facts", &[]),
        request("probe", &[("name", text("timer_cost")), ("params", timer_cost("rdtsc", 1))]),
        request("probe", &[("name", text("sleep_lateness")), ("params", sleep_lateness("usleep", 1000, 1))]),
        request("load_start", &[("name", text("cpu")), ("params", map(&[("threads", 100.into())]))]),
        request("load_stop", &[("load", 1.into())]),
        request("network", &[("interfaces", Value::Array(vec![interface])), ("forwarding", true.into())]),
        request("read", &[("paths", Value::Array(vec![text("/proc/uptime")]))]),
        request("run", &run),
        request("cancel", &[("target", 1.into())]),
        request("shutdown", &[]),
    ]
}

/// Payloads that once were, or could be, trouble.
fn corpus() -> Vec<Vec<u8>> {
    // Asked when it runs: a cache of builds is shared by checkouts, and the one that compiled this may be gone.
    let folder = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("tests/corpus");
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

fn damaged(seed: &[u8], other: &[u8], random: &mut SplitMix64) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=random.below(3) {
        let at = random.below(bytes.len() as u64 + 1) as usize;
        match random.below(12) {
            0 if at < bytes.len() => bytes[at] = random.next_u64() as u8,
            1 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            2 => bytes.truncate(at),
            3 => bytes.insert(at, random.next_u64() as u8),
            4 if at < bytes.len() => {
                bytes.remove(at);
            }
            // The end of one on the beginning of another.
            5 => {
                bytes.truncate(at);
                bytes.extend_from_slice(&other[random.below(other.len() as u64 + 1) as usize..]);
            }
            _ if at < bytes.len() => bytes[at] = bytes[at].wrapping_add(1),
            _ => {}
        }
    }
    bytes
}

#[test]
fn every_request_is_decoded() {
    for (kind, value) in requests() {
        let decoded = decode(&packed(&value), 0);
        let right = match &decoded {
            Ok(Request::Hello(_)) => kind == "hello",
            Ok(Request::Facts(_)) => kind == "facts",
            Ok(Request::Probe(_)) => kind == "probe",
            Ok(Request::LoadStart(_)) => kind == "load_start",
            Ok(Request::LoadStop(_)) => kind == "load_stop",
            Ok(Request::Network(_)) => kind == "network",
            Ok(Request::Read(_)) => kind == "read",
            Ok(Request::Run(_)) => kind == "run",
            Ok(Request::Cancel(_)) => kind == "cancel",
            Ok(Request::Shutdown(_)) => kind == "shutdown",
            Err(_) => false,
        };
        assert!(right, "{kind}: {decoded:?}");
    }
}

#[test]
fn the_corpus_is_refused() {
    for payload in corpus() {
        assert!(decode(&payload, 0).is_err(), "{payload:02x?}");
    }
}

#[test]
fn damaged_payloads_and_streams_end_in_a_value_or_an_error() {
    let rounds = env::var("VIRTGAUGE_FUZZ_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(ROUNDS);
    let mut seeds: Vec<Vec<u8>> = requests().iter().map(|(_, value)| packed(value)).collect();
    seeds.extend(corpus());
    let mut random = SplitMix64::new(20_261_121);
    let (mut decoded, mut refused) = (0u64, 0u64);
    for _ in 0..rounds {
        let seed = &seeds[random.below(seeds.len() as u64) as usize];
        let other = &seeds[random.below(seeds.len() as u64) as usize];
        let payload = damaged(seed, other, &mut random);
        match decode(&payload, 0) {
            Ok(_) => decoded += 1,
            Err(_) => refused += 1,
        }
        let stream = damaged(&frame(seed), &frame(other), &mut random);
        let (mut reader, mut buffer) = (stream.as_slice(), Vec::new());
        while let Ok(true) = read(&mut reader, &mut buffer) {
            let _ = decode(&buffer, 0);
        }
        assert!(buffer.capacity() <= 2 * stream.len() + 64);
    }
    // Both outcomes must be common, or the damage tests only one side.
    assert!(decoded > rounds / 100 && refused > rounds / 10, "{decoded} decoded, {refused} refused");
}
