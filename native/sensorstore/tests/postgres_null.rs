//! PostgreSQL's driver against its null server, and against servers that misbehave.

mod servers;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use sensorstore::failure::Kind;
use sensorstore::spec::Protocol;
use sensorstore::store::{Reading, Schema, Store};
use serde_json::{Value, json};
use servers::{DATA, hang, listening, null_server, opened, readings, server};

fn on_null_server(options: &Value) -> Box<dyn Store> {
    opened("postgres", null_server(Protocol::Postgres), options).unwrap()
}

/// On a server that does this with its first connection.
fn on_server(serve: impl FnOnce(TcpStream) + Send + 'static) -> Box<dyn Store> {
    opened("postgres", server(serve), &json!({})).unwrap()
}

/// Takes a client's first message and says that it may come in.
fn let_in(stream: &mut TcpStream) {
    let _ = stream.read(&mut [0; 1024]).unwrap();
    stream.write_all(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I").unwrap();
}

#[test]
fn every_way_of_writing_is_acknowledged_row_by_row() {
    for mode in ["unnest", "copy", "insert", "values"] {
        let store = on_null_server(&json!({ "write_mode": mode }));
        store.create(Schema { index: true, drop: true }).unwrap();
        let mut session = store.connect().unwrap();
        for count in [1, 2, 1000] {
            session.write(DATA.sensor(1), &readings(1, 0, count)).unwrap();
        }
        let (one, many) = (readings(2, 0, 1), readings(3, 0, 10));
        let writes: Vec<(_, &[Reading])> = vec![(DATA.sensor(2), &one), (DATA.sensor(3), &many)];
        let mut acknowledged = Vec::new();
        session.write_pipelined(&writes, &mut |number| acknowledged.push(number)).unwrap();
        assert_eq!(acknowledged, [0, 1], "{mode}");
    }
}

#[test]
fn reads_bring_the_readings_of_the_interval_in_order() {
    let store = on_null_server(&json!({}));
    let (mut session, mut read) = (store.connect().unwrap(), Vec::new());
    session.read(DATA.sensor(4), DATA.timestamp(7), DATA.timestamp(7), &mut read).unwrap();
    assert_eq!(read, readings(4, 7, 1));
    session.read(DATA.sensor(4), DATA.timestamp(10), DATA.timestamp(5009), &mut read).unwrap();
    assert_eq!(read, readings(4, 10, 5000));
}

#[test]
fn a_server_that_hangs_ends_in_a_timeout() {
    let silent = on_server(hang);
    let hanging = on_server(|mut stream| {
        let_in(&mut stream);
        hang(stream);
    });
    for store in [silent, hanging] {
        let begun = Instant::now();
        assert_eq!(store.connect().err().unwrap().kind, Kind::Timeout);
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
}

#[test]
fn a_connection_that_was_lost_stays_lost() {
    let store = on_server(|mut stream| {
        let_in(&mut stream);
        let _ = stream.read(&mut [0; 4096]).unwrap();
        stream.write_all(b"1\0\0\0\x041\0\0\0\x041\0\0\0\x041\0\0\0\x04Z\0\0\0\x05I").unwrap();
    });
    let mut session = store.connect().unwrap();
    for _ in 0..2 {
        assert_eq!(session.write(DATA.sensor(0), &readings(0, 0, 1)).unwrap_err().kind, Kind::Lost);
    }
}

#[test]
fn what_does_not_speak_postgresql_is_told_as_such() {
    let store = on_server(|mut stream| {
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        hang(stream);
    });
    assert_eq!(store.about().unwrap_err().kind, Kind::Database);
}

#[test]
fn nobody_there_is_refused() {
    let (listener, port) = listening();
    drop(listener);
    assert_eq!(opened("postgres", port, &json!({})).unwrap().about().unwrap_err().kind, Kind::Refused);
}

#[test]
fn a_way_of_writing_that_there_is_not_is_a_bad_request() {
    let failure = opened("postgres", 1, &json!({ "write_mode": "telepathy" })).err().unwrap();
    assert_eq!(failure.kind, Kind::BadRequest);
    assert!(failure.message.contains("unnest"), "{failure}");
}
