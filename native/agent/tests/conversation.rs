//! A controller that keeps to the protocol gets what the protocol promises.

mod controller;

use std::time::{Duration, Instant};

use controller::{Controller, field, map, signed, sleep_lateness, text, timer_cost, unsigned};
use rmpv::Value;

fn list(items: &[&str]) -> Value {
    Value::Array(items.iter().map(|&item| item.into()).collect())
}

fn run_fields(argv: &[&str], timeout_ms: u64, output_limit: u64) -> [(&'static str, Value); 4] {
    [
        ("argv", list(argv)),
        ("env", map(&[("VIRTGAUGE_TEST", "value".into())])),
        ("timeout_ms", timeout_ms.into()),
        ("output_limit", output_limit.into()),
    ]
}

#[test]
fn welcome_echoes_the_token_and_names_the_executable_by_its_hash() {
    let mut controller = Controller::silent();
    controller.send("hello", &[("protocol", 1.into()), ("token", "é token".into())]);
    let welcome = controller.receive();
    assert_eq!(text(&welcome, "type"), "welcome");
    assert_eq!(text(&welcome, "token"), "é token");
    assert_eq!(unsigned(&welcome, "protocol"), 1);
    assert_eq!(unsigned(&welcome, "pid"), u64::from(controller.pid()));
    assert_eq!(field(&welcome, "init"), &Value::from(false));
    assert_eq!(text(&welcome, "agent_sha256").len(), 64);
}

#[test]
fn end_of_stream_between_frames_is_a_clean_end() {
    let mut controller = Controller::greeted();
    controller.hang_up();
    assert_eq!(controller.next(), None);
    assert_eq!(controller.exit_code(), Some(0));
}

#[test]
fn shutdown_is_answered_and_ends_cleanly() {
    let mut controller = Controller::greeted();
    let answer = controller.ask(1, "shutdown", &[]);
    assert_eq!(field(&answer, "value"), &map(&[]));
    assert_eq!(controller.next(), None);
    assert_eq!(controller.exit_code(), Some(0));
}

#[test]
fn facts_hold_every_field_of_the_protocol() {
    let facts = Controller::greeted().ask(3, "facts", &[]);
    let fields = "agent_version agent_sha256 kernel.sysname kernel.release kernel.version kernel.machine hostname boot_id init \
        cpu.model cpu.vendor cpu.count cpu.microcode cpu.flags memory_bytes clocksource.current clocksource.available \
        hypervisor.present hypervisor.signature tsc.invariant tsc.nonstop tsc.frequency_hz tsc.frequency_source tsc.error_ppm \
        tsc.read_p50_ns vdso timer_slack_ns idle uid capabilities cgroup mitigations cmdline";
    for name in fields.split_whitespace() {
        field(&facts, &format!("value.{name}"));
    }
    assert_eq!(text(&facts, "value.kernel.sysname"), "Linux");
    assert!(controller::real(&facts, "value.tsc.frequency_hz") > 1e8);
}

#[test]
fn unknown_fields_are_ignored() {
    let mut controller = Controller::greeted();
    let deep = map(&[("a", Value::Array(vec![Value::Nil, map(&[("b", 1.5.into())])]))]);
    let answer = controller.ask(1, "cancel", &[("target", 9.into()), ("novelty", deep)]);
    assert_eq!(field(&answer, "value.cancelled"), &Value::from(false));
}

#[test]
fn unknown_probes_loads_and_load_numbers_are_not_found() {
    let mut controller = Controller::greeted();
    for (id, kind, fields) in [
        (1, "probe", vec![("name", "nonsense".into()), ("params", map(&[]))]),
        (2, "load_start", vec![("name", "nonsense".into()), ("params", map(&[]))]),
        (3, "load_stop", vec![("load", 77.into())]),
    ] {
        assert_eq!(text(&controller.ask(id, kind, &fields), "code"), "not-found");
    }
}

#[test]
fn a_parameter_out_of_range_is_refused_by_name_value_and_range_and_the_session_goes_on() {
    let mut controller = Controller::greeted();
    let params = timer_cost("rdtsc", 0);
    let answer = controller.ask(1, "probe", &[("name", "timer_cost".into()), ("params", params)]);
    assert_eq!(text(&answer, "code"), "bad-request");
    assert_eq!(text(&answer, "message"), "params.samples: 0; accepted: an integer from 1 to 1000000000000");
    let mut params = timer_cost("rdtsc", 1);
    if let Value::Map(entries) = &mut params {
        entries.retain(|(key, _)| key.as_str() != Some("function"));
    }
    let answer = controller.ask(2, "probe", &[("name", "timer_cost".into()), ("params", params)]);
    assert_eq!(text(&answer, "message"), "params: missing field `function`");
    let params = sleep_lateness("usleep", 1_500, 1);
    let answer = controller.ask(3, "probe", &[("name", "sleep_lateness".into()), ("params", params)]);
    assert!(text(&answer, "message").contains("target_ns: 1500"), "{answer}");
    let answer = controller.ask(4, "run", &run_fields(&["true"], 0, 0));
    assert!(text(&answer, "message").starts_with("timeout_ms is 0; accepted"), "{answer}");
}

#[test]
fn a_second_probe_is_refused_while_one_runs_and_accepted_right_after_its_result() {
    let mut controller = Controller::greeted();
    controller.start_probe(1, "sleep_lateness", sleep_lateness("clock_nanosleep", 10_000_000, 1000));
    assert_eq!(text(&controller.receive(), "type"), "started");
    let refused = controller.ask(2, "probe", &[("name", "timer_cost".into()), ("params", timer_cost("rdtsc", 10))]);
    assert_eq!(text(&refused, "code"), "busy");
    assert_eq!(field(&controller.ask(3, "cancel", &[("target", 1.into())]), "value.cancelled"), &Value::from(true));
    assert_eq!(text(controller.until_end_of(1).last().unwrap(), "code"), "cancelled");
    for id in 4..30 {
        let answer = controller.ask(id, "probe", &[("name", "timer_cost".into()), ("params", timer_cost("rdtsc", 10))]);
        assert_eq!(text(&answer, "type"), "result", "{answer}");
    }
}

#[test]
fn a_load_works_beside_a_probe_until_it_is_stopped() {
    let mut controller = Controller::greeted();
    let started = controller.ask(1, "load_start", &[("name", "cpu".into()), ("params", map(&[("threads", 8.into())]))]);
    let load = unsigned(&started, "value.load");
    let params = timer_cost("clock_gettime", 1_000_000);
    let probe = controller.ask(2, "probe", &[("name", "timer_cost".into()), ("params", params)]);
    assert_eq!(text(&probe, "type"), "result");
    let stopped = controller.ask(3, "load_stop", &[("load", load.into())]);
    assert_eq!(unsigned(&stopped, "value.threads"), 8);
    assert!(unsigned(&stopped, "value.operations") > 0);
    assert!(unsigned(&stopped, "value.elapsed_ns") > 0);
    assert!(unsigned(&stopped, "value.cpu_ns") > 0);
    assert_eq!(text(&controller.ask(4, "load_stop", &[("load", load.into())]), "code"), "not-found");
}

#[test]
fn a_load_of_the_probes_own_runs_for_its_samples_and_is_accounted_for() {
    let mut controller = Controller::greeted();
    let load = map(&[("name", "cpu".into()), ("params", map(&[("threads", 8.into())]))]);
    let fields = [("name", "timer_cost".into()), ("params", timer_cost("clock_gettime", 1_000_000)), ("load", load)];
    let answer = controller.ask(1, "probe", &fields);
    assert_eq!(unsigned(&answer, "value.load.threads"), 8);
    assert!(unsigned(&answer, "value.load.operations") > 0);
    assert_eq!(threads_named(controller.pid(), "cpu-load"), 0);
    let alone = controller.ask(2, "probe", &fields[..2]);
    assert_eq!(field(&alone, "value.load"), &Value::Nil);
}

#[test]
fn a_load_that_does_not_exist_fails_the_probe_that_wanted_it() {
    let mut controller = Controller::greeted();
    let load = map(&[("name", "nonsense".into()), ("params", map(&[]))]);
    let fields = [("name", "timer_cost".into()), ("params", timer_cost("rdtsc", 1000)), ("load", load)];
    assert_eq!(text(&controller.ask(1, "probe", &fields), "code"), "not-found");
    assert_eq!(text(&controller.ask(2, "probe", &fields[..2]), "type"), "result");
}

#[test]
fn cancelling_a_probe_ends_its_load_too() {
    let mut controller = Controller::greeted();
    let load = map(&[("name", "cpu".into()), ("params", map(&[("threads", 8.into())]))]);
    let params = sleep_lateness("nanosleep", 5_000_000, 1_000_000);
    controller
        .send("probe", &[("id", 1.into()), ("name", "sleep_lateness".into()), ("params", params), ("load", load)]);
    let started = Instant::now();
    while threads_named(controller.pid(), "cpu-load") < 8 {
        assert!(started.elapsed() < controller::PATIENCE);
    }
    controller.send("cancel", &[("id", 2.into()), ("target", 1.into())]);
    while threads_named(controller.pid(), "cpu-load") > 0 {
        assert!(started.elapsed() < controller::PATIENCE);
    }
}

/// Threads of a process by their name.
fn threads_named(pid: u32, name: &str) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/task"))
        .unwrap()
        .flatten()
        .filter(|task| std::fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim() == name))
        .count()
}

