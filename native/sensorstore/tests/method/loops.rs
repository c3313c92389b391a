//! Closed loop, open loop, bursts and pipelining, of stores whose service time is known.
//!
//! A pause of the machine makes fewer statements, later ones, and longer answers: what it cannot break is asserted of
//! each try, the rest holds in one of five.

use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::Duration;

use sensorstore::failure::{Failure, Kind};
use sensorstore::histogram::Distribution;
use sensorstore::measure::Measured;
use serde_json::json;

use crate::memory::{Memory, specification};
use crate::tries::in_one_of_five;

const MS: u64 = 1_000_000;

fn at_least(distribution: &Distribution, duration: u64) -> u64 {
    let bins = distribution.values.iter().zip(&distribution.counts);
    bins.filter(|(value, _)| **value >= duration).map(|(_, count)| count).sum()
}

/// A store whose every statement, or batch of them, takes so many milliseconds.
fn taking(milliseconds: u64) -> Memory {
    Memory::new(move |_| {
        sleep(Duration::from_millis(milliseconds));
        Ok(())
    })
}

#[test]
fn clients_of_a_closed_loop_are_always_waiting_for_an_answer() {
    let streams = json!([{"operation": "write", "values": 3, "clients": 2, "loop": {"kind": "closed"}}]);
    in_one_of_five(|| {
        let measured = taking(2).measure(specification(300, &streams));
        let stream = &measured.streams[0];
        assert_eq!((measured.elapsed_ns, stream.rows), (300 * MS, stream.operations * 3));
        assert!(stream.service.min.is_none_or(|min| min >= 2 * MS));
        assert!(stream.response.is_none());
        let each = &stream.per_client;
        assert!(each.iter().all(|&operations| operations <= 150), "{each:?}");
        assert_eq!(stream.slices.iter().sum::<u64>(), stream.operations);
        assert_eq!(stream.slices.len(), 3);
        // Little's law: the clients that are being served, on average, are all the clients.
        let served = stream.service.mean.unwrap_or(0.0) * stream.operations as f64 / measured.elapsed_ns as f64;
        assert!(served < 2.1, "{served}");
        let busy = each.iter().all(|&operations| operations >= 2) && served >= 1.3;
        // Clients that sleep cost nothing; other tests run in this process, and may cost something.
        (busy && measured.cpu_ns < measured.elapsed_ns, (each.clone(), served, measured.cpu_ns))
    });
}

/// A measurement of one closed loop, with a warm-up.
fn closed(memory: &Memory, clients: u64, pipeline: u64, warmup_ms: u64, duration_ms: u64, least: u64) -> Measured {
    let streams = json!([{"operation": "write", "values": 1, "clients": clients, "pipeline": pipeline,
                          "loop": {"kind": "closed"}}]);
    let mut asked = specification(duration_ms, &streams);
    asked["warmup_ms"] = json!(warmup_ms);
    asked["least_operations"] = json!(least);
    asked["longer_ms"] = json!(60_000);
    memory.measure(asked)
}

#[test]
fn a_closed_loop_s_rate_is_the_same_wherever_in_a_cycle_the_span_begins_and_ends() {
    // Of 100 ms each, 440 ms hold 4 or 5, which would be 9.1 and 11.4 a second.
    for (warmup_ms, pipeline) in [(0, 1), (60, 1), (90, 1), (90, 8)] {
        in_one_of_five(|| {
            let stream = closed(&taking(100), 2, pipeline, warmup_ms, 440, 0).streams.remove(0);
            let per_s = stream.operations_per_s / (2 * pipeline) as f64;
            assert!(per_s <= 10.01, "{per_s} a second of each client, warm-up {warmup_ms} ms");
            (per_s >= 7.0, (per_s, warmup_ms))
        });
    }
}

