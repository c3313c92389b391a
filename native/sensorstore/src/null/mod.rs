//! Null servers: each speaks a database's protocol, acknowledges writes at once without keeping them, and answers reads
//! from the generator.  What a driver reaches against its null server is the client's own limit.

mod cassandra;
mod http;
mod mongo;
mod postgres;

use std::net::TcpListener;
use std::sync::Arc;

use crate::failure::{Failure, Kind};
use crate::generator::Answers;
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

/// Serves on a socket that listens already, as tests need.
///
/// # Errors
/// As [`serve`].
pub fn serve_on(protocol: Protocol, listener: TcpListener, answers: Arc<Answers>) -> Result<(), Failure> {
    match protocol {
        Protocol::Postgres => postgres::serve(listener, answers),
        Protocol::Mongo => mongo::serve(listener, answers),
        Protocol::Cassandra => cassandra::serve(listener, answers),
        Protocol::Http => http::serve(listener, answers),
    }
}