#[test]
fn a_program_returns_its_outputs_code_and_environment() {
    let mut controller = Controller::greeted();
    let script = "echo $VIRTGAUGE_TEST; echo problem >&2; exit 3";
    let answer = controller.ask(1, "run", &run_fields(&["sh", "-c", script], 20_000, 1000));
    assert_eq!(signed(&answer, "value.exit_code"), 3);
    assert_eq!(field(&answer, "value.signal"), &Value::Nil);
    assert_eq!(field(&answer, "value.stdout"), &Value::Binary(b"value\n".to_vec()));
    assert_eq!(field(&answer, "value.stderr"), &Value::Binary(b"problem\n".to_vec()));
    assert_eq!(field(&answer, "value.truncated"), &Value::from(false));
    assert_eq!(field(&answer, "value.timed_out"), &Value::from(false));
}

#[test]
fn a_program_that_does_not_exist_is_an_error_of_the_system() {
    let answer = Controller::greeted().ask(1, "run", &run_fields(&["/does/not/exist"], 1000, 1000));
    assert_eq!((text(&answer, "code"), signed(&answer, "errno")), ("os", 2));
}

#[test]
fn output_beyond_the_limit_is_dropped_without_holding_the_program_up() {
    let script = "head -c 1000000 /dev/zero; echo end >&2";
    let answer = Controller::greeted().ask(1, "run", &run_fields(&["sh", "-c", script], 30_000, 1234));
    assert_eq!(signed(&answer, "value.exit_code"), 0);
    assert_eq!(field(&answer, "value.stdout"), &Value::Binary(vec![0; 1234]));
    assert_eq!(field(&answer, "value.truncated"), &Value::from(true));
}