#[test]
fn a_closed_loop_is_measured_until_each_client_has_had_enough() {
    in_one_of_five(|| {
        let measured = closed(&taking(40), 2, 1, 0, 100, 8);
        let stream = &measured.streams[0];
        assert!(stream.per_client.iter().all(|&operations| operations >= 8), "{:?}", stream.per_client);
        assert!(measured.elapsed_ns >= 300 * MS, "{}", measured.elapsed_ns);
        assert!(stream.operations_per_s <= 50.1, "{}", stream.operations_per_s);
        // Where a client pauses between its look at the clock and the end that it sets, the other answers beyond it.
        let counted: u64 = stream.slices.iter().sum();
        let in_time = measured.elapsed_ns < 2000 * MS && stream.operations_per_s >= 20.0;
        let told = (measured.elapsed_ns, stream.operations_per_s, counted, stream.operations);
        (in_time && counted == stream.operations, told)
    });
    // Of quick statements the span is as long as was asked for.
    in_one_of_five(|| {
        let elapsed_ns = closed(&Memory::new(|_| Ok(())), 2, 1, 0, 1000, 8).elapsed_ns;
        assert!(elapsed_ns >= 1000 * MS, "{elapsed_ns}");
        (elapsed_ns == 1000 * MS, elapsed_ns)
    });
}

#[test]
fn answers_to_a_pipeline_are_one_of_those_that_are_waited_for() {
    in_one_of_five(|| {
        let stream = closed(&taking(40), 1, 32, 0, 50, 8).streams.remove(0);
        assert!(stream.operations >= 8 * 32, "{}", stream.operations);
        assert!(stream.operations_per_s <= 800.1, "{}", stream.operations_per_s);
        (stream.operations_per_s >= 300.0, stream.operations_per_s)
    });
}

#[test]
fn nobody_waits_for_clients_that_fail() {
    for kind in [Kind::Denied, Kind::Database, Kind::Full] {
        in_one_of_five(|| {
            let memory = Memory::new(move |_| Err(Failure::new(kind, "no")));
            let measured = closed(&memory, 2, 1, 0, 300, 8);
            assert!(measured.streams[0].operations_per_s == 0.0, "{kind:?}");
            // A first failure that comes after the span ends it then.
            (measured.elapsed_ns <= 300 * MS, (kind, measured.elapsed_ns))
        });
    }
}

#[test]
fn nobody_waits_for_a_client_whose_turn_hardly_comes() {
    in_one_of_five(|| {
        // The first statement of all takes longer than the others' thousands.
        let memory = Memory::new(|number| {
            sleep(Duration::from_micros(if number == 0 { 3_000_000 } else { 500 }));
            Ok(())
        });
        let measured = closed(&memory, 2, 1, 0, 100, 8);
        assert!(measured.streams[0].operations >= 8 * 8 * 2);
        (measured.elapsed_ns < 2000 * MS, measured.elapsed_ns)
    });
}

#[test]
fn what_an_open_loop_brings_is_told_though_it_is_ever_further_behind() {
    let due = json!({"kind": "open", "rate_per_s": 1000, "arrivals": "even"});
    let streams = json!([{"operation": "write", "values": 1, "clients": 1, "loop": due}]);
    let mut asked = specification(200, &streams);
    asked["warmup_ms"] = json!(200);
    in_one_of_five(|| {
        let stream = taking(10).measure(asked.clone()).streams.remove(0);
        // What was due in the warm-up is answered in the span, and what was due in the span is not.
        assert_eq!((stream.operations, stream.unstarted), (0, 200));
        assert!(stream.operations_per_s <= 100.0, "{}", stream.operations_per_s);
        (stream.operations_per_s >= 50.0, stream.operations_per_s)
    });
}

#[test]
fn a_stall_is_felt_by_every_statement_that_was_to_begin_in_it() {
    let paced = json!({"kind": "open", "rate_per_s": 200, "arrivals": "even"});
    let streams = json!([{"operation": "write", "values": 1, "clients": 1, "loop": paced}]);
    in_one_of_five(|| {
        let memory = Memory::new(|number| {
            if number == 60 {
                sleep(Duration::from_millis(400));
            }
            Ok(())
        });
        let stream = memory.measure(specification(1000, &streams)).streams.remove(0);
        let response = stream.response.unwrap();
        assert_eq!((stream.operations + stream.unstarted, response.n), (200, 200));
        // Those of the first 300 ms of the stall waited for 100 ms or longer: 60, and the one that stalled.
        let (stalled, waited) = (at_least(&stream.service, 400 * MS), at_least(&response, 100 * MS));
        assert!(waited >= 60, "{waited}");
        let told = (stalled, waited, response.mean, stream.service.mean);
        let felt = response.mean > stream.service.mean.map(|mean| 10.0 * mean);
        // One statement was served slowly.
        (stalled == 1 && waited <= 150 && felt, told)
    });
}

