//! The end that listens: one session at a time, and a word to everybody else.

use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use failure::Failure;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::control::channel::{self, Channel};
use crate::control::message::{Answer, Ignored, Refusal};
use crate::control::session;
use crate::control::token::Token;
use crate::control::{PROTOCOL, TOOL_VERSION};
use crate::pacing::placement::Placement;
use crate::udp::receiving::{Receiver, Stamps};

/// How long whoever connects may take to greet, and to take an answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// How often an end is looked for that somebody asked for.
const LOOK: Duration = Duration::from_millis(50);

/// Connections that may be at their greeting at a time; of more, one is closed.
const GREETING: usize = 16;

/// How to listen.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Address to listen on.
    pub address: IpAddr,
    /// Port of TCP and of UDP; 0 for any that is free.
    pub port: u16,
    /// What a sender must know; `None` lets in everybody.
    pub secret: Option<Token>,
    /// Who stamps probes.
    pub stamps: Stamps,
    /// Where the receiving thread runs.
    pub placement: Placement,
    /// End after so many sessions.
    pub sessions: Option<u32>,
}

/// What happens at a listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// It listens.
    Listening {
        /// Where.
        address: SocketAddr,
    },
    /// Somebody was not let in.
    Refused {
        /// Who.
        peer: SocketAddr,
        /// Why.
        reason: String,
    },
    /// A session began.
    Opened {
        /// With whom.
        peer: SocketAddr,
        /// Version of the sender's program.
        tool_version: String,
        /// Why the kernel does not stamp probes; null where it does.
        no_kernel_stamps: Option<String>,
    },
    /// A session ended.
    Closed(Closed),
}

/// How a session went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Closed {
    /// With whom.
    pub peer: SocketAddr,
    /// Why it ended.
    pub reason: String,
    /// Streams received.
    pub streams: u64,
    /// Probes received, each once where they were told one by one.
    pub packets: u64,
    /// Packets that were ignored.
    pub ignored: Ignored,
    /// Probes that this machine's kernel dropped because they were not read in time.
    pub overflowed: u64,
}

/// A listener whose port is open.
#[derive(Debug)]
pub struct Listener {
    settings: Settings,
    tcp: TcpListener,
    address: SocketAddr,
}

/// What the threads of a listener share.
struct Desk<'a> {
    settings: &'a Settings,
    port: u16,
    stop: &'a AtomicBool,
    tell: &'a (dyn Fn(&Event) + Sync),
    /// Who is at his greeting, the oldest first.
    greeting: Mutex<Vec<(SocketAddr, TcpStream)>>,
    greeted: Condvar,
    /// Who has a session; the lock is held for a comparison only.
    served: Mutex<Option<SocketAddr>>,
    ended: AtomicUsize,
}

impl Listener {
    /// Opens the port.
    pub fn bind(settings: Settings) -> Result<Self, Failure> {
        let wanted = SocketAddr::new(settings.address, settings.port);
        let tcp = TcpListener::bind(wanted).map_err(|error| not_bound(wanted, error))?;
        let attempt = "preparing to listen";
        tcp.set_nonblocking(true).map_err(|error| Failure::os(attempt, error))?;
        let address = tcp.local_addr().map_err(|error| Failure::os(attempt, error))?;
        Ok(Self { settings, tcp, address })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves one session after the other, until `stop` is set or as many have ended as were asked for.
    pub fn serve(&self, stop: &AtomicBool, tell: &(dyn Fn(&Event) + Sync)) -> Result<(), Failure> {
        let desk = Desk {
            settings: &self.settings,
            port: self.address.port(),
            stop,
            tell,
            greeting: Mutex::default(),
            greeted: Condvar::new(),
            served: Mutex::new(None),
            ended: AtomicUsize::new(0),
        };
        tell(&Event::Listening { address: self.address });
        let enough = self.settings.sessions.map_or(usize::MAX, |sessions| sessions as usize);
        thread::scope(|scope| {
            while !stop.load(Ordering::Relaxed) && desk.ended.load(Ordering::Acquire) < enough {
                let waited = channel::ready(&mut [(self.tcp.as_raw_fd(), libc::POLLIN)], LOOK);
                waited.map_err(|error| Failure::os("waiting for senders", error))?;
                let accepted = self.tcp.accept().and_then(|(stream, peer)| Ok((stream.try_clone()?, stream, peer)));
                let Ok((same, stream, peer)) = accepted else {
                    // It is gone already; or there are no descriptors for it now, and it stays ready.
                    thread::sleep(LOOK);
                    continue;
                };
                desk.make_room().push((peer, same));
                let desk = &desk;
                scope.spawn(move || desk.receive(stream, peer));
            }
            Ok(())
        })
    }
}

fn not_bound(wanted: SocketAddr, error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::AddrInUse => Failure::Unsupported(format!(
            "port {} is in use on {}; end what uses it, or choose another with --port",
            wanted.port(),
            wanted.ip()
        )),
        io::ErrorKind::AddrNotAvailable => Failure::Unsupported(format!(
            "this machine does not have the address {}; `ip address` shows those that it has",
            wanted.ip()
        )),
        io::ErrorKind::PermissionDenied => Failure::Unsupported(format!(
            "this user may not listen on port {}; choose one from 1024 on with --port",
            wanted.port()
        )),
        _ => Failure::os(format!("listening on {wanted}"), error),
    }
}

