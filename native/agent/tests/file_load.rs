//! The I/O- and network-bound load: one agent serves files, another reads and writes them.

mod controller;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

use controller::{Controller, field, free_port, map, real, text, unsigned};
use rmpv::Value;

/// Generous for what shall be prompt, on a busy machine.
const PROMPT: Duration = Duration::from_secs(5);

/// A service in a folder of its own, and how to reach it.
struct Served {
    controller: Controller,
    load: u64,
    port: u16,
    folder: PathBuf,
}

impl Served {
    fn new(name: &str) -> Self {
        let folder = env::temp_dir().join(format!("virtgauge-{}-{name}", process::id()));
        let port = free_port();
        let params = map(&[
            ("address", "127.0.0.1".into()),
            ("port", port.into()),
            ("token", "secret".into()),
            ("folder", folder.to_str().unwrap().into()),
        ]);
        let mut controller = Controller::greeted();
        let started = controller.ask(1, "load_start", &[("name", "file_server".into()), ("params", params)]);
        let load = unsigned(&started, "value.load");
        Self { controller, load, port, folder }
    }

    fn stop(&mut self) -> Value {
        self.controller.ask(2, "load_stop", &[("load", self.load.into())])
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn client_params(port: u16, token: &str, service: &str) -> Value {
    map(&[
        ("service", service.into()),
        ("address", "127.0.0.1".into()),
        ("port", port.into()),
        ("token", token.into()),
        ("threads", 3.into()),
        ("file_bytes", 1_000_000.into()),
        ("block_bytes", 16_384.into()),
        ("write_percent", 50.into()),
        ("flush_every", 16.into()),
        ("seed", 7.into()),
        ("ready_ms", 5_000.into()),
    ])
}

/// Starts a client; what the agent answers.
fn start_client(controller: &mut Controller, port: u16, token: &str) -> Value {
    controller.ask(1, "load_start", &[("name", "file_client".into()), ("params", client_params(port, token, "agent"))])
}

fn stop_client(controller: &mut Controller, started: &Value) -> Value {
    let load = unsigned(started, "value.load");
    controller.ask(2, "load_stop", &[("load", load.into())])
}

#[test]
fn both_ends_count_the_same_bytes_and_say_what_the_machine_did() {
    let mut service = Served::new("counts");
    let mut controller = Controller::greeted();
    let started = start_client(&mut controller, service.port, "secret");
    thread::sleep(Duration::from_millis(1500));
    let client = stop_client(&mut controller, &started);
    let server = service.stop();

    let (read, written) = (unsigned(&client, "value.read_bytes"), unsigned(&client, "value.written_bytes"));
    assert!(read > 0 && written > 0 && unsigned(&client, "value.flushes") > 0, "{client}");
    assert_eq!(unsigned(&client, "value.errors"), 0, "{client}");
    assert_eq!(field(&client, "value.first_error"), &Value::Nil);
    assert_eq!(unsigned(&server, "value.read_bytes"), read);
    // Every file was written once, in whole blocks, before the client counts.
    let first = 3 * (1_000_000 / 16_384) * 16_384;
    assert_eq!(unsigned(&server, "value.written_bytes"), written + first);
    assert_eq!(unsigned(&server, "value.connections"), 3);
    assert_eq!(unsigned(&server, "value.errors"), 0);
    assert!(!text(&server, "value.filesystem").is_empty());
    assert_eq!(text(&server, "value.name"), "file_server");
    assert_eq!(text(&client, "value.name"), "file_client");

    for stopped in [&client, &server] {
        assert!(unsigned(stopped, "value.achieved.elapsed_ns") >= 1_500_000_000);
        assert!((0.0..=1.0).contains(&real(stopped, "value.achieved.cpu_busy_share")));
        // Each request wakes a thread at either end.
        let switches = real(stopped, "value.achieved.context_switches_per_s");
        assert!(switches > 100.0, "{stopped}");
    }
}

#[test]
fn files_without_a_folder_have_no_name_and_none_is_touched_that_is_there() {
    let folder = env::temp_dir().join(format!("virtgauge-{}-unnamed", process::id()));
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("file-0"), "mine").unwrap();
    let port = free_port();
    let params = map(&[("address", "127.0.0.1".into()), ("port", port.into()), ("token", "secret".into())]);
    let mut guest = Controller::silent_in(&folder).greet();
    let served = guest.ask(1, "load_start", &[("name", "file_server".into()), ("params", params)]);
    let mut controller = Controller::greeted();
    let started = start_client(&mut controller, port, "secret");
    thread::sleep(Duration::from_millis(1500));
    let names: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let client = stop_client(&mut controller, &started);
    let stopped = guest.ask(2, "load_stop", &[("load", unsigned(&served, "value.load").into())]);
    let mine = fs::read_to_string(folder.join("file-0"));
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!(names, ["file-0"]);
    assert_eq!(mine.unwrap(), "mine");
    assert!(unsigned(&client, "value.read_bytes") > 0, "{client}");
    assert_eq!((unsigned(&client, "value.errors"), unsigned(&stopped, "value.connections")), (0, 3), "{client}");
    assert!(!text(&stopped, "value.filesystem").is_empty());
}

#[test]
fn a_content_that_is_not_what_was_written_is_an_error_and_counted() {
    let mut service = Served::new("corrupted");
    let mut controller = Controller::greeted();
    let started = start_client(&mut controller, service.port, "secret");
    let began = Instant::now();
    // Spoilt again and again, because the client mends what it writes.
    while began.elapsed() < Duration::from_millis(1500) {
        let file = fs::OpenOptions::new().write(true).open(service.folder.join("file-1")).unwrap();
        file.write_all_at(&vec![0xa5; 900_000], 0).unwrap();
        thread::sleep(Duration::from_millis(10));
    }
    let client = stop_client(&mut controller, &started);
    assert!(unsigned(&client, "value.wrong_content") > 0, "{client}");
    assert!(unsigned(&client, "value.errors") >= unsigned(&client, "value.wrong_content"));
    assert!(!text(&client, "value.first_error").is_empty());
    service.stop();
}

#[test]
fn a_file_that_has_another_name_outside_is_not_written() {
    let mut service = Served::new("linked");
    let outside = service.folder.with_extension("outside");
    fs::write(&outside, "secret").unwrap();
    fs::hard_link(&outside, service.folder.join("file-1")).unwrap();
    let refused = start_client(&mut Controller::greeted(), service.port, "secret");
    let left = fs::read_to_string(&outside);
    fs::remove_file(&outside).unwrap();
    assert_eq!((text(&refused, "code"), left.unwrap().as_str()), ("os", "secret"), "{refused}");
    service.stop();
}

#[test]
fn a_wrong_token_gets_nothing() {
    let mut service = Served::new("token");
    let refused = start_client(&mut Controller::greeted(), service.port, "guess");
    assert_eq!(text(&refused, "code"), "os", "{refused}");
    let mut stream = TcpStream::connect(("127.0.0.1", service.port)).unwrap();
    stream.write_all(&[b'x'; 400]).unwrap();
    let mut answer = Vec::new();
    // Closed, or reset because what was sent is not read.
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.is_empty(), "{answer:?}");
    let server = service.stop();
    assert_eq!(unsigned(&server, "value.connections"), 0);
    assert_eq!(unsigned(&server, "value.operations"), 0);
    assert!(unsigned(&server, "value.refused") >= 2, "{server}");
}

