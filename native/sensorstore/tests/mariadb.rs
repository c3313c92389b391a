//! MariaDB's driver against a server that answers as one of these tests says; `tests/suites/test_databases.py` has the real one.

mod servers;

use std::io::{Read, Write};
use std::net::TcpStream;

use sensorstore::failure::Kind;
use sensorstore::store::{Session, Store};
use serde_json::{Value, json};
use servers::{DATA, opened, readings, server};

const OK: &[u8] = &[0, 0, 0, 2, 0, 0, 0];
const END: &[u8] = &[0xFE, 0, 0, 2, 0, 0, 0];

fn send(socket: &mut TcpStream, number: u8, body: &[u8]) {
    let [low, middle, high, _] = (body.len() as u32).to_le_bytes();
    socket.write_all(&[&[low, middle, high, number], body].concat()).unwrap();
}

/// The body of a packet of the client.
fn received(socket: &mut TcpStream) -> Vec<u8> {
    let mut head = [0; 4];
    socket.read_exact(&mut head).unwrap();
    let mut body = vec![0; usize::from(head[0]) | usize::from(head[1]) << 8 | usize::from(head[2]) << 16];
    socket.read_exact(&mut body).unwrap();
    body
}

/// Greets as MariaDB 10.11 does, lets the client in, and prepares its four statements.
fn log_in(socket: &mut TcpStream) {
    let mut greeting = [&[10][..], b"10.11.6-MariaDB\0", &[1, 0, 0, 0], b"12345678", &[0]].concat();
    greeting.extend([0xFE, 0xF7, 45, 2, 0, 0xFF, 0x81, 21, 0, 0, 0, 0, 0, 0, 0x1D, 0, 0, 0]);
    greeting.extend(b"123456789012\0mysql_native_password\0");
    send(socket, 0, &greeting);
    received(socket);
    send(socket, 2, OK);
    for number in 1..5 {
        assert_eq!(received(socket)[0], 0x16);
        send(socket, 1, &[0, number, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
}

fn session_with(options: &Value, serve: impl FnOnce(&mut TcpStream) + Send + 'static) -> Box<dyn Session> {
    let port = server(move |mut socket| {
        log_in(&mut socket);
        serve(&mut socket);
    });
    let store: Box<dyn Store> = opened("mariadb", port, options).unwrap();
    store.connect().unwrap()
}

#[test]
fn a_row_that_cannot_be_read_is_a_failure_after_which_the_connection_is_in_step() {
    let mut session = session_with(&json!({}), |socket| {
        received(socket);
        for (number, body) in (1..).zip([&[2][..], b"column", b"column", &[0, 0, 1, 2, 3], END]) {
            send(socket, number, body);
        }
        received(socket);
        send(socket, 1, OK);
    });
    let failure = session.read(DATA.sensor(0), 0, 1, &mut Vec::new()).unwrap_err();
    assert_eq!(failure.kind, Kind::Database);
    session.write(DATA.sensor(0), &readings(0, 0, 1)).unwrap();
}

#[test]
fn a_statement_that_is_too_long_is_refused_and_nothing_of_it_is_sent() {
    let mut session = session_with(&json!({ "write_mode": "values" }), |socket| {
        let statement = received(socket);
        assert!(statement.len() < 1000, "{} bytes", statement.len());
        send(socket, 1, OK);
    });
    let failure = session.write(DATA.sensor(0), &readings(0, 0, 400_000)).unwrap_err();
    assert_eq!(failure.kind, Kind::Unsupported);
    session.write(DATA.sensor(0), &readings(0, 0, 1)).unwrap();
}
