//! What probes report fits together and fits the machine.

mod controller;

use std::thread;
use std::time::{Duration, Instant};

use controller::tries::in_one_of_five;
use controller::{Controller, field, integers, map, real, signed, sleep_lateness, text, timer_cost, unsigned};
use rmpv::Value;

/// Runs a probe and checks what holds for every one; returns the result.
fn measured(controller: &mut Controller, id: u64, name: &str, params: Value) -> Value {
    controller.start_probe(id, name, params);
    let mut messages = controller.until_end_of(id);
    let result = messages.pop().unwrap();
    assert_eq!(text(&result, "type"), "result", "{result}");
    assert_eq!(text(&messages[0], "type"), "started");
    let samples: Vec<&Value> = messages.iter().filter(|message| text(message, "type") == "samples").collect();
    assert_eq!(samples.len(), 1);
    assert_eq!(text(samples[0], "series"), "reservoir");

    let (min, max) = (signed(&result, "value.distribution.min"), signed(&result, "value.distribution.max"));
    let mean = real(&result, "value.distribution.mean");
    assert!(min as f64 <= mean && mean <= max as f64, "{result}");
    let n = unsigned(&result, "value.distribution.n");
    let reservoir = integers(samples[0], "values");
    assert_eq!(reservoir.len() as u64, n.min(100));
    assert!(reservoir.iter().all(|value| (min..=max).contains(value)));
    let (values, counts) =
        (integers(&result, "value.distribution.values"), integers(&result, "value.distribution.counts"));
    assert_eq!(values.len(), counts.len());
    assert!(values.windows(2).all(|pair| pair[0] < pair[1]));
    assert!(counts.iter().all(|&count| count > 0));
    assert_eq!(counts.iter().sum::<i64>() as u64, n);
    let binned: f64 = values.iter().zip(&counts).map(|(&value, &count)| value as f64 * count as f64).sum();
    assert!((binned / n as f64 - mean).abs() <= mean.abs() * 1e-3 + 1.0, "{result}");

    let clock = |name: &str, at: &str| unsigned(&result, &format!("value.clocks_{at}.{name}"));
    let raw_ns = clock("monotonic_raw_ns", "end") - clock("monotonic_raw_ns", "start");
    let monotonic_ns = clock("monotonic_ns", "end") - clock("monotonic_ns", "start");
    let brackets_ns = clock("bracket_ns", "end") + clock("bracket_ns", "start");
    let tsc_ns = clock("tsc_ns", "end") - clock("tsc_ns", "start");
    assert!(raw_ns.abs_diff(tsc_ns) <= brackets_ns + raw_ns / 2000, "{result}");
    assert!(raw_ns.abs_diff(monotonic_ns) <= brackets_ns + raw_ns / 500, "{result}");
    assert!(unsigned(&result, "value.usage.elapsed_ns") <= monotonic_ns);
    result
}

#[test]
fn every_timer_reports_as_many_costs_as_were_asked_for() {
    let mut controller = Controller::greeted();
    let functions = ["rdtsc", "rdtscp", "clock_gettime", "clock_gettime_syscall", "gettimeofday"];
    for (id, function) in (1..).zip(functions) {
        // Not a multiple of the buffer's length.
        let result = measured(&mut controller, id, "timer_cost", timer_cost(function, 100_001));
        assert_eq!(text(&result, "value.function"), function);
        assert_eq!(unsigned(&result, "value.distribution.n"), 100_001);
        assert_eq!(unsigned(&result, "value.requested"), 100_001);
        let bracketed = function == "gettimeofday";
        assert_eq!(text(&result, "value.method"), if bracketed { "tsc" } else { "self" });
        assert_eq!(signed(&result, "value.overhead_ps") == 0, !bracketed);
        assert!((0.0..=1.0).contains(&real(&result, "value.zero_share")));
        assert!(signed(&result, "value.resolution_ps") > 0);
        unsigned(&result, "value.backward");
    }
}

#[test]
fn a_clock_of_microseconds_stands_still_between_most_reads() {
    let result = measured(&mut Controller::greeted(), 1, "timer_cost", timer_cost("gettimeofday", 50_000));
    assert_eq!(signed(&result, "value.resolution_ps") % 1_000_000, 0);
    // Where a read takes longer than a microsecond, the clock need not stand still.
    if real(&result, "value.distribution.mean") < 100_000.0 {
        assert!(real(&result, "value.zero_share") > 0.5, "{result}");
    }
}