impl Desk<'_> {
    /// Everything about one connection.
    fn receive(&self, stream: TcpStream, peer: SocketAddr) {
        let (mut channel, mut receiver) = match self.greet(stream, peer) {
            Ok(greeted) => greeted,
            Err(reason) => return (self.tell)(&Event::Refused { peer, reason }),
        };
        let closed = session::run(&mut channel, &mut receiver, peer, self.stop);
        // The port is closed before anybody else may ask for it.
        drop(receiver);
        self.free();
        (self.tell)(&Event::Closed(closed));
        self.ended.fetch_add(1, Ordering::Release);
        // Last: the sender waits for it, and may come again then.
        drop(channel);
    }

    /// Those at their greeting when there is room for one more; where there is none, one is closed.
    fn make_room(&self) -> MutexGuard<'_, Vec<(SocketAddr, TcpStream)>> {
        let waiting = self.waiting();
        if waiting.len() >= GREETING {
            let peers: Vec<_> = waiting.iter().map(|one| one.0.ip()).collect();
            // Its thread hears of that at once, and takes it out.
            let _ = waiting[giving_way(&peers)].1.shutdown(Shutdown::Both);
        }
        self.greeted.wait_while(waiting, |waiting| waiting.len() >= GREETING).unwrap_or_else(PoisonError::into_inner)
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<(SocketAddr, TcpStream)>> {
        self.greeting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hears the greeting and answers it; the reason when there is no session.
    fn greet(&self, stream: TcpStream, peer: SocketAddr) -> Result<(Channel, Receiver), String> {
        let own = stream.local_addr().map(|own| own.ip());
        let heard = Channel::over(stream).map_err(channel::failed).and_then(|mut channel| {
            let said: Greeting = channel.receive(PATIENCE, self.stop)?;
            Ok((channel, said))
        });
        self.waiting().retain(|one| one.0 != peer);
        self.greeted.notify_one();
        let own = own.map_err(|error| error.to_string())?;
        let (mut channel, said) = heard.map_err(|failure| match failure {
            // By it, or to make room.
            Failure::PeerLost(_) => "the connection was closed before it had greeted".into(),
            other => channel::reason(other),
        })?;
        let refuse = |channel: &mut Channel, reason: Refusal, message: String| {
            let refused = Answer::Refused {
                protocol: PROTOCOL,
                tool_version: TOOL_VERSION.into(),
                reason,
                message: message.clone(),
            };
            // Whoever is gone already need not hear it.
            let _ = channel.send(&refused, PATIENCE, self.stop);
            message
        };
        if said.kind != "hello" {
            return Err(channel::reason(Failure::Protocol(format!("{:?} instead of a greeting", said.kind))));
        }
        if said.protocol != PROTOCOL {
            let message = format!(
                "it is version {} (protocol {}), and this is version {TOOL_VERSION} (protocol {PROTOCOL})",
                said.tool_version, said.protocol
            );
            return Err(refuse(&mut channel, Refusal::Version, message));
        }
        let known = |secret: Token| said.secret.as_ref().is_some_and(|said| secret.is(said));
        if !self.settings.secret.is_none_or(known) {
            return Err(refuse(&mut channel, Refusal::Secret, "it does not know the token".into()));
        }
        if let Err(other) = self.take(peer) {
            return Err(refuse(&mut channel, Refusal::Busy, format!("{} has a session", other.ip())));
        }
        let opened = Token::random().and_then(|token| {
            let receiver = Receiver::open(SocketAddr::new(own, self.port), token, peer.ip(), self.settings.stamps)?;
            self.settings.placement.apply()?;
            Ok((token, receiver))
        });
        let (token, receiver) = match opened {
            Ok(opened) => opened,
            Err(failure) => {
                self.free();
                return Err(refuse(&mut channel, Refusal::Machine, failure.to_string()));
            }
        };
        let no_kernel_stamps = receiver.no_kernel_stamps().map(str::to_owned);
        let welcome = Answer::Welcome {
            protocol: PROTOCOL,
            tool_version: TOOL_VERSION.into(),
            token: ByteBuf::from(token.bytes()),
            no_kernel_stamps: no_kernel_stamps.clone(),
            buffer_bytes: receiver.buffer_bytes(),
        };
        if let Err(failure) = channel.send(&welcome, PATIENCE, self.stop) {
            drop(receiver);
            self.free();
            return Err(channel::reason(failure));
        }
        (self.tell)(&Event::Opened { peer, tool_version: said.tool_version, no_kernel_stamps });
        Ok((channel, receiver))
    }

    /// Gives the session to somebody, unless another one has it.
    fn take(&self, peer: SocketAddr) -> Result<(), SocketAddr> {
        let mut served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        served.map_or(Ok(()), Err)?;
        *served = Some(peer);
        Ok(())
    }

    fn free(&self) {
        *self.served.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Which of those at their greeting, the oldest first, makes room: the oldest of the address that holds most places, so
/// that nobody who has one place is kept out by a single address that takes all others, however fast it comes again.
fn giving_way(peers: &[IpAddr]) -> usize {
    let places = |peer: IpAddr| peers.iter().filter(|one| **one == peer).count();
    (0..peers.len()).rev().max_by_key(|&place| places(peers[place])).unwrap_or(0)
}

/// What every version's greeting holds.
#[derive(Deserialize)]
struct Greeting {
    #[serde(rename = "type")]
    kind: String,
    protocol: u32,
    #[serde(default)]
    tool_version: String,
    #[serde(default)]
    secret: Option<ByteBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_the_address_that_holds_most_places_makes_room() {
        let peers = |last: &[u8]| last.iter().map(|&last| IpAddr::from([192, 0, 2, last])).collect::<Vec<_>>();
        assert_eq!(giving_way(&peers(&[7, 7, 7])), 0);
        assert_eq!(giving_way(&peers(&[1, 7, 2, 7, 3])), 1);
        assert_eq!(giving_way(&peers(&[1, 2, 3])), 0);
        assert_eq!(giving_way(&peers(&[2, 7, 7, 2, 2])), 0);
    }
}
