//! The program itself: its lines of JSON, its refusals and its exit codes.

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_bandwidth");

/// A listening program, killed when it is dropped.
struct Listening {
    program: Child,
    lines: Lines<BufReader<ChildStdout>>,
    port: String,
}

impl Listening {
    fn start(words: &[&str]) -> Self {
        let mut command = Command::new(PROGRAM);
        command.args(["listen", "--address", "127.0.0.1", "--port", "0"]).args(words).stdout(Stdio::piped());
        let mut program = command.spawn().unwrap();
        let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
        let listening: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        let address = listening["address"].as_str().unwrap();
        let port = address.rsplit(':').next().unwrap().to_owned();
        Self { program, lines, port }
    }

    fn next(&mut self) -> Value {
        serde_json::from_str(&self.lines.next().unwrap().unwrap()).unwrap()
    }

    fn limit_descriptors(&self, most: u32) {
        let words = [format!("--pid={}", self.program.id()), format!("--nofile={most}:")];
        assert!(Command::new("prlimit").args(words).status().unwrap().success());
    }

    /// The CPU time so far, in hundredths of a second.
    fn ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.program.id())).unwrap();
        let (_, behind_name) = stat.rsplit_once(')').unwrap();
        behind_name.split_whitespace().skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum()
    }

    fn signal(&self, signal: i32) {
        // SAFETY: signals a program that this test has started and not waited for.
        assert_eq!(unsafe { libc::kill(self.program.id() as i32, signal) }, 0);
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

/// Exit code, lines, and what stands on the error output.
fn run(words: &[&str]) -> (i32, Vec<Value>, String) {
    let output = Command::new(PROGRAM).args(words).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (output.status.code().unwrap(), lines, String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_session_is_told_at_both_ends_and_the_listener_ends_when_it_is_told_to() {
    let mut listening = Listening::start(&[]);
    let (code, lines, _) = run(&["stream", "127.0.0.1", "--port", &listening.port, "--packets", "50", "--rate", "6e6"]);
    assert_eq!((code, lines.len()), (0, 2));
    assert_eq!((&lines[0]["event"], &lines[0]["no_kernel_stamps"]), (&"session".into(), &Value::Null));
    let result = &lines[1];
    assert_eq!(
        (&result["received"], &result["lost"], &result["tally"]["packets"]),
        (&50.into(), &0.into(), &58.into())
    );
    assert_eq!(result["received_gaps_ns"].as_array().unwrap().len(), 49);
    assert_eq!(result["timing"]["clock"], "hptime");
    let (opened, closed) = (listening.next(), listening.next());
    assert_eq!((&opened["event"], &closed["event"]), (&"opened".into(), &"closed".into()));
    assert_eq!((&closed["reason"], &closed["packets"]), (&"the sender has finished".into(), &58.into()));
    listening.signal(libc::SIGTERM);
    assert_eq!(listening.program.wait().unwrap().code(), Some(0));
}

#[test]
fn a_listener_without_a_descriptor_left_waits_without_work_and_goes_on_when_there_is_one() {
    let mut listening = Listening::start(&["--sessions", "1"]);
    listening.limit_descriptors(3);
    let stream = std::net::TcpStream::connect(format!("127.0.0.1:{}", listening.port)).unwrap();
    let before = listening.ticks();
    std::thread::sleep(Duration::from_millis(1500));
    let worked = listening.ticks() - before;
    listening.limit_descriptors(1000);
    drop(stream);
    assert_eq!(listening.next()["event"], "refused");
    assert!(worked < 30, "{worked} hundredths of a second of CPU time in 1.5 s");
}

#[test]
fn an_estimate_ends_with_a_result_that_says_what_it_rests_on() {
    let listening = Listening::start(&["--sessions", "1"]);
    // One search: the original ends at its own ceiling, or at what a busy machine's loopback shows.
    let settings = r#"{"effort": {"fewest_instants": 1, "most_instants": 1}}"#;
    let words = ["estimate", "127.0.0.1", "--port", &listening.port, "--estimator", "yaz-original"];
    let (code, lines, said) = run(&[&words[..], &["--settings", settings, "--calibration", "none"]].concat());
    let last = lines.last().unwrap();
    if code == 0 {
        assert_eq!((&last["event"], &last["settings"]["estimator"]), (&"result".into(), &"yaz-original".into()));
        let estimate = &last["outcome"]["estimate"];
        let available_bps = estimate["available_bps"].as_f64().unwrap();
        assert!(0.0 < available_bps && available_bps <= 300e6, "{estimate}");
        assert!(last["tally"]["bytes"].as_u64() > last["outcome"]["bytes"].as_u64());
    } else {
        // A machine on which nothing arrives as it was sent has no answer, and says so.
        assert_eq!((code, &last["kind"]), (1, &"no_answer".into()), "{said}");
    }
}

#[test]
fn an_estimate_tells_how_it_kept_its_time_whether_it_found_something_or_not() {
    let token = "0123456789abcdef".repeat(2);
    let listening = Listening::start(&["--token", &token]);
    let estimate = |words: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command.args(["estimate", "127.0.0.1", "--port", &listening.port, "--calibration", "none", "--instants", "2"]);
        // Not among the words, which all users of a machine may read.
        let output = command.args(words).env("VIRTGAUGE_BANDWIDTH_TOKEN", &token).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        serde_json::from_str::<Value>(text.lines().last().unwrap()).unwrap()
    };
    let found = estimate(&["--estimator", "yaz-original", "--highest", "24e6"]);
    // A machine on which nothing arrives as it was sent has no answer.
    assert!(found["event"] == "result" || found["kind"] == "no_answer", "{found}");
    if found["event"] == "result" {
        assert_eq!(found["settings"]["first_gap_us"], 500);
        let instants = found["outcome"]["instants"].as_array().unwrap();
        assert!(
            instants.len() == 2 && instants.iter().all(|instant| instant["streams"].as_u64() >= Some(1)),
            "{found}"
        );
    }
    let refused = estimate(&["--estimator", "kite2", "--lowest", "9e11", "--highest", "1e12"]);
    assert_eq!((&refused["event"], &refused["kind"]), (&"error".into(), &"cannot_pace".into()), "{refused}");
    // No gap of such a rate can be kept, so that no stream with gaps was sent.
    assert_eq!((&refused["gaps"], &refused["lateness"]), (&Value::Null, &Value::Null), "{refused}");
    assert_eq!((&refused["max_paced_bps"], &refused["asked_bps"]), (&0.0.into(), &9e11.into()), "{refused}");
    for (name, unit) in [("gaps", "permille"), ("lateness", "ns")] {
        let counts = found[name]["counts"].as_array().unwrap();
        let counted: u64 = counts.iter().map(|count| count.as_u64().unwrap()).sum();
        assert_eq!((&found[name]["unit"], &found[name]["n"]), (&unit.into(), &counted.into()), "{found}");
        assert!(counted >= 49, "{found}");
    }
    for event in [&found, &refused] {
        assert_eq!(event["stamp"], "kernel", "{event}");
        assert!(event["tally"]["streams"].as_u64() >= Some(1) && event["limits"].is_object(), "{event}");
    }
}

#[test]
fn cross_traffic_is_sent_until_it_is_told_to_end_and_counted() {
    let receiver = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let to = receiver.local_addr().unwrap().to_string();
    // A hundred a second, which wait at the socket however long this machine pauses.
    let words = ["cross-traffic", &to, "--rate", "8e5", "--packet-bytes", "1000", "--kind", "poisson"];
    let mut program = Command::new(PROGRAM).args(words).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("sending"));
    let mut came = 0;
    while came < 20 {
        assert_eq!(receiver.recv(&mut [0; 1500]).unwrap(), 1000 - 28);
        came += 1;
    }
    // SAFETY: signals a program that this test has started and not waited for.
    assert_eq!(unsafe { libc::kill(program.id() as i32, libc::SIGTERM) }, 0);
    let result: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(program.wait().unwrap().code(), Some(0));
    receiver.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    while receiver.recv(&mut [0; 1500]).is_ok() {
        came += 1;
    }
    assert_eq!((&result["sent"]["packets"], &result["sent"]["bytes"]), (&came.into(), &(1000 * came).into()));
    // For a given time, by itself.
    let (code, lines, _) = run(&["cross-traffic", &to, "--rate", "8e6", "--seconds", "0.01"]);
    assert_eq!((code, lines.last().unwrap()["sent"]["packets"].as_u64() >= Some(1)), (0, true));
}

#[test]
fn a_rate_that_the_host_cannot_pace_is_refused_with_the_figure_before_anybody_is_called() {
    // Nobody listens at this port.
    let words = ["estimate", "127.0.0.1", "--port", "1", "--rate", "1e12"];
    let (code, lines, said) = run(&words);
    let error = lines.last().unwrap();
    assert_eq!((code, &error["event"], &error["kind"]), (1, &"error".into(), &"cannot_pace".into()), "{said}");
    assert_eq!(error["asked_bps"], 1e12);
    let max_paced_bps = error["max_paced_bps"].as_f64().unwrap();
    assert!(max_paced_bps < 1e12 && said.contains(&format!("{:.1} Mbit/s", max_paced_bps / 1e6)), "{said}");
    // The pacing sweep refuses it just as well.
    let (code, lines, _) = run(&["pacing-sweep", "--methods", "send", "--duration-ms", "5", "--rate", "1e12"]);
    assert_eq!((code, &lines.last().unwrap()["kind"]), (1, &"cannot_pace".into()));
    assert_eq!(lines[0]["rung"]["method"], "send");
}

#[test]
fn what_is_not_possible_is_told_to_programs_and_to_people() {
    for (words, kind, said_to_people) in [
        (&["stream", "127.0.0.1", "--port", "1"][..], "peer_lost", "nothing listens"),
        (&["stream", "no-such-host.invalid"], "peer_lost", "no known host"),
        (&["stream", "127.0.0.1", "--rate", "1"], "invalid", "1e3"),
        (&["stream", "127.0.0.1", "--rate", "nan"], "invalid", "1e12"),
        (&["pacing-sweep", "--packet-bytes", "63"], "invalid", "64 to 9000"),
        (&["estimate", "127.0.0.1", "--estimator", "pathload"], "invalid", "kite2"),
        (&["estimate", "127.0.0.1", "--settings", r#"{"speed": 1}"#], "invalid", "speed"),
        (&["listen", "--address", "192.0.2.77"], "unsupported", "192.0.2.77"),
        (&["estimate", "127.0.0.1", "--estimator", "yaz-original", "--lowest", "1e6"], "invalid", "kite2"),
        (&["cross-traffic", "127.0.0.1:9", "--rate", "1"], "invalid", "1e3"),
        (&["cross-traffic", "127.0.0.1:9", "--rate", "1e6", "--packet-bytes", "9001"], "invalid", "64 to 9000"),
    ] {
        let (code, lines, said) = run(words);
        assert_eq!((code, &lines.last().unwrap()["kind"]), (1, &kind.into()), "{words:?}: {said}");
        assert!(said.contains(said_to_people), "{words:?}: {said}");
        assert!(lines.last().unwrap()["message"].as_str().unwrap().contains(said_to_people));
    }
}

#[test]
fn wrong_words_are_answered_with_the_usage() {
    for words in [
        &[][..],
        &["measure"],
        &["stream"],
        &["stream", "one", "two"],
        &["listen", "--speed", "1"],
        &["listen", "--stamps", "nobody"],
        &["stream", "127.0.0.1", "--clock", "sundial"],
        &["stream", "127.0.0.1", "--token", "123"],
        &["pacing-sweep", "--interface", "lo"],
        &["cross-traffic", "127.0.0.1:9"],
        &["cross-traffic", "127.0.0.1", "--rate", "1e6"],
        &["cross-traffic", "127.0.0.1:9", "--rate", "1e6", "--kind", "bursts", "--seconds", "0.1"],
        &["estimate", "127.0.0.1", "--settings", "[1]"],
        &["estimate", "127.0.0.1", "--calibration", "none", "--rate", "1e9"],
    ] {
        let (code, lines, said) = run(words);
        assert_eq!((code, lines.len()), (2, 0), "{words:?}: {said}");
        assert!(said.contains("usage: bandwidth listen"), "{words:?}: {said}");
    }
}

#[test]
fn a_sender_that_is_told_to_end_ends_with_a_word_and_says_goodbye() {
    let mut listening = Listening::start(&[]);
    let mut sender = Command::new(PROGRAM)
        // Fifty seconds.
        .args(["stream", "127.0.0.1", "--port", &listening.port, "--packets", "50000", "--rate", "12e6"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    assert_eq!(listening.next()["event"], "opened");
    let mut lines = BufReader::new(sender.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("session"));
    // SAFETY: signals a program that this test has started and not waited for.
    assert_eq!(unsafe { libc::kill(sender.id() as i32, libc::SIGINT) }, 0);
    let error: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!((&error["kind"], sender.wait().unwrap().code()), (&"cancelled".into(), Some(1)));
    assert_eq!(listening.next()["event"], "closed");
}
