//! Every answer is checked, and what makes no sense is refused.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sensorstore::failure::Kind;
use sensorstore::measure::measure;
use sensorstore::store::Reading;
use serde_json::json;

use crate::memory::{Memory, specification};

fn asked_distorted(
    asks: &str,
    values: u64,
    distort: impl Fn(&mut Vec<Reading>) + Send + Sync + 'static,
) -> (u64, String) {
    let mut memory = Memory::new(|_| Ok(()));
    for sensor in 0..8 {
        memory.preload(sensor, 500);
    }
    memory.distort = Arc::new(move |number, answer| {
        if number == 3 {
            distort(answer);
        }
    });
    let streams = json!([{"operation": asks, "values": values, "clients": 1, "preload": 500,
                          "loop": {"kind": "closed"}}]);
    let mut asked = specification(50, &streams);
    // However long it takes, until there were eight answers, or a wrong one.
    asked["least_operations"] = json!(8);
    asked["longer_ms"] = json!(60_000);
    let stream = memory.measure(asked).streams.remove(0);
    let statements = memory.statements.load(Ordering::Relaxed);
    assert!(statements > 3, "{statements}");
    assert_eq!((stream.answered + stream.wrong, stream.errors), (statements, 0));
    if stream.wrong > 0 {
        assert_eq!(stream.first_error_kind, Some(Kind::WrongAnswer));
    }
    (stream.wrong, stream.first_error.unwrap_or_default())
}

fn read_distorted(distort: impl Fn(&mut Vec<Reading>) + Send + Sync + 'static) -> (u64, String) {
    asked_distorted("read", 100, distort)
}

#[test]
fn right_answers_are_right() {
    assert_eq!(read_distorted(|_| ()), (0, String::new()));
}

#[test]
fn one_wrong_answer_among_many_is_found() {
    let (wrong, said) = read_distorted(|answer| answer.truncate(99));
    assert!(wrong == 1 && said.contains("99 were answered, not 100"), "{said}");
    let (wrong, said) = read_distorted(|answer| answer[57].value = -answer[57].value);
    assert!(wrong == 1 && said.contains("the value"), "{said}");
    let (wrong, said) = read_distorted(|answer| answer.swap(10, 11));
    assert!(wrong == 1 && said.contains("order of time"), "{said}");
}

#[test]
fn a_last_value_that_is_not_the_newest_and_a_window_that_is_reckoned_otherwise_are_found() {
    assert_eq!(asked_distorted("last-value", 1, |_| ()), (0, String::new()));
    assert_eq!(asked_distorted("window", 100, |_| ()), (0, String::new()));
    let (wrong, said) = asked_distorted("last-value", 1, |answer| answer.truncate(499));
    assert!(wrong == 1 && said.contains("readings 499 to 499") && said.contains("was written"), "{said}");
    let (wrong, said) = asked_distorted("last-value", 1, Vec::clear);
    assert!(wrong == 1 && said.contains("0 were answered, not 1"), "{said}");
    let (wrong, said) = asked_distorted("window", 100, |answer| answer.truncate(99));
    assert!(wrong == 1 && said.contains("count: 99"), "{said}");
    let (wrong, said) = asked_distorted("window", 100, |answer| answer[57].value += 500.0);
    assert!(wrong == 1 && said.contains("written were count 100"), "{said}");
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_begins() {
    let memory = Memory::new(|_| Ok(()));
    let stream = json!({"operation": "write", "values": 1, "clients": 1, "loop": {"kind": "closed"}});
    for (field, value, said) in [
        ("clients", json!(9), "every writing client needs its own"),
        ("clients", json!(0), "at least 1"),
        ("values", json!(0), "at least 1"),
        ("operation", json!("read"), "preloaded"),
        ("loop", json!({"kind": "open", "rate_per_s": 0, "arrivals": "even"}), "rate_per_s"),
        ("loop", json!({"kind": "burst", "every_ms": 1, "size": 0}), "burst"),
    ] {
        let mut stream = stream.clone();
        stream[field] = value;
        let spec = serde_json::from_value(specification(100, &json!([stream]))).unwrap();
        let failure = measure(&spec, &memory).unwrap_err();
        assert!(failure.kind == Kind::BadRequest && failure.message.contains(said), "{failure:?}");
    }
    let mut late = specification(100, &json!([stream]));
    for (share, by, run) in [(0.6, 1, 1), (-0.1, 1, 1), (0.1, 0, 1), (0.1, 1, 0), (0.1, 1, 2_000_000)] {
        late["data"]["late"] = json!({"share": share, "by": by, "run": run});
        let failure = measure(&serde_json::from_value(late.clone()).unwrap(), &memory).unwrap_err();
        assert!(failure.kind == Kind::BadRequest && failure.message.contains("data.late"), "{failure:?}");
    }
    let open = json!([{"operation": "write", "values": 1, "clients": 1,
                       "loop": {"kind": "open", "rate_per_s": 1, "arrivals": "even"}}]);
    let mut asked = specification(100, &open);
    asked["least_operations"] = json!(8);
    let failure = measure(&serde_json::from_value(asked).unwrap(), &memory).unwrap_err();
    assert!(failure.kind == Kind::BadRequest && failure.message.contains("least_operations"), "{failure:?}");
    assert!(memory.rows.lock().unwrap().is_empty());
}