#[test]
fn one_sample_is_enough() {
    let result = measured(&mut Controller::greeted(), 1, "timer_cost", timer_cost("rdtsc", 1));
    assert_eq!(unsigned(&result, "value.distribution.n"), 1);
    assert_eq!(field(&result, "value.distribution.min"), field(&result, "value.distribution.max"));
}

#[test]
fn a_trial_ends_at_its_time_limit_with_what_it_has() {
    let mut params = timer_cost("clock_gettime", 1_000_000_000_000);
    if let Value::Map(entries) = &mut params {
        entries.retain(|(key, _)| key.as_str() != Some("max_ns"));
        entries.push(("max_ns".into(), 3_200_000_000u64.into()));
    }
    let mut controller = Controller::greeted();
    controller.start_probe(1, "timer_cost", params);
    let messages = controller.until_end_of(1);
    let result = messages.last().unwrap();
    let n = unsigned(result, "value.distribution.n");
    assert!(0 < n && n < 1_000_000_000_000);
    // The limit counts from just before the usage does.
    assert!(unsigned(result, "value.usage.elapsed_ns") >= 3_199_000_000);
    let progress: Vec<f64> = messages
        .iter()
        .filter(|message| text(message, "type") == "progress")
        .map(|message| real(message, "done"))
        .collect();
    assert!(
        !progress.is_empty() && progress.len() as u64 <= unsigned(result, "value.usage.elapsed_ns") / 1_000_000_000
    );
    assert!(
        progress.windows(2).all(|pair| pair[0] <= pair[1]) && progress.iter().all(|done| (0.0..=1.0).contains(done))
    );
}

#[test]
fn fast_reads_go_on_for_the_least_time() {
    let Value::Map(mut entries) = timer_cost("rdtsc", 1000) else { unreachable!() };
    entries.push(("least_ns".into(), 50_000_000.into()));
    let result = measured(&mut Controller::greeted(), 1, "timer_cost", Value::Map(entries));
    assert!(unsigned(&result, "value.distribution.n") > 1000, "{result}");
    assert_eq!(unsigned(&result, "value.requested"), 1000);
    assert!(unsigned(&result, "value.usage.elapsed_ns") >= 50_000_000, "{result}");
}

#[test]
fn sleeps_are_late_and_not_early() {
    let mut controller = Controller::greeted();
    for (id, function) in (1..).zip(["usleep", "nanosleep", "clock_nanosleep"]) {
        let result = measured(&mut controller, id, "sleep_lateness", sleep_lateness(function, 200_000, 50));
        assert_eq!(text(&result, "value.function"), function);
        assert_eq!(unsigned(&result, "value.target_ns"), 200_000);
        let interrupted = unsigned(&result, "value.interrupted");
        assert_eq!(unsigned(&result, "value.distribution.n") + interrupted, 50);
        assert!(signed(&result, "value.distribution.min") >= 0);
        assert_eq!(real(&result, "value.early_share").to_bits(), 0.0_f64.to_bits());
        assert_eq!(text(&result, "value.policy"), "other");
        assert_eq!(text(&result, "value.clock"), "CLOCK_MONOTONIC");
        assert!(real(&result, "value.cpu_ns_per_sleep") >= 0.0);
    }
}

#[test]
fn a_sleep_that_spins_on_the_counter_is_not_charged_with_the_kernels_clock() {
    // Cold, that takes from a quarter of a microsecond on 1 ms of spinning to two on 4 ms.
    let mut controller = Controller::greeted();
    let result = measured(&mut controller, 1, "sleep_lateness", sleep_lateness("highpertimer", 3_000_000, 50));
    if text(&result, "value.stamp") == "counter" {
        let least = signed(&result, "value.distribution.min");
        assert!((-200_000..200_000).contains(&least), "{least} ps");
    }
}

#[test]
fn the_first_sleeps_of_a_trial_do_not_count() {
    let result = measured(&mut Controller::greeted(), 1, "sleep_lateness", sleep_lateness("nanosleep", 1_000_000, 1));
    assert_eq!(unsigned(&result, "value.distribution.n"), 1);
    let at = |moment: &str| unsigned(&result, &format!("value.clocks_{moment}.monotonic_ns"));
    assert!(at("end") - at("start") >= 4_000_000, "one sleep, and three before it: {result}");
}