#[test]
fn a_program_that_takes_too_long_is_killed_with_its_children() {
    let started = Instant::now();
    let answer = Controller::greeted().ask(1, "run", &run_fields(&["sh", "-c", "sleep 600 & sleep 600"], 300, 1000));
    assert_eq!(field(&answer, "value.timed_out"), &Value::from(true));
    assert_eq!(signed(&answer, "value.signal"), 9);
    assert!(started.elapsed() < Duration::from_secs(60));
}

#[test]
fn a_program_whose_child_holds_its_output_ends_all_the_same() {
    let answer = Controller::greeted().ask(1, "run", &run_fields(&["sh", "-c", "sleep 600 & exit 4"], 300_000, 1000));
    assert_eq!(signed(&answer, "value.exit_code"), 4);
    assert_eq!(field(&answer, "value.timed_out"), &Value::from(false));
}

#[test]
fn a_cancelled_program_is_killed() {
    let mut controller = Controller::greeted();
    controller.send("run", &[&[("id", Value::from(1))], &run_fields(&["sleep", "600"], 600_000, 10)[..]].concat());
    assert_eq!(field(&controller.ask(2, "cancel", &[("target", 1.into())]), "value.cancelled"), &Value::from(true));
    let ended = controller.until_end_of(1).pop().unwrap();
    assert_eq!(text(&ended, "code"), "cancelled");
}