#[test]
fn what_a_loop_cannot_begin_in_time_is_told_and_waits_until_the_end() {
    let paced = json!({"kind": "open", "rate_per_s": 1000, "arrivals": "even"});
    let streams = json!([{"operation": "write", "values": 1, "clients": 1, "loop": paced}]);
    let stream = taking(5).measure(specification(500, &streams)).streams.remove(0);
    let response = stream.response.unwrap();
    assert_eq!((stream.operations + stream.unstarted, response.n), (500, 500));
    assert!(stream.unstarted >= 390, "{}", stream.unstarted);
    assert!(response.max.unwrap() >= 380 * MS);
}

#[test]
fn statements_of_a_burst_wait_for_each_other() {
    let bursts = json!({"kind": "burst", "every_ms": 100, "size": 4});
    let streams = json!([{"operation": "write", "values": 1, "clients": 1, "loop": bursts}]);
    in_one_of_five(|| {
        let stream = taking(5).measure(specification(300, &streams)).streams.remove(0);
        assert_eq!(stream.operations + stream.unstarted, 12);
        assert!(at_least(&stream.response.unwrap(), 20 * MS) >= 3, "the fourth of each waits for three others");
        (stream.operations == 12, stream.operations)
    });
}

#[test]
fn a_burst_is_shared_among_the_clients() {
    let bursts = json!({"kind": "burst", "every_ms": 1000, "size": 4});
    let streams = json!([{"operation": "write", "values": 1, "clients": 4, "loop": bursts}]);
    in_one_of_five(|| {
        let stream = taking(200).measure(specification(500, &streams)).streams.remove(0);
        assert_eq!(stream.operations + stream.unstarted, 4);
        // One that pauses finds its share taken.
        (stream.per_client == [1; 4], stream.per_client)
    });
}

#[test]
fn pipelined_statements_share_a_round_trip_and_none_is_left_out() {
    let streams = json!([{"operation": "write", "values": 2, "clients": 1, "pipeline": 8, "loop": {"kind": "closed"}}]);
    in_one_of_five(|| {
        let memory = taking(5);
        let stream = memory.measure(specification(200, &streams)).streams.remove(0);
        let batches = memory.statements.load(Ordering::Relaxed);
        assert!(stream.operations <= 8 * batches, "{} of {batches} batches", stream.operations);
        let rows = memory.rows.lock().unwrap();
        let kept: Vec<i64> = rows.values().flat_map(|sensor| sensor.keys().copied()).collect();
        assert_eq!(kept.len() as u64, batches * 16);
        assert!(kept.windows(2).all(|pair| pair[1] - pair[0] == 1000));
        // The span may end amid the answers to a batch.
        (stream.operations >= 8 && stream.operations % 8 == 0, stream.operations)
    });
}

#[test]
fn a_pipeline_takes_what_is_due_and_waits_for_no_more() {
    let paced = json!({"kind": "open", "rate_per_s": 400, "arrivals": "even"});
    let streams = json!([{"operation": "write", "values": 1, "clients": 1, "pipeline": 64, "loop": paced}]);
    in_one_of_five(|| {
        let memory = taking(20);
        let stream = memory.measure(specification(500, &streams)).streams.remove(0);
        assert_eq!(stream.operations + stream.unstarted, 200);
        // Sent in several batches, as they became due.
        let batches = memory.statements.load(Ordering::Relaxed);
        (stream.unstarted <= 50 && batches >= 5, (stream.unstarted, batches))
    });
}

#[test]
fn streams_run_side_by_side_each_at_its_own_pace() {
    let paced = |rate| json!({"kind": "open", "rate_per_s": rate, "arrivals": "even"});
    let streams = json!([
        {"operation": "write", "values": 1, "clients": 2, "preload": 100, "loop": paced(100)},
        {"operation": "read", "values": 50, "clients": 1, "preload": 100, "loop": paced(50)},
    ]);
    in_one_of_five(|| {
        let memory = Memory::new(|_| Ok(()));
        for sensor in 0..8 {
            memory.preload(sensor, 100);
        }
        let measured = memory.measure(specification(200, &streams));
        let intended: Vec<_> = measured.streams.iter().map(|stream| stream.operations + stream.unstarted).collect();
        assert_eq!(intended, [20, 10]);
        for (stream, values) in measured.streams.iter().zip([1, 50]) {
            assert_eq!((stream.rows, stream.wrong, stream.errors), (stream.operations * values, 0, 0));
        }
        let operations: Vec<_> = measured.streams.iter().map(|stream| stream.operations).collect();
        (operations.iter().all(|&operations| operations > 0), operations)
    });
}