#[test]
fn hptime_learns_before_the_first_sleep_that_counts_and_once_in_a_trial() {
    let mut controller = Controller::greeted();
    let mut before_ns = |id: u64, continued: bool| {
        let Value::Map(mut entries) = sleep_lateness("hptime", 100_000, 20) else { unreachable!() };
        entries.push(("continued".into(), continued.into()));
        let result = measured(&mut controller, id, "sleep_lateness", Value::Map(entries));
        let at = |moment: &str| unsigned(&result, &format!("value.clocks_{moment}.monotonic_ns"));
        at("end") - at("start") - unsigned(&result, "value.usage.elapsed_ns")
    };
    let learnt_ns = before_ns(1, false);
    assert!(learnt_ns >= 200_000_000, "a thousand sleeps, or 0.3 s of them: {learnt_ns} ns");
    let mut id = 1;
    in_one_of_five(|| {
        id += 1;
        let again_ns = before_ns(id, true);
        (again_ns < 200_000_000, again_ns)
    });
}

#[test]
fn minimal_slack_is_read_back_and_real_time_is_had_or_refused_with_the_capability() {
    let mut controller = Controller::greeted();
    let with = |slack: u64, policy: &str| {
        let Value::Map(mut entries) = sleep_lateness("clock_nanosleep", 100_000, 20) else { unreachable!() };
        entries.retain(|(key, _)| !matches!(key.as_str(), Some("slack_ns" | "policy")));
        entries.extend([("slack_ns".into(), slack.into()), ("policy".into(), policy.into())]);
        Value::Map(entries)
    };
    let result = measured(&mut controller, 1, "sleep_lateness", with(1, "other"));
    assert_eq!(unsigned(&result, "value.slack_ns"), 1);
    let default = measured(&mut controller, 2, "sleep_lateness", with(0, "other"));
    assert_ne!(unsigned(&default, "value.slack_ns"), 1, "slack of one probe must not stay for the next");
    let answer = controller.ask(3, "probe", &[("name", "sleep_lateness".into()), ("params", with(0, "fifo"))]);
    if text(&answer, "type") == "result" {
        assert_eq!(text(&answer, "value.policy"), "fifo");
    } else {
        assert_eq!(text(&answer, "code"), "unsupported");
        assert!(text(&answer, "message").contains("CAP_SYS_NICE"), "{answer}");
    }
}

#[test]
fn a_load_beside_a_real_time_probe_does_not_keep_it_from_running() {
    let mut controller = Controller::greeted();
    let Value::Map(mut entries) = sleep_lateness("usleep", 100_000, 2000) else { unreachable!() };
    entries.retain(|(key, _)| key.as_str() != Some("policy"));
    entries.push(("policy".into(), "fifo".into()));
    let load = Value::Map(vec![
        ("name".into(), "cpu".into()),
        ("params".into(), Value::Map(vec![("threads".into(), 16.into())])),
    ]);
    let request = [("name", "sleep_lateness".into()), ("params", Value::Map(entries)), ("load", load)];
    let answer = controller.ask(1, "probe", &request);
    if text(&answer, "type") == "result" {
        assert_eq!(unsigned(&answer, "value.distribution.n") + unsigned(&answer, "value.interrupted"), 2000);
        assert!(unsigned(&answer, "value.load.operations") > 0, "{answer}");
    } else {
        assert_eq!(text(&answer, "code"), "unsupported");
    }
}

#[test]
fn idle_states_are_held_off_for_one_trial_or_refused_with_the_reason() {
    let mut controller = Controller::greeted();
    let in_force = || std::fs::read("/dev/cpu_dma_latency").ok().map(|bytes| bytes[..4].to_vec());
    let before = in_force();
    let probes =
        [("sleep_lateness", sleep_lateness("usleep", 100_000, 20)), ("cycle", cycle("sleep", "other", vec![]))];
    for (id, (name, params)) in (1..).zip(probes) {
        let Value::Map(mut entries) = params else { unreachable!() };
        entries.retain(|(key, _)| key.as_str() != Some("idle_states"));
        entries.push(("idle_states".into(), "shallow".into()));
        let answer = controller.ask(id, "probe", &[("name", name.into()), ("params", Value::Map(entries))]);
        if text(&answer, "type") == "result" {
            assert_eq!(text(&answer, "value.idle_states"), "shallow");
        } else {
            assert_eq!(text(&answer, "code"), "unsupported");
            let message = text(&answer, "message");
            assert!(message.contains("idle states"), "{answer}");
        }
        assert_eq!(in_force(), before, "the request must not outlive the trial");
    }
}

#[test]
fn memory_does_not_grow_with_the_samples() {
    let mut controller = Controller::greeted();
    measured(&mut controller, 1, "timer_cost", timer_cost("rdtsc", 100_000));
    let few = peak_kib(controller.pid());
    measured(&mut controller, 2, "timer_cost", timer_cost("rdtsc", 20_000_000));
    let many = peak_kib(controller.pid());
    assert!(many <= few + 512, "{few} KiB, then {many} KiB");
}

