//! MongoDB's driver against its null server, and against servers that misbehave.

mod servers;

use std::io::{Read, Write};
use std::thread;
use std::time::{Duration, Instant};

use sensorstore::failure::Kind;
use sensorstore::spec::Protocol;
use sensorstore::store::{Schema, Store};
use serde_json::{Value, json};
use servers::{DATA, failure, hang, listening, null_server, opened, readings, server};

fn on_null_server(options: &Value) -> Box<dyn Store> {
    opened("mongo", null_server(Protocol::Mongo), options).unwrap()
}

/// On a server that does this with its first connection.
fn on_server(serve: impl FnOnce(std::net::TcpStream) + Send + 'static) -> Box<dyn Store> {
    opened("mongo", server(serve), &json!({})).unwrap()
}

#[test]
fn what_is_written_is_counted_and_dropped() {
    for concern in ["w0", "w1", "j"] {
        let store = on_null_server(&json!({ "write_concern": concern }));
        store.create(Schema { index: true, drop: false }).unwrap();
        let mut session = store.connect().unwrap();
        session.write(DATA.sensor(3), &readings(3, 0, 1000)).unwrap();
        session.write(DATA.sensor(3), &readings(3, 1000, 1)).unwrap();
        store.settle().unwrap();
        assert_eq!(store.count().unwrap(), 1001, "{concern}");
        store.drop_table().unwrap();
        assert_eq!(store.count().unwrap(), 0);
    }
}

#[test]
fn what_was_sent_without_acknowledgement_is_there_when_the_client_is_gone() {
    let store = on_null_server(&json!({ "write_concern": "w0" }));
    let mut session = store.connect().unwrap();
    for first in 0..20 {
        session.write(DATA.sensor(0), &readings(0, first * 1000, 1000)).unwrap();
    }
    session.write(DATA.sensor(0), &readings(0, 20_000, 1)).unwrap();
    drop(session);
    assert_eq!(store.count().unwrap(), 20_001);
}

#[test]
fn reads_bring_the_readings_of_the_interval_in_however_many_batches() {
    for options in [json!({}), json!({ "batch_size": "101" })] {
        let store = on_null_server(&options);
        let mut session = store.connect().unwrap();
        let mut read = vec![DATA.reading(0, 0)];
        for (first, count) in [(0, 1), (70, 1000), (5, 0)] {
            let (from, to) = (DATA.timestamp(first), DATA.timestamp(first + count) - 1);
            session.read(DATA.sensor(2), from, to, &mut read).unwrap();
            assert_eq!(read, readings(2, first, count));
        }
    }
}

#[test]
fn pipelined_writes_are_acknowledged_in_their_order() {
    for concern in ["w0", "w1"] {
        let store = on_null_server(&json!({ "write_concern": concern }));
        let mut session = store.connect().unwrap();
        let batches: Vec<_> = (0..64).map(|number| readings(1, number, 1)).collect();
        let writes: Vec<_> = batches.iter().map(|batch| (DATA.sensor(1), batch.as_slice())).collect();
        let mut acknowledged = Vec::new();
        session.write_pipelined(&writes, &mut |number| acknowledged.push(number)).unwrap();
        assert_eq!(acknowledged, (0..64).collect::<Vec<_>>());
        store.settle().unwrap();
        assert_eq!(store.count().unwrap(), 64);
        // The connection is in step: what is asked next is answered.
        let mut read = Vec::new();
        session.read(DATA.sensor(1), DATA.timestamp(9), DATA.timestamp(9), &mut read).unwrap();
        assert_eq!(read, readings(1, 9, 1));
    }
}

#[test]
fn a_server_tells_of_itself() {
    let about = on_null_server(&json!({ "write_concern": "j" })).about().unwrap();
    assert_eq!(about.version, "MongoDB 0.0.0 (null)");
    assert_eq!(about.settings["write_concern"], "j");
}

#[test]
fn nothing_that_listens_is_refused() {
    let port = listening().1;
    assert_eq!(opened("mongo", port, &json!({})).unwrap().about().unwrap_err().kind, Kind::Refused);
}

#[test]
fn a_server_that_hangs_ends_in_a_timeout() {
    let begun = Instant::now();
    let store = on_server(hang);
    assert_eq!(failure(&*store).kind, Kind::Timeout);
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_server_that_stops_in_the_middle_of_an_answer_ends_in_a_timeout() {
    let begun = Instant::now();
    let store = on_server(|mut socket| {
        // A head that promises 100 bytes, which then come one by one and never all.
        let head: Vec<u8> = [100, 1, 1, 2013].iter().flat_map(|word: &i32| word.to_le_bytes()).collect();
        socket.write_all(&head).unwrap();
        while socket.write_all(&[0]).is_ok() {
            thread::sleep(Duration::from_millis(300));
        }
    });
    assert_eq!(failure(&*store).kind, Kind::Timeout);
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_server_that_goes_away_is_lost() {
    let store = on_server(|mut socket| drop(socket.read(&mut [0; 64])));
    assert_eq!(failure(&*store).kind, Kind::Lost);
}

#[test]
fn what_speaks_another_protocol_is_no_mongodb() {
    let store = on_server(|mut socket| {
        socket.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n").unwrap();
        hang(socket);
    });
    assert_eq!(failure(&*store).kind, Kind::Database);
}

#[test]
fn what_the_server_says_is_told_apart() {
    for (code, expected) in [(18, Kind::Denied), (13, Kind::Denied), (14031, Kind::Full), (2, Kind::Database)] {
        let store = on_server(move |mut socket| {
            let asked = socket.read(&mut [0; 4096]).unwrap();
            assert!(asked > 0);
            let answer = bson::rawdoc! { "ok": 0.0, "errmsg": "because", "code": code };
            let length = (16 + 5 + answer.as_bytes().len()) as i32;
            for word in [length, 1, 1, 2013, 0] {
                socket.write_all(&word.to_le_bytes()).unwrap();
            }
            socket.write_all(&[0]).unwrap();
            socket.write_all(answer.as_bytes()).unwrap();
        });
        let failure = failure(&*store);
        assert_eq!(failure.kind, expected);
        assert!(failure.message.contains("because"), "{failure}");
    }
}

#[test]
fn options_that_are_not_known_are_refused() {
    for options in [json!({ "write_concern": "majority" }), json!({ "batch_size": "0" }), json!({ "journal": "true" })]
    {
        assert_eq!(opened("mongo", 1, &options).err().unwrap().kind, Kind::BadRequest);
    }
}
