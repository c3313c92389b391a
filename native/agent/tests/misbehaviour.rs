//! A controller that breaks the protocol, or breaks down, ends the session in an error within bounds.

mod controller;

use controller::{Controller, field, frame, map, packed, sleep_lateness, text, timer_cost};
use rmpv::Value;

const PROTOCOL_BROKEN: Option<i32> = Some(3);
const CHANNEL_BROKEN: Option<i32> = Some(4);

/// The agent says `code` for the session, closes, and exits with the code for a broken protocol.
fn refused(controller: &mut Controller, code: &str) -> String {
    let error = controller.receive();
    assert_eq!((text(&error, "type"), text(&error, "code")), ("error", code), "{error}");
    assert_eq!(field(&error, "id"), &Value::Nil);
    assert_eq!(controller.next(), None);
    assert_eq!(controller.exit_code(), PROTOCOL_BROKEN);
    text(&error, "message").to_owned()
}

#[test]
fn another_version_of_the_protocol_is_refused() {
    let mut controller = Controller::silent();
    controller.send("hello", &[("protocol", 2.into()), ("token", "t".into())]);
    assert_eq!(refused(&mut controller, "version"), "protocol 1 is spoken here, not 2");
}

#[test]
fn anything_before_hello_and_a_second_hello_are_refused() {
    let mut controller = Controller::silent();
    controller.send("facts", &[("id", 1.into())]);
    assert_eq!(refused(&mut controller, "protocol"), "the first message must be hello");
    let mut controller = Controller::greeted();
    controller.send("hello", &[("protocol", 1.into()), ("token", "t".into())]);
    assert_eq!(refused(&mut controller, "protocol"), "a second hello");
}

#[test]
fn roots_that_are_no_absolute_paths_are_refused() {
    for root in ["tmp", "/tmp/../etc", ""] {
        let mut controller = Controller::silent();
        let roots = Value::Array(vec![root.into()]);
        controller.send("hello", &[("protocol", 1.into()), ("token", "t".into()), ("roots", roots)]);
        assert!(refused(&mut controller, "protocol").contains("accepted: absolute paths"), "{root}");
    }
}

#[test]
fn nothing_is_read_or_made_outside_the_roots() {
    let folder = std::env::temp_dir().join(format!("virtgauge-outside-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::os::unix::fs::symlink("/var", folder.join("link")).unwrap();
    let mut controller = Controller::greeted();
    let paths = ["/proc/uptime", "/proc/self/root/etc/passwd", "/proc/1/root/etc/passwd", "/proc/self/cwd/Cargo.toml"];
    let asked = Value::Array(paths.map(Value::from).to_vec());
    let answer = controller.ask(1, "read", &[("paths", asked)]);
    let files = field(&answer, "value.files");
    assert!(files["/proc/uptime"].is_bin(), "{answer}");
    assert!(paths[1..].iter().all(|&path| files[path].is_nil()), "{answer}");

    for (id, (path, code)) in
        (2..).zip([("/var/tmp", "bad-request"), ("/proc/self/cwd", "bad-request"), ("link/virtgauge", "os")])
    {
        let params = map(&[
            ("address", "127.0.0.1".into()),
            ("port", 1.into()),
            ("token", "t".into()),
            ("folder", folder.join(path).to_str().unwrap().into()),
        ]);
        let answer = controller.ask(id, "load_start", &[("name", "file_server".into()), ("params", params)]);
        assert_eq!((text(&answer, "type"), text(&answer, "code")), ("error", code), "{answer}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(!std::path::Path::new("/var/virtgauge").exists());
}

#[test]
fn frames_without_payload_or_above_the_limit_are_refused_by_their_length_alone() {
    for length in [0, 4_194_305, u32::MAX] {
        let mut controller = Controller::greeted();
        controller.send_bytes(&length.to_be_bytes());
        assert!(refused(&mut controller, "protocol").contains(&length.to_string()));
    }
}

#[test]
fn numbers_out_of_sequence_are_refused() {
    for seq in [0u64, 2, u64::MAX] {
        let mut controller = Controller::greeted();
        let message = map(&[("seq", seq.into()), ("type", "facts".into()), ("id", 1.into())]);
        controller.send_bytes(&frame(&packed(&message)));
        assert_eq!(refused(&mut controller, "protocol"), format!("seq is {seq}, expected 1"));
    }
}

#[test]
fn payloads_that_are_no_request_are_refused() {
    let message = |fields: &[(&str, Value)]| packed(&map(&[&[("seq", Value::from(1))], fields].concat()));
    let payloads = [
        b"garbage".to_vec(),
        packed(&Value::Array(vec![1.into(), "facts".into(), 1.into()])),
        packed(&Value::Nil),
        vec![0xc1],
        packed(&map(&[("seq", 1.into())])),
        message(&[("type", 3.into()), ("id", 1.into())]),
        message(&[("type", "dance".into()), ("id", 1.into())]),
        message(&[("type", "facts".into())]),
        message(&[("type", "facts".into()), ("id", (-1).into())]),
        message(&[("type", "facts".into()), ("id", "1".into())]),
        message(&[("type", "facts".into()), ("id", 1.into()), ("id", 2.into())]),
        message(&[("type", "probe".into()), ("id", 1.into()), ("name", "x".into()), ("params", 1.into())]),
        [message(&[("type", "facts".into()), ("id", 1.into())]), vec![0xc0]].concat(),
        // A map that promises 2³² − 1 entries, and nesting without end.
        vec![0xdf, 0xff, 0xff, 0xff, 0xff],
        [vec![0x81, 0xa1, b'x'], vec![0x91; 100_000]].concat(),
    ];
    for payload in payloads {
        let mut controller = Controller::greeted();
        controller.send_bytes(&frame(&payload));
        refused(&mut controller, "protocol");
    }
}

#[test]
fn a_controller_that_goes_away_inside_a_frame_is_an_error_of_its_own() {
    let whole = frame(&packed(&map(&[("seq", 1.into()), ("type", "facts".into()), ("id", 1.into())])));
    for kept in [1, 3, 4, 5, whole.len() - 1] {
        let mut controller = Controller::greeted();
        controller.send_bytes(&whole[..kept]);
        controller.hang_up();
        assert_eq!(controller.next(), None);
        assert_eq!(controller.exit_code(), CHANNEL_BROKEN, "{kept} bytes");
    }
}

#[test]
fn a_controller_that_goes_away_inside_a_probe_ends_the_agent() {
    for params in [
        ("timer_cost", timer_cost("rdtsc", 1_000_000_000_000)),
        ("sleep_lateness", sleep_lateness("nanosleep", 1_000_000, 1_000_000)),
    ] {
        let mut controller = Controller::greeted();
        controller.start_probe(1, params.0, params.1);
        assert_eq!(text(&controller.receive(), "type"), "started");
        controller.hang_up();
        assert_eq!(controller.exit_code(), Some(0));
    }
}

#[test]
fn an_announced_frame_takes_no_memory_before_its_bytes_come() {
    let mut controller = Controller::greeted();
    let before = resident_bytes(controller.pid());
    controller.send_bytes(&4_194_304u32.to_be_bytes());
    controller.send_bytes(&[0x80; 1000]);
    std::thread::sleep(std::time::Duration::from_millis(200));
    assert!(resident_bytes(controller.pid()) < before + 1_000_000);
}

fn resident_bytes(pid: u32) -> u64 {
    let pages = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap();
    pages.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4096
}
