//! What the tests of drivers share: a server that is there for one test, and a store on it.

#![allow(dead_code, unreachable_pub, reason = "each test program includes it and uses its own part")]

use std::io::Read;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use sensorstore::drivers;
use sensorstore::failure::Failure;
use sensorstore::generator::{Answers, Data};
use sensorstore::null;
use sensorstore::spec::{Protocol, StoreSpec};
use sensorstore::store::{Reading, Store};
use serde_json::{Value, json};

pub const DATA: Data = Data { seed: 11, sensors: 8, step_ms: 250, late: None };

pub fn listening() -> (TcpListener, u16) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

/// The port of a null server, which answers from [`DATA`].
pub fn null_server(protocol: Protocol) -> u16 {
    let (listener, port) = listening();
    thread::spawn(move || null::serve_on(protocol, listener, Arc::new(Answers::new(DATA))));
    port
}

/// The port of a server that does this with its first connection.
pub fn server(serve: impl FnOnce(TcpStream) + Send + 'static) -> u16 {
    let (listener, port) = listening();
    thread::spawn(move || serve(listener.accept().unwrap().0));
    port
}

/// Says nothing until the client goes.
pub fn hang(mut socket: TcpStream) {
    drop(socket.read_to_end(&mut Vec::new()));
}

pub fn opened(driver: &str, port: u16, options: &Value) -> Result<Box<dyn Store>, Failure> {
    let spec = json!({
        // Longer than this machine pauses.
        "driver": driver, "address": "127.0.0.1", "port": port, "timeout_ms": 2500, "options": options,
    });
    drivers::open(&serde_json::from_value::<StoreSpec>(spec).unwrap(), None)
}

/// A session's failure, whether it fails in being opened or in its first write.
pub fn failure(store: &dyn Store) -> Failure {
    let written = store.connect().and_then(|mut session| session.write(DATA.sensor(0), &[DATA.reading(0, 0)]));
    written.unwrap_err()
}

pub fn readings(sensor: u64, first: u64, count: u64) -> Vec<Reading> {
    let mut readings = Vec::new();
    DATA.readings(sensor, first, count, &mut readings);
    readings
}