#[test]
fn a_client_that_vanishes_leaves_the_service_usable() {
    let mut service = Served::new("vanishes");
    let mut first = Controller::greeted();
    start_client(&mut first, service.port, "secret");
    drop(first); // killed
    let mut second = Controller::greeted();
    let started = start_client(&mut second, service.port, "secret");
    thread::sleep(Duration::from_millis(1500));
    let client = stop_client(&mut second, &started);
    assert_eq!(unsigned(&client, "value.errors"), 0, "{client}");
    assert!(unsigned(&client, "value.operations") > 0);
    service.stop();
}

#[test]
fn a_service_that_vanishes_ends_the_client_with_an_error_and_not_in_a_wait() {
    let mut service = Served::new("gone");
    let mut controller = Controller::greeted();
    let started = start_client(&mut controller, service.port, "secret");
    let began = Instant::now();
    service.stop();
    assert!(began.elapsed() < PROMPT);
    thread::sleep(Duration::from_millis(1500));
    let began = Instant::now();
    let client = stop_client(&mut controller, &started);
    assert!(began.elapsed() < PROMPT);
    assert_eq!(unsigned(&client, "value.errors"), 3, "{client}");
}

#[test]
fn a_service_without_a_descriptor_left_waits_without_work_and_goes_on_when_there_is_one() {
    let mut service = Served::new("descriptors");
    let pid = service.controller.pid();
    limit_descriptors(pid, 3);
    let mut stream = TcpStream::connect(("127.0.0.1", service.port)).unwrap();
    let before = ticks(pid);
    thread::sleep(Duration::from_millis(1500));
    let worked = ticks(pid) - before;
    limit_descriptors(pid, 1000);
    stream.write_all(&[b'x'; 400]).unwrap();
    let _ = stream.read_to_end(&mut Vec::new());
    assert_eq!(unsigned(&service.stop(), "value.refused"), 1);
    assert!(worked < 30, "{worked} hundredths of a second of CPU time in 1.5 s");
}

