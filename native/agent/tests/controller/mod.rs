//! A controller for tests: starts the built agent and speaks the protocol over its pipes.  Nothing here waits without bound.

#![allow(dead_code, unreachable_pub, reason = "each test program includes it and uses its own part")]

#[path = "../../../tries.rs"]
pub mod tries;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rmpv::Value;

/// Longer than anything takes here, on a machine that is busy with other things, too.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// One agent and the pipes to it.
pub struct Controller {
    child: Child,
    stdin: Option<ChildStdin>,
    messages: Receiver<Value>,
    seq: u64,
    received: u64,
}

/// A map with text keys.
pub fn map(entries: &[(&str, Value)]) -> Value {
    Value::Map(entries.iter().map(|(key, value)| (Value::from(*key), value.clone())).collect())
}

/// The payload in a frame.
pub fn frame(payload: &[u8]) -> Vec<u8> {
    [&u32::try_from(payload.len()).unwrap().to_be_bytes()[..], payload].concat()
}

/// The value as bytes.
pub fn packed(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    rmpv::encode::write_value(&mut bytes, value).unwrap();
    bytes
}

/// A field of a message, by path.
pub fn field<'a>(message: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(message, |value, key| {
        let entries = value.as_map().unwrap_or_else(|| panic!("no map around {key} in {message}"));
        let found = entries.iter().find(|(name, _)| name.as_str() == Some(key));
        &found.unwrap_or_else(|| panic!("no {key} ({path}) in {message}")).1
    })
}

pub fn text<'a>(message: &'a Value, path: &str) -> &'a str {
    field(message, path).as_str().unwrap_or_else(|| panic!("{path} is no text in {message}"))
}

pub fn unsigned(message: &Value, path: &str) -> u64 {
    field(message, path).as_u64().unwrap_or_else(|| panic!("{path} is no unsigned integer in {message}"))
}

pub fn signed(message: &Value, path: &str) -> i64 {
    field(message, path).as_i64().unwrap_or_else(|| panic!("{path} is no integer in {message}"))
}

pub fn real(message: &Value, path: &str) -> f64 {
    field(message, path).as_f64().unwrap_or_else(|| panic!("{path} is no number in {message}"))
}

/// 64-bit integers from little endian bytes.
pub fn integers(message: &Value, path: &str) -> Vec<i64> {
    let Value::Binary(bytes) = field(message, path) else { panic!("{path} is not binary") };
    bytes.chunks_exact(8).map(|chunk| i64::from_le_bytes(chunk.try_into().unwrap())).collect()
}

/// Runs `ip` in the calling thread's namespace.
pub fn ip(words: &str) {
    let output = Command::new("ip").args(words.split(' ')).output().unwrap();
    assert!(output.status.success(), "ip {words}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A port of TCP that nobody uses at the moment.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Parameters of `timer_cost`.
pub fn timer_cost(function: &str, samples: u64) -> Value {
    map(&[
        ("function", function.into()),
        ("samples", samples.into()),
        ("max_ns", 30_000_000_000u64.into()),
        ("reservoir", 100.into()),
        ("seed", 7.into()),
    ])
}

/// Parameters of `sleep_lateness`.
pub fn sleep_lateness(function: &str, target_ns: u64, samples: u64) -> Value {
    map(&[
        ("function", function.into()),
        ("target_ns", target_ns.into()),
        ("samples", samples.into()),
        ("max_ns", 30_000_000_000u64.into()),
        ("slack_ns", 0.into()),
        ("policy", "other".into()),
        ("idle_states", "default".into()),
        ("reservoir", 100.into()),
        ("seed", 7.into()),
    ])
}

impl Controller {
    /// Starts an agent, without a word to it.
    pub fn silent() -> Self {
        Self::silent_in(Path::new("."))
    }

    /// The same, in a folder.
    pub fn silent_in(folder: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_virtgauge-agent"))
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut stdout = child.stdout.take().unwrap();
        let (sender, messages) = channel();
        thread::spawn(move || {
            let mut header = [0; 4];
            while stdout.read_exact(&mut header).is_ok() {
                let mut payload = vec![0; u32::from_be_bytes(header) as usize];
                stdout.read_exact(&mut payload).expect("the agent must not end inside a frame");
                let message = rmpv::decode::read_value(&mut payload.as_slice()).unwrap();
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let stdin = child.stdin.take();
        Self { child, stdin, messages, seq: 0, received: 0 }
    }

    /// Starts an agent and greets it.
    pub fn greeted() -> Self {
        Self::silent().greet()
    }

    /// Greets it.
    pub fn greet(mut self) -> Self {
        let roots = Value::Array(vec![std::env::temp_dir().to_str().unwrap().into()]);
        self.send("hello", &[("protocol", 1.into()), ("token", "token".into()), ("roots", roots)]);
        let welcome = self.receive();
        assert_eq!(text(&welcome, "type"), "welcome", "{welcome}");
        self
    }

    /// Starts an agent in a network namespace of its own, where something was done before, and greets it.
    pub fn apart(prepare: fn()) -> Self {
        let started = thread::spawn(move || {
            // SAFETY: no memory is involved.
            let answer = unsafe { libc::unshare(libc::CLONE_NEWNET) };
            assert_eq!(answer, 0, "this test makes network namespaces and must run as root");
            prepare();
            Self::greeted()
        });
        started.join().unwrap()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a well-formed message.
    pub fn send(&mut self, kind: &str, fields: &[(&str, Value)]) {
        let head = [("seq", Value::from(self.seq)), ("type", Value::from(kind))];
        self.seq += 1;
        self.send_bytes(&frame(&packed(&map(&[&head, fields].concat()))));
    }

    /// Sends anything.  An agent that does not listen any more is no failure here.
    pub fn send_bytes(&mut self, bytes: &[u8]) {
        let _ = self.stdin.as_mut().unwrap().write_all(bytes);
    }

    /// Closes the agent's input.
    pub fn hang_up(&mut self) {
        self.stdin = None;
    }

    /// The next message; `None` when the agent has closed.  Checks the numbering.
    pub fn next(&mut self) -> Option<Value> {
        match self.messages.recv_timeout(PATIENCE) {
            Ok(message) => {
                assert_eq!(unsigned(&message, "seq"), self.received, "{message}");
                self.received += 1;
                Some(message)
            }
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("the agent says nothing"),
        }
    }

    pub fn receive(&mut self) -> Value {
        self.next().expect("the agent closed")
    }

    /// Messages up to the one that ends this request.
    pub fn until_end_of(&mut self, id: u64) -> Vec<Value> {
        let mut messages = Vec::new();
        loop {
            let message = self.receive();
            let ends =
                matches!(text(&message, "type"), "result" | "error") && field(&message, "id").as_u64() == Some(id);
            messages.push(message);
            if ends {
                return messages;
            }
        }
    }

    /// Sends a request and returns its end.
    pub fn ask(&mut self, id: u64, kind: &str, fields: &[(&str, Value)]) -> Value {
        self.send(kind, &[&[("id", Value::from(id))], fields].concat());
        self.until_end_of(id).pop().unwrap()
    }

    pub fn start_probe(&mut self, id: u64, name: &str, params: Value) {
        self.send("probe", &[("id", id.into()), ("name", name.into()), ("params", params)]);
    }

    /// The exit code, within bounds.
    pub fn exit_code(&mut self) -> Option<i32> {
        let started = Instant::now();
        while started.elapsed() < PATIENCE {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            thread::sleep(Duration::from_millis(2));
        }
        panic!("the agent does not exit");
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
