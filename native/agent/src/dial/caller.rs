//! One call: connect, prove who each side is, converse.

use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConnection;
use rustls::pki_types::ServerName;

use super::connection::{Heard, SecureInput, SecureOutput, split};
use super::{Credentials, Dial};
use crate::channel::session::{self, Broken, Ending};
use crate::facts::Identity;
use crate::failure::{Code, Failure};

/// What every controller is certified as: it is known by its authority, made for one run, and not by its address.
const CONTROLLER: &str = "controller.virtgauge";

const CONNECT: Duration = Duration::from_secs(5);
const HANDSHAKE: Duration = Duration::from_secs(10);

/// A way to the controller that fails is noticed by the kernel: after 30 s of silence it asks every 10 s, three times;
/// what was sent may be unconfirmed for 60 s.
const KEEPALIVE: [(libc::c_int, libc::c_int, libc::c_int); 5] = [
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
    (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 30),
    (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, 10),
    (libc::IPPROTO_TCP, libc::TCP_KEEPCNT, 3),
    (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, 60_000),
];

/// Calls once, and converses until either side has enough of it.
///
/// # Errors
/// `bad-request`: the identity is unusable, and calling again would not help; `peer-lost`: the controller cannot be
/// reached, is somebody else, or refuses us, and may be there later.
pub fn call(dial: &Dial) -> Result<Result<Ending, Broken>, Failure> {
    let credentials = Credentials::read(&dial.identity)?;
    let (input, output, heard) = connect(dial, &credentials)?;
    let ending = session::serve(input, output, &Identity::of_this_process(false));
    if heard.anything() {
        return Ok(ending);
    }
    // The controller judges our certificate only after our side of the handshake has ended.
    let why = match ending {
        Err(broken) => broken.to_string(),
        Ok(_) => "it closed the connection".into(),
    };
    let reasons = "it has a guest already, or this identity is of another run";
    Err(Failure::new(Code::PeerLost, format!("{} does not converse: {why}; {reasons}", dial.controller)))
}

fn connect(dial: &Dial, credentials: &Credentials) -> Result<(SecureInput, SecureOutput, Heard), Failure> {
    let failed = |what: &str, error: &dyn std::fmt::Display| {
        Failure::new(Code::PeerLost, format!("{what} {}: {error}", dial.controller))
    };
    let mut socket = TcpStream::connect_timeout(&dial.controller, CONNECT)
        .map_err(|error| failed("the controller does not answer at", &error))?;
    let configured = socket
        .set_nodelay(true)
        .and_then(|()| socket.set_read_timeout(Some(HANDSHAKE)))
        .and_then(|()| socket.set_write_timeout(Some(HANDSHAKE)));
    configured.map_err(|error| failed("a socket to", &error))?;
    keep_alive(&socket);
    let name = ServerName::try_from(CONTROLLER).expect("a constant that is a name");
    let mut tls = ClientConnection::new(Arc::new(credentials.configuration()?), name)
        .map_err(|error| failed("TLS with", &error))?;
    while tls.is_handshaking() {
        tls.complete_io(&mut socket).map_err(|error| {
            let hint = if credentials.expired() { " (by this machine's clock, the identity has expired)" } else { "" };
            failed("no controller of this identity at", &format!("{error}{hint}"))
        })?;
    }
    split(tls, socket).map_err(|error| failed("a socket to", &error))
}

/// What the kernel does not know is left out: then a dead way is noticed later.
fn keep_alive(socket: &TcpStream) {
    for (level, option, value) in KEEPALIVE {
        // SAFETY: the option's value is one integer, which outlives the call.
        unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                level,
                option,
                (&raw const value).cast(),
                size_of::<libc::c_int>() as libc::socklen_t,
            );
        }
    }
}
