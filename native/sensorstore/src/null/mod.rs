//! Null servers: each speaks a database's protocol, acknowledges writes at once without keeping them, and answers reads
//! from the generator.  What a driver reaches against its null server is the client's own limit.

mod cassandra;
mod http;
mod mongo;
mod postgres;

use std::io::ErrorKind;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread;

use crate::failure::{Failure, Kind};
use crate::generator::Answers;
use crate::messages::Messages;
use crate::spec::{NullSpec, Protocol};

/// Serves until the process is killed.
///
/// # Errors
/// `refused` where the address cannot be listened on.
pub fn serve(spec: &NullSpec) -> Result<(), Failure> {
    let place = (spec.address.as_str(), spec.port);
    let cannot = |error| Failure::new(Kind::Refused, format!("cannot listen on {}:{}: {error}", place.0, place.1));
    let listener = TcpListener::bind(place).map_err(cannot)?;
    serve_on(spec.protocol, listener, Arc::new(Answers::new(spec.data)))
}

/// Serves on a socket that listens already, as tests need, one thread per connection.
///
/// # Errors
/// `refused` where no more connections can be accepted.
pub fn serve_on(protocol: Protocol, listener: TcpListener, answers: Arc<Answers>) -> Result<(), Failure> {
    let converse = match protocol {
        Protocol::Postgres => postgres::converse,
        Protocol::Mongo => mongo::converse,
        Protocol::Cassandra => cassandra::converse,
        Protocol::Http => http::converse,
    };
    let rows = Arc::new(AtomicU64::new(0));
    for socket in listener.incoming() {
        let socket = match socket {
            Ok(socket) => socket,
            // That client went away before it was accepted.
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
            Err(error) => return Err(Failure::new(Kind::Refused, error.to_string())),
        };
        let (answers, rows) = (Arc::clone(&answers), Arc::clone(&rows));
        // Whatever a client does that no driver of ours does ends its connection.
        thread::spawn(move || converse(socket, answers, rows));
    }
    Ok(())
}

/// Answers message after message until `take`, which adds the answer to one, does not understand it.
fn answer_all(mut messages: Messages, mut take: impl FnMut(&[u8], &mut Vec<u8>) -> Option<()>) -> Option<()> {
    let mut output = Vec::new();
    loop {
        take(messages.receive().ok()?, &mut output)?;
        // Answers of a pipeline go out together.
        if !output.is_empty() && !messages.has_received() {
            messages.send(&output).ok()?;
            output.clear();
        }
    }
}