fn peak_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix("kB").unwrap().trim().parse().unwrap()
}

fn cycle(kind: &str, class: &str, cpus: Vec<Value>) -> Value {
    map(&[
        ("kind", kind.into()),
        ("cpus", Value::Array(cpus)),
        ("period_ns", 1_000_000.into()),
        ("class", class.into()),
        ("priority", 50.into()),
        ("idle_states", "default".into()),
        ("staggered", true.into()),
        ("work_permille", 100.into()),
        ("trace", true.into()),
        ("worst", 5.into()),
        ("max_ns", 300_000_000.into()),
    ])
}

#[test]
fn each_deadline_of_a_cycle_is_met_or_missed() {
    let mut controller = Controller::greeted();
    let params = cycle("sleep", "other", vec![]);
    let result = controller.ask(1, "probe", &[("name", "cycle".into()), ("params", params)]);
    assert_eq!(text(&result, "type"), "result", "{result}");
    let (cycles, missed) = (unsigned(&result, "value.cycles"), unsigned(&result, "value.missed"));
    assert_eq!(unsigned(&result, "value.distribution.n"), cycles);
    // The last may end after the time is over.
    assert!((300..=300 + unsigned(&result, "value.longest_missed")).contains(&(cycles + missed)), "{result}");
    assert!(signed(&result, "value.distribution.min") >= 0);
    let worst = field(&result, "value.worst").as_array().unwrap();
    let late: Vec<u64> = worst.iter().map(|one| unsigned(one, "late_ns")).collect();
    assert_eq!(late.len() as u64, cycles.min(5));
    assert!(late.is_sorted_by(|one, other| one >= other), "{result}");
    assert_eq!(late[0], signed(&result, "value.distribution.max") as u64 / 1000);
    let realtime_ns = |at: &str| unsigned(&result, &format!("value.clocks_{at}.realtime_ns"));
    assert!(
        worst.iter().all(|one| (realtime_ns("start")..=realtime_ns("end")).contains(&unsigned(one, "realtime_ns")))
    );
}

#[test]
fn gaps_of_threads_that_never_sleep_fill_the_time() {
    let mut controller = Controller::greeted();
    let params = cycle("stall", "other", vec![0.into()]);
    let result = controller.ask(1, "probe", &[("name", "cycle".into()), ("params", params)]);
    let (cycles, mean_ps) = (unsigned(&result, "value.cycles"), real(&result, "value.distribution.mean"));
    let seen_ns = cycles as f64 * mean_ps / 1000.0;
    // The last gap may reach beyond the end.
    let largest_ns = signed(&result, "value.distribution.max") as f64 / 1000.0;
    assert!(cycles > 1000 && seen_ns < 320e6 + largest_ns, "{result}");
    assert!(field(&result, "value.missed").is_nil(), "a thread without deadlines");
}

#[test]
fn a_deadline_class_on_a_chosen_processor_is_refused_with_the_remedy() {
    let mut controller = Controller::greeted();
    let params = cycle("sleep", "deadline", vec![0.into()]);
    let answer = controller.ask(1, "probe", &[("name", "cycle".into()), ("params", params)]);
    assert_eq!(text(&answer, "type"), "error");
    assert!(text(&answer, "message").contains("leave params.cpus empty"), "{answer}");
}

#[test]
fn cycles_of_an_hour_end_within_two_seconds_of_their_cancellation() {
    let mut controller = Controller::greeted();
    let mut id = 0;
    for kind in ["sleep", "stall"] {
        let mut params = cycle(kind, "other", vec![]);
        if let Value::Map(entries) = &mut params {
            for (name, value) in entries {
                match name.as_str() {
                    Some("max_ns") => *value = 3_600_000_000_000_u64.into(),
                    Some("period_ns") => *value = 1_000_000_000.into(),
                    _ => {}
                }
            }
        }
        in_one_of_five(|| {
            id += 2;
            controller.start_probe(id, "cycle", params.clone());
            thread::sleep(Duration::from_millis(200));
            let cancelled = Instant::now();
            controller.send("cancel", &[("id", (id + 1).into()), ("target", id.into())]);
            assert_eq!(text(controller.until_end_of(id).last().unwrap(), "code"), "cancelled");
            let took = cancelled.elapsed();
            (took < Duration::from_secs(2), (kind, took))
        });
    }
}
