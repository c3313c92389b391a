//! The embedded databases, by the executable: written, read back, killed, audited.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("sensorstore-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

fn command(name: &str, specification: &Value) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sensorstore"));
    command.args([name, &specification.to_string()]).stdout(Stdio::piped());
    command
}

fn told(name: &str, specification: &Value) -> Value {
    let output = command(name, specification).output().unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(i32::from(answer.get("error").is_some())), "{answer}");
    answer
}

/// Where DuckDB's library has been provided; without it there is no DuckDB to test.
fn duckdb() -> Option<PathBuf> {
    let cache = match std::env::var("XDG_CACHE_HOME") {
        Ok(folder) if folder.starts_with('/') => PathBuf::from(folder),
        _ => Path::new(&std::env::var("HOME").ok()?).join(".cache"),
    };
    Some(cache.join("virtgauge/databases/duckdb/current/libduckdb-in-python.so")).filter(|library| library.is_file())
}

fn stores(place: &Place) -> Vec<Value> {
    let mut stores = vec![json!({
        "driver": "sqlite", "path": place.0.join("sqlite.db"), "options": {"synchronous": "full", "checkpoint_ms": "50"},
    })];
    match duckdb() {
        Some(library) => stores.push(json!({"driver": "duckdb", "path": place.0.join("duck.db"), "library": library})),
        None => eprintln!("DuckDB has not been fetched, and is left out here"),
    }
    stores
}

fn data() -> Value {
    json!({"seed": 23, "sensors": 4})
}

#[test]
fn what_is_written_is_read_back_with_and_without_index_and_where_some_of_it_arrives_late() {
    let place = Place::new("round-trip");
    for store in stores(&place) {
        let late = json!({"seed": 23, "sensors": 4, "late": {"share": 0.05, "by": 100, "run": 20}});
        for (index, data) in [(false, data()), (true, data()), (true, late)] {
            let prepare = |drop| json!({"store": store, "index": index, "drop": drop, "data": data, "preload": 3000});
            assert_eq!(told("prepare", &prepare(true))["rows"], 12_000);
            assert_eq!(told("prepare", &prepare(false))["error"]["kind"], "exists");
            let stream = |operation, values| {
                json!({"operation": operation, "values": values, "clients": 1, "preload": 3000,
                       "loop": {"kind": "closed"}})
            };
            let measure = |streams: &[Value]| {
                // Where nobody is answered for a while, it is waited for.
                let spec = json!({"store": store, "data": data, "streams": streams, "warmup_ms": 0,
                                  "duration_ms": 1000, "least_operations": 16, "longer_ms": 60_000,
                                  "acknowledged": place.0.join("acknowledged")});
                for stream in told("measure", &spec)["streams"].as_array().unwrap() {
                    assert_eq!((&stream["errors"], &stream["wrong"]), (&json!(0), &json!(0)), "{stream}");
                    assert!(stream["operations"].as_u64().unwrap() > 0, "{store} {stream}");
                }
            };
            let asked = [("read", 1000), ("read", 1), ("last-value", 1), ("window", 1000)];
            measure(&asked.map(|(operation, values)| stream(operation, values)));
            let written = [stream("write", 1000), stream("write", 1)];
            measure(&written);
            let audited = told(
                "audit",
                &json!({"store": store, "data": data, "streams": written,
                                                "acknowledged": place.0.join("acknowledged")}),
            );
            assert!(audited["acknowledged_rows"].as_u64().unwrap() > 1000, "{audited}");
            assert_eq!((&audited["missing_rows"], &audited["wrong_rows"]), (&json!(0), &json!(0)), "{audited}");
        }
        assert_eq!(told("drop", &json!({"store": store})), json!({}));
    }
}

#[test]
fn a_table_that_is_missing_or_a_file_that_is_no_database_is_said_to_be() {
    let place = Place::new("missing");
    std::fs::write(place.0.join("letter"), "dear reader, this is no database of any kind".repeat(300)).unwrap();
    for store in stores(&place) {
        let streams = json!([{"operation": "write", "values": 1, "clients": 1, "loop": {"kind": "closed"}}]);
        let mut spec = json!({"store": store, "data": data(), "streams": streams, "warmup_ms": 0, "duration_ms": 100});
        assert_eq!(told("measure", &spec)["error"]["kind"], "schema");
        spec["store"]["path"] = json!(place.0.join("letter"));
        assert_eq!(told("measure", &spec)["error"]["kind"], "schema");
        spec["store"]["options"] = json!({"synchronus": "off"});
        assert_eq!(told("measure", &spec)["error"]["kind"], "bad-request");
    }
    let letter = std::fs::read_to_string(place.0.join("letter")).unwrap();
    assert!(letter.starts_with("dear reader"));
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn what_was_acknowledged_before_a_kill_is_there_after_it() {
    let place = Place::new("kill");
    for store in stores(&place) {
        told("prepare", &json!({"store": store, "index": true, "drop": false, "data": data(), "preload": 0}));
        let acknowledged = place.0.join(format!("acknowledged-{}", store["driver"].as_str().unwrap()));
        let streams = json!([{"operation": "write", "values": 7, "clients": 2, "loop": {"kind": "closed"}}]);
        let spec = json!({"store": store, "data": data(), "streams": streams, "acknowledged": acknowledged});
        let mut writing = spec.clone();
        writing["warmup_ms"] = json!(0);
        writing["duration_ms"] = json!(60_000);
        let mut writer = Killed(command("measure", &writing).spawn().unwrap());
        let begin = Instant::now();
        while std::fs::metadata(&acknowledged).map_or(0, |file| file.len()) < 24 + 30 * 16 {
            assert!(begin.elapsed() < Duration::from_secs(30), "nothing is acknowledged");
            std::thread::sleep(Duration::from_millis(5)); // thirty slots of 10 ms
        }
        writer.0.kill().unwrap();
        writer.0.wait().unwrap();
        let audited = told("audit", &spec);
        assert!(audited["acknowledged_rows"].as_u64().unwrap() > 0);
        assert_eq!((&audited["missing_rows"], &audited["wrong_rows"]), (&json!(0), &json!(0)), "{audited}");
        assert!(audited["unacknowledged_rows"].as_u64().unwrap() <= 14, "{audited}");
    }
}