#[test]
fn the_warm_up_does_not_count() {
    let paced = json!({"kind": "open", "rate_per_s": 50, "arrivals": "even"});
    let streams = json!([{"operation": "write", "values": 1, "clients": 1, "loop": paced}]);
    let mut warmed = specification(100, &streams);
    warmed["warmup_ms"] = json!(400);
    in_one_of_five(|| {
        let memory = Memory::new(|number| {
            sleep(Duration::from_millis(if number < 2 { 100 } else { 0 }));
            Ok(())
        });
        let stream = memory.measure(warmed.clone()).streams.remove(0);
        assert_eq!(stream.operations + stream.unstarted, 5);
        assert_eq!(stream.answered, memory.statements.load(Ordering::Relaxed));
        let slow = at_least(&stream.service, 100 * MS);
        (stream.answered == 20 + stream.operations && slow == 0, (stream.answered, stream.operations, slow))
    });
}

#[test]
fn a_lost_connection_is_an_error_and_made_anew() {
    let streams = json!([{"operation": "write", "values": 1, "clients": 1, "loop": {"kind": "closed"}}]);
    in_one_of_five(|| {
        let memory = Memory::new(|number| {
            sleep(Duration::from_millis(1));
            match number {
                5 => Err(Failure::new(Kind::Lost, "the server closed the connection")),
                9 => Err(Failure::new(Kind::Database, "something else")),
                _ => Ok(()),
            }
        });
        let stream = memory.measure(specification(300, &streams)).streams.remove(0);
        let counted = (stream.errors, memory.connections.load(Ordering::Relaxed), stream.operations);
        if stream.errors > 0 {
            assert_eq!(stream.first_error.as_deref(), Some("the server closed the connection"));
            assert_eq!(stream.first_error_kind, Some(Kind::Lost));
        }
        assert!(counted.0 <= 2 && counted.1 <= 2, "{counted:?}");
        ((counted.0, counted.1) == (2, 2) && stream.operations > 10, counted)
    });
}

#[test]
fn the_first_failure_ends_it_where_that_is_wanted() {
    let memory = Memory::new(|number| {
        sleep(Duration::from_millis(1));
        if number < 20 { Ok(()) } else { Err(Failure::new(Kind::Lost, "killed")) }
    });
    let streams = json!([{"operation": "write", "values": 1, "clients": 2, "loop": {"kind": "closed"}}]);
    let mut until_failure = specification(20_000, &streams);
    until_failure["until_failure"] = json!(true);
    let measured = memory.measure(until_failure);
    assert!(measured.elapsed_ns < 10_000 * MS);
    assert_eq!((measured.streams[0].operations, measured.streams[0].errors), (20, 1));
}

#[test]
fn readings_that_are_late_across_statements_are_told() {
    let memory = Memory::new(|_| Ok(()));
    let writers =
        json!([{"operation": "write", "values": 100, "clients": 2, "pipeline": 4, "loop": {"kind": "closed"}}]);
    for (late, share) in [
        (json!(null), 0.0),
        (json!({"share": 0.05, "by": 500, "run": 60}), 0.05),
        (json!({"share": 0.05, "by": 2, "run": 1}), 0.001), // but for some at a statement's border, all sorted in it
    ] {
        let mut spec = specification(200, &writers);
        spec["data"]["late"] = late;
        // A hundred thousand readings of each client, however long they take: 256 times 4 statements.
        spec["least_operations"] = json!(256);
        spec["longer_ms"] = json!(60_000);
        let stream = memory.measure(spec).streams.remove(0);
        assert!(stream.rows > 200_000, "{}", stream.rows);
        let found = stream.late_rows as f64 / stream.rows as f64;
        assert!((found - share).abs() < 0.003, "{found} of {share}");
    }
}
