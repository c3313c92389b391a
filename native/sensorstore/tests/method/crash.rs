//! What was acknowledged and is gone is found.

use std::collections::BTreeMap;
use std::path::PathBuf;

use sensorstore::audit::{Audited, audit};
use sensorstore::generator::Data;
use sensorstore::store::Store;
use serde_json::{Value, json};

use crate::memory::{Memory, specification};
use crate::tries::in_one_of_five;

const DATA: Data = Data { seed: 11, sensors: 8, step_ms: 1000, late: None };

fn streams() -> Value {
    json!([
        {"operation": "write", "values": 10, "clients": 2, "preload": 5,
         "loop": {"kind": "open", "rate_per_s": 200, "arrivals": "even"}},
        {"operation": "write", "values": 1, "clients": 1,
         "loop": {"kind": "open", "rate_per_s": 100, "arrivals": "even"}},
    ])
}

/// 200 statements a second of ten readings, and 100 of one, for half a second; then the accident, then the audit.  Also
/// answers how many readings had been written.
fn audited(name: &str, accident: impl FnOnce(&mut BTreeMap<i64, f64>)) -> (u64, Audited) {
    audited_of(name, &json!({"seed": 11, "sensors": 8}), accident)
}

fn audited_of(name: &str, data: &Value, accident: impl FnOnce(&mut BTreeMap<i64, f64>)) -> (u64, Audited) {
    let mut memory = Memory::new(|_| Ok(()));
    let path: PathBuf = std::env::temp_dir().join(format!("sensorstore-crash-{name}-{}", std::process::id()));
    let mut written = specification(500, &streams());
    written["acknowledged"] = json!(path);
    written["data"] = data.clone();
    // Without a pause, which would leave little to lose, and be in what is told of when that had been acknowledged.
    in_one_of_five(|| {
        memory = Memory::new(|_| Ok(()));
        let streams = memory.measure(written.clone()).streams;
        let slowest: Vec<_> =
            streams.iter().map(|stream| stream.response.as_ref().and_then(|response| response.max)).collect();
        let unstarted: u64 = streams.iter().map(|stream| stream.unstarted).sum();
        let in_time = slowest.iter().all(|&slowest| slowest.is_some_and(|slowest| slowest < 60_000_000));
        (in_time && unstarted == 0, (slowest, unstarted))
    });
    let rows = memory.count().unwrap();
    accident(memory.rows.lock().unwrap().get_mut(&DATA.sensor(2)).unwrap()); // the second stream's
    let spec = json!({
        "store": {"driver": "none"}, "data": data, "acknowledged": path, "streams": streams(),
    });
    let audited = audit(&serde_json::from_value(spec).unwrap(), &memory).unwrap();
    std::fs::remove_file(path).unwrap();
    (rows, audited)
}

#[test]
fn nothing_is_missed_where_nothing_is_lost() {
    let (acknowledged_rows, audited) = audited("nothing", |_| ());
    assert!(acknowledged_rows > 0);
    assert_eq!(audited, Audited { acknowledged_rows, ..Audited::default() });
}

#[test]
fn readings_that_arrive_late_are_each_found_once_and_missed_where_they_are_gone() {
    let late = json!({"seed": 11, "sensors": 8, "late": {"share": 0.2, "by": 7, "run": 3}});
    let (rows, audited) = audited_of("late", &late, |written| {
        written.remove(&DATA.timestamp(9)).unwrap();
    });
    assert_eq!((audited.acknowledged_rows, audited.missing_rows), (rows, 1));
    assert_eq!((audited.wrong_rows, audited.unacknowledged_rows), (0, 0));
    assert!(audited.first_missing.unwrap().contains("reading 9 of"));
}

#[test]
fn rows_that_are_gone_are_counted_and_the_first_is_named() {
    let mut first = 0;
    let (rows, audited) = audited("gone", |last| {
        for _ in 0..20 {
            last.pop_last(); // one every 10 ms
        }
        first = last.len();
    });
    assert_eq!((audited.acknowledged_rows, audited.missing_rows, audited.wrong_rows), (rows, 20, 0));
    assert!(audited.first_missing.unwrap().contains(&format!("reading {first} of")));
    let (oldest, newest) = (audited.oldest_lost_ms.unwrap(), audited.newest_lost_ms.unwrap());
    assert!((100..=400).contains(&oldest) && newest + 100 <= oldest, "{oldest} {newest}");
}

#[test]
fn rows_that_are_changed_or_come_from_nowhere_are_wrong_and_those_on_their_way_are_not() {
    let (_, audited) = audited("changed", |rows| {
        *rows.get_mut(&DATA.timestamp(7)).unwrap() += 1.0;
        rows.insert(DATA.timestamp(5) + 1, 3.0);
        let behind = rows.len() as u64 - 1;
        rows.insert(DATA.timestamp(behind), DATA.value(2, behind)); // written, and not acknowledged in time
    });
    assert_eq!((audited.missing_rows, audited.wrong_rows, audited.unacknowledged_rows), (0, 2, 1));
}
