//! Cassandra's driver against its null server, and against servers that misbehave.

mod servers;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use sensorstore::failure::Kind;
use sensorstore::spec::Protocol;
use sensorstore::store::{Schema, Store};
use serde_json::{Value, json};
use servers::{DATA, failure, hang, listening, null_server, opened, readings, server};

fn on_null_server(options: &Value) -> Box<dyn Store> {
    opened("cassandra", null_server(Protocol::Cassandra), options).unwrap()
}

/// On a server that does this with its first connection.
fn on_server(serve: impl FnOnce(TcpStream) + Send + 'static) -> Box<dyn Store> {
    opened("cassandra", server(serve), &json!({})).unwrap()
}

#[test]
fn what_is_written_is_counted_and_dropped() {
    let store = on_null_server(&json!({}));
    store.create(Schema { index: true, drop: false }).unwrap();
    let mut session = store.connect().unwrap();
    session.write(DATA.sensor(3), &readings(3, 0, 1000)).unwrap();
    session.write(DATA.sensor(3), &readings(3, 1000, 1)).unwrap();
    store.settle().unwrap();
    assert_eq!(store.count().unwrap(), 1001);
    store.drop_table().unwrap();
    assert_eq!(store.count().unwrap(), 0);
}

#[test]
fn there_is_no_table_without_its_index() {
    let store = on_null_server(&json!({}));
    assert_eq!(store.create(Schema { index: false, drop: true }).unwrap_err().kind, Kind::Unsupported);
}

#[test]
fn reads_bring_the_readings_of_the_interval_in_however_many_pages() {
    for options in [json!({}), json!({ "page_rows": "101" })] {
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
    let store = on_null_server(&json!({}));
    let mut session = store.connect().unwrap();
    let batches: Vec<_> = (0..64).map(|number| readings(1, number, 1 + number % 2)).collect();
    let writes: Vec<_> = batches.iter().map(|batch| (DATA.sensor(1), batch.as_slice())).collect();
    let mut acknowledged = Vec::new();
    session.write_pipelined(&writes, &mut |number| acknowledged.push(number)).unwrap();
    assert_eq!(acknowledged, (0..64).collect::<Vec<_>>());
    assert_eq!(store.count().unwrap(), 96);
    // The connection is in step: what is asked next is answered.
    let mut read = Vec::new();
    session.read(DATA.sensor(1), DATA.timestamp(9), DATA.timestamp(9), &mut read).unwrap();
    assert_eq!(read, readings(1, 9, 1));
}

/// Answers a frame of the client: (opcode, stream, body).
fn answer(socket: &mut TcpStream, opcode: u8, stream: i16, body: &[u8]) {
    let mut frame = vec![0x84, 0];
    frame.extend(stream.to_be_bytes());
    frame.push(opcode);
    frame.extend((body.len() as u32).to_be_bytes());
    frame.extend(body);
    socket.write_all(&frame).unwrap();
}

/// Takes one frame of the client.
fn take(socket: &mut TcpStream) {
    let mut head = [0; 9];
    socket.read_exact(&mut head).unwrap();
    let length = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
    socket.read_exact(&mut vec![0; length as usize]).unwrap();
}

/// The body of an error.
fn error(code: i32, message: &str) -> Vec<u8> {
    let mut body = code.to_be_bytes().to_vec();
    body.extend((message.len() as u16).to_be_bytes());
    body.extend(message.as_bytes());
    body
}

#[test]
fn answers_out_of_order_are_acknowledged_as_they_come() {
    let store = on_server(|mut socket| {
        take(&mut socket);
        answer(&mut socket, 0x02, 0, &[]);
        for _ in 0..4 {
            take(&mut socket);
            answer(&mut socket, 0x08, 0, &[0, 0, 0, 4, 0, 1, 7]);
        }
        (0..4).for_each(|_| take(&mut socket));
        for stream in [3, 1, 0] {
            answer(&mut socket, 0x08, stream, &[0, 0, 0, 1]);
        }
        answer(&mut socket, 0x00, 2, &error(0x1100, "too late"));
        hang(socket);
    });
    let mut session = store.connect().unwrap();
    let batch = readings(1, 0, 1);
    let writes = vec![(DATA.sensor(1), batch.as_slice()); 4];
    let mut acknowledged = Vec::new();
    let failure = session.write_pipelined(&writes, &mut |number| acknowledged.push(number)).unwrap_err();
    assert_eq!(acknowledged, [3, 1, 0]);
    assert_eq!(failure.kind, Kind::Timeout);
}

#[test]
fn a_server_tells_of_itself() {
    let about = on_null_server(&json!({ "durable_writes": "false" })).about().unwrap();
    assert_eq!(about.version, "Cassandra 0.0.0 (null)");
    assert_eq!(about.settings["durable_writes"], "false");
}

#[test]
fn nothing_that_listens_is_refused() {
    let port = listening().1;
    assert_eq!(opened("cassandra", port, &json!({})).unwrap().about().unwrap_err().kind, Kind::Refused);
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
        socket.write_all(&[0x84, 0, 0, 0, 2, 0, 0, 0, 100]).unwrap();
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
fn what_speaks_another_protocol_is_no_cassandra() {
    let store = on_server(|mut socket| {
        socket.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n").unwrap();
        hang(socket);
    });
    assert_eq!(failure(&*store).kind, Kind::Database);
}

#[test]
fn what_the_server_says_is_told_apart() {
    for (code, message, expected) in [
        (0x0100, "because", Kind::Denied),
        (0x2100, "because", Kind::Denied),
        (0x1001, "because", Kind::Database),
        (0x1100, "because", Kind::Timeout),
        (0x2200, "because unconfigured table", Kind::Schema),
        (0x2400, "because", Kind::Exists),
        (0x0000, "because: No space left on device", Kind::Full),
    ] {
        let store = on_server(move |mut socket| {
            take(&mut socket);
            answer(&mut socket, 0x00, 0, &error(code, message));
        });
        let failure = failure(&*store);
        assert_eq!(failure.kind, expected, "{code:#x}");
        assert!(failure.message.contains("because"), "{failure}");
    }
}

#[test]
fn a_server_that_asks_for_a_password_gets_one_or_denies() {
    let asking = |mut socket: TcpStream| {
        take(&mut socket);
        answer(&mut socket, 0x03, 0, b"\0\x08password");
        hang(socket);
    };
    assert_eq!(failure(&*on_server(asking)).kind, Kind::Denied);
}

#[test]
fn options_that_are_not_known_are_refused() {
    for options in [json!({ "durable_writes": "yes" }), json!({ "page_rows": "0" }), json!({ "consistency": "all" })] {
        assert_eq!(opened("cassandra", 1, &options).err().unwrap().kind, Kind::BadRequest);
    }
}