/// How many processes have a command line that ends with these words.
fn processes(words: &str) -> usize {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).replace('\0', " ").trim_end().ends_with(words)).count()
}

#[test]
fn end_of_stream_stops_probe_load_and_program_and_leaves_no_process() {
    let mut controller = Controller::greeted();
    controller.ask(1, "load_start", &[("name", "cpu".into()), ("params", map(&[("threads", 4.into())]))]);
    controller.start_probe(2, "sleep_lateness", sleep_lateness("nanosleep", 5_000_000, 1_000_000));
    let marker = format!("sleep {}", 100_000 + u64::from(controller.pid()));
    controller.send("run", &[&[("id", Value::from(3))], &run_fields(&["sh", "-c", &marker], 600_000, 10)[..]].concat());
    let running = || processes(&marker);
    let started = Instant::now();
    while running() == 0 {
        assert!(started.elapsed() < controller::PATIENCE);
    }
    controller.hang_up();
    assert_eq!(controller.exit_code(), Some(0));
    // A process that was killed is seen until a processor has taken it apart, which others may be using.
    let ended = Instant::now();
    while running() != 0 {
        assert!(ended.elapsed() < controller::PATIENCE);
    }
}

#[test]
fn programs_that_do_not_listen_are_waited_for_together() {
    let mut controller = Controller::greeted();
    let sleep = format!("sleep {}", 100_000 + u64::from(controller.pid()));
    let script = format!("trap '' TERM; exec {sleep}; :");
    let deaf = map(&[("argv", list(&["sh", "-c", &script]))]);
    let count = 30;
    for id in 1..=count {
        controller.ask(id, "load_start", &[("name", "program".into()), ("params", deaf.clone())]);
    }
    let asked = Instant::now();
    while processes(&sleep) < count as usize {
        assert!(asked.elapsed() < controller::PATIENCE);
    }
    // A second for each of them, until it is killed, had they to wait for one another.
    let started = Instant::now();
    controller.hang_up();
    assert_eq!(controller.exit_code(), Some(0));
    assert!(started.elapsed() < Duration::from_secs(count / 2), "{:?}", started.elapsed());
}

#[test]
fn network_requests_are_checked_before_anything_changes() {
    let mut controller = Controller::greeted();
    let forwarding = std::fs::read_to_string("/proc/sys/net/ipv4/ip_forward").unwrap().trim() == "1";
    let unchanged =
        controller.ask(1, "network", &[("interfaces", Value::Array(vec![])), ("forwarding", forwarding.into())]);
    assert_eq!(field(&unchanged, "value.interfaces"), &Value::Array(vec![]));
    let absent = Value::Array(vec![map(&[("name", "absent0".into())])]);
    let answer = controller.ask(2, "network", &[("interfaces", absent), ("forwarding", forwarding.into())]);
    assert_eq!(text(&answer, "code"), "not-found");
    assert!(text(&answer, "message").contains("lo ("), "{answer}");
}

#[test]
fn the_kernels_files_are_read_and_no_others() {
    let mut controller = Controller::greeted();
    let read = |path: &str| [("paths", Value::Array(vec![path.into()]))];
    let uptime = controller.ask(1, "read", &read("/proc/uptime"));
    let files = field(&uptime, "value.files").as_map().unwrap();
    assert!(files[0].1.as_slice().is_some_and(|text| !text.is_empty()), "{uptime}");
    let refused = controller.ask(2, "read", &read("/etc/hostname"));
    assert_eq!(text(&refused, "code"), "bad-request");
}
