//! The drivers that speak HTTP, and QuestDB's, against their null servers, and against servers that misbehave.

mod servers;

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use sensorstore::failure::Kind;
use sensorstore::spec::Protocol;
use sensorstore::store::{Reading, Schema, Store};
use serde_json::json;
use servers::{DATA, hang, listening, null_server, readings, server};

const HTTP_DRIVERS: [&str; 2] = ["influxdb", "victoriametrics"];

fn opened(driver: &str, port: u16, options: &serde_json::Value) -> Box<dyn Store> {
    servers::opened(driver, port, options).unwrap()
}

/// A store of InfluxDB on a server that takes one request and answers this.
fn answered(answer: &'static [u8]) -> Box<dyn Store> {
    let port = server(|mut stream| {
        let _ = stream.read(&mut [0; 4096]).unwrap();
        stream.write_all(answer).unwrap();
        hang(stream);
    });
    opened("influxdb", port, &json!({}))
}

fn written_kind(store: &dyn Store) -> Kind {
    store.connect().unwrap().write(DATA.sensor(0), &readings(0, 0, 1)).unwrap_err().kind
}

fn goes_round(store: &dyn Store) {
    store.create(Schema { index: true, drop: true }).unwrap();
    let (mut session, mut read) = (store.connect().unwrap(), Vec::new());
    session.write(DATA.sensor(0), &readings(0, 0, 1)).unwrap();
    session.write(DATA.sensor(0), &readings(0, 1, 1000)).unwrap();
    let (one, many) = (readings(1, 0, 1), readings(1, 1, 20));
    let writes: Vec<(_, &[Reading])> = vec![(DATA.sensor(1), &one), (DATA.sensor(1), &many)];
    let mut acknowledged = Vec::new();
    session.write_pipelined(&writes, &mut |number| acknowledged.push(number)).unwrap();
    assert_eq!(acknowledged, [0, 1]);
    store.settle().unwrap();
    assert_eq!(store.count().unwrap(), 1022);
    session.read(DATA.sensor(3), DATA.timestamp(11), DATA.timestamp(11), &mut read).unwrap();
    assert_eq!(read, readings(3, 11, 1));
    session.read(DATA.sensor(3), DATA.timestamp(11), DATA.timestamp(3010), &mut read).unwrap();
    assert_eq!(read, readings(3, 11, 3000));
    store.drop_table().unwrap();
}

#[test]
fn what_is_written_is_counted_and_reads_bring_the_interval() {
    for driver in HTTP_DRIVERS {
        let store = opened(driver, null_server(Protocol::Http), &json!({}));
        assert!(store.about().unwrap().version.ends_with("null"));
        goes_round(&*store);
        store.connect().unwrap().write(DATA.sensor(0), &readings(0, 0, 1)).unwrap();
        assert_eq!(store.create(Schema { index: true, drop: false }).unwrap_err().kind, Kind::Exists);
        goes_round(&*store);
    }
}

#[test]
fn questdb_is_written_by_statements() {
    for mode in ["insert", "values"] {
        let port = null_server(Protocol::Postgres);
        goes_round(&*opened("questdb", port, &json!({ "write_mode": mode })));
    }
}

#[test]
fn questdb_is_written_by_lines_and_read_by_statements() {
    let options = json!({ "write_mode": "lines", "http_port": null_server(Protocol::Http).to_string() });
    let store = opened("questdb", null_server(Protocol::Postgres), &options);
    let (mut session, mut read) = (store.connect().unwrap(), Vec::new());
    session.write(DATA.sensor(0), &readings(0, 0, 1000)).unwrap();
    session.read(DATA.sensor(0), DATA.timestamp(0), DATA.timestamp(999), &mut read).unwrap();
    assert_eq!(read, readings(0, 0, 1000));
}

#[test]
fn an_index_that_cannot_be_left_out_is_said_to_be_so() {
    for driver in HTTP_DRIVERS {
        let store = opened(driver, null_server(Protocol::Http), &json!({}));
        assert_eq!(store.create(Schema { index: false, drop: true }).unwrap_err().kind, Kind::Unsupported);
    }
}

#[test]
fn an_answer_in_chunks_is_put_together() {
    let store = answered(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1c\r\n{\"results\":[{\"series\":[{\"val\r\n\
          11\r\nues\":[[0,7]]}]}]}\r\n0\r\n\r\n",
    );
    assert_eq!(store.count().unwrap(), 7);
}

#[test]
fn refusals_are_told_apart() {
    let answers: [(&[u8], Kind); 6] = [
        (b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n", Kind::Denied),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 18\r\n\r\ndatabase not found", Kind::Schema),
        (b"HTTP/1.1 500 Error\r\nContent-Length: 30\r\n\r\nwrite: no space left on device", Kind::Full),
        (b"HTTP/1.1 503 Unavailable\r\nContent-Length: 0\r\n\r\n", Kind::Refused),
        (b"HTTP/1.1 500 Error\r\nContent-Length: 7\r\n\r\ntimeout", Kind::Timeout),
        (b"SSH-2.0-OpenSSH_9\r\n\r\n", Kind::Database),
    ];
    for (answer, kind) in answers {
        assert_eq!(written_kind(&*answered(answer)), kind, "{}", String::from_utf8_lossy(answer));
    }
}

#[test]
fn an_answer_that_stops_is_a_timeout_and_no_answer_ends_in_time() {
    for answer in [&b""[..], b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this"] {
        let begun = Instant::now();
        assert_eq!(written_kind(&*answered(answer)), Kind::Timeout);
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
}

#[test]
fn a_connection_that_is_closed_is_lost_and_nobody_there_is_refused() {
    let store = opened("victoriametrics", server(drop), &json!({}));
    assert_eq!(written_kind(&*store), Kind::Lost);
    let (listener, port) = listening();
    drop(listener);
    for driver in ["influxdb", "victoriametrics", "questdb"] {
        assert_eq!(opened(driver, port, &json!({})).about().unwrap_err().kind, Kind::Refused);
    }
}