fn limit_descriptors(pid: u32, most: u32) {
    let limited = process::Command::new("prlimit").args([format!("--pid={pid}"), format!("--nofile={most}:")]).status();
    assert!(limited.unwrap().success());
}

/// The CPU time of a process, in hundredths of a second.
fn ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, behind_name) = stat.rsplit_once(')').unwrap();
    behind_name.split_whitespace().skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum()
}

#[test]
fn stopping_is_prompt_and_leaves_no_file_and_no_listener() {
    let mut service = Served::new("prompt");
    let silent = TcpStream::connect(("127.0.0.1", service.port)).unwrap(); // never shows a token
    let mut controller = Controller::greeted();
    start_client(&mut controller, service.port, "secret");
    let began = Instant::now();
    service.stop();
    assert!(began.elapsed() < PROMPT);
    assert!(!service.folder.exists());
    assert!(TcpStream::connect(("127.0.0.1", service.port)).is_err());
    drop(silent);
}

#[test]
fn a_server_that_is_not_there_is_waited_for_no_longer_than_asked() {
    let mut params = client_params(free_port(), "secret", "agent");
    let Value::Map(entries) = &mut params else { unreachable!("a map") };
    entries.retain(|(name, _)| name.as_str() != Some("ready_ms"));
    entries.push(("ready_ms".into(), 300.into()));
    let began = Instant::now();
    let answer = Controller::greeted().ask(1, "load_start", &[("name", "file_client".into()), ("params", params)]);
    assert_eq!(text(&answer, "code"), "os", "{answer}");
    assert!(began.elapsed() < PROMPT);
}

#[test]
fn what_is_no_nfs_server_is_found_out() {
    let mut service = Served::new("no-nfs");
    let params = client_params(service.port, "export", "nfs4");
    let answer = Controller::greeted().ask(1, "load_start", &[("name", "file_client".into()), ("params", params)]);
    assert_eq!(text(&answer, "type"), "error", "{answer}");
    service.stop();
}

#[test]
fn parameters_out_of_bounds_are_refused() {
    let mut controller = Controller::greeted();
    for (id, (field, value)) in (1..).zip([
        ("address", Value::from("somewhere")),
        ("port", 0.into()),
        ("token", "".into()),
        ("block_bytes", 12_345.into()),
        ("write_percent", 101.into()),
        ("service", "smb".into()),
    ]) {
        let Value::Map(mut entries) = client_params(1, "secret", "agent") else { unreachable!("a map") };
        entries.retain(|(name, _)| name.as_str() != Some(field));
        entries.push((field.into(), value));
        let fields = [("name", "file_client".into()), ("params", Value::Map(entries))];
        let answer = controller.ask(id, "load_start", &fields);
        assert_eq!(text(&answer, "code"), "bad-request", "{answer}");
        assert!(text(&answer, "message").contains(field), "{answer}");
    }
}
