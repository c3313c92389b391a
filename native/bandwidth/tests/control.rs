//! Who is let in, and what is said to everybody else.

mod session;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use bandwidth::control::channel::Channel;
use bandwidth::control::client::{self, Session};
use bandwidth::control::listener::Event;
use bandwidth::control::message::{Answer, Ignored, Refusal, Request};
use bandwidth::control::{PROTOCOL, TOOL_VERSION};
use bandwidth::transport::{Stream, Transport};
use bandwidth::udp::packet;
use bandwidth::udp::transport::UdpTransport;
use failure::Failure;
use session::tries::in_one_of_five;
use session::{Listening, open, patiently, sender, settings, to};

static GO_ON: AtomicBool = AtomicBool::new(false);
const LIMIT: Duration = Duration::from_secs(20);

/// Why there is no session.
fn refused(settings: &client::Settings) -> Failure {
    Session::open(settings).expect_err("there is a session")
}

/// A server that is not ours: does something with its first connection.
fn other_server(serve: impl FnOnce(TcpStream) + Send + 'static) -> SocketAddr {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    std::thread::spawn(move || serve(server.accept().unwrap().0));
    address
}

/// A server that welcomes a sender and says nothing more, for as long as the other half of the answer lives.
fn silent_server() -> (SocketAddr, mpsc::Sender<()>) {
    let (end, ended) = mpsc::channel::<()>();
    let address = other_server(move |stream| {
        let mut channel = Channel::over(stream).unwrap();
        let _: Request = channel.receive(LIMIT, &GO_ON).unwrap();
        let welcome = Answer::Welcome {
            protocol: PROTOCOL,
            tool_version: "0".into(),
            token: vec![0; 16].into(),
            no_kernel_stamps: None,
            buffer_bytes: 0,
        };
        channel.send(&welcome, LIMIT, &GO_ON).unwrap();
        let _ = ended.recv();
    });
    (address, end)
}

fn channel_to(address: SocketAddr) -> Channel {
    Channel::over(TcpStream::connect(address).unwrap()).unwrap()
}

fn hello(protocol: u32) -> Request {
    Request::Hello { protocol, tool_version: "9.9.9".into(), secret: None }
}

#[test]
fn an_address_where_nobody_listens_is_named_with_the_command_that_helps() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let failure = refused(&to(free));
    assert!(matches!(failure, Failure::PeerLost(_)));
    let message = failure.to_string();
    assert!(message.contains(&free.to_string()) && message.contains("virtgauge bandwidth listen --port"), "{message}");
}

#[test]
fn a_host_that_is_unknown_or_cannot_be_reached_is_named() {
    let nowhere = client::Settings { host: "no-such-host.invalid".into(), ..to("127.0.0.1:1".parse().unwrap()) };
    assert!(refused(&nowhere).to_string().contains("no-such-host.invalid"));
    // A namespace with nothing but its loopback has no way anywhere else.
    let message = session::apart(|| {
        session::enter_new();
        refused(&to("192.0.2.1:8763".parse().unwrap())).to_string()
    });
    assert!(message.contains("192.0.2.1") && message.contains("route"), "{message}");
}

#[test]
fn a_host_that_drops_everything_is_given_up_within_a_bounded_time() {
    let message = session::apart(|| {
        let far = session::pair();
        // The address is known, and nobody there takes what is sent to it.
        session::run("ip neighbour add 10.77.0.9 lladdr 02:00:00:00:00:09 dev near");
        let failure = refused(&to("10.77.0.9:8763".parse().unwrap()));
        drop(far);
        failure.to_string()
    });
    assert!(message.contains("did not answer within 5 s") && message.contains("firewall"), "{message}");
}

#[test]
fn what_is_no_listener_of_ours_is_told_from_one() {
    for (said, named) in
        [(&b"SSH-2.0-OpenSSH_9.2\r\n"[..], "no `virtgauge bandwidth listen`"), (b"", "closed the connection")]
    {
        let address = other_server(move |mut stream| {
            stream.write_all(said).unwrap();
            // Who closes with something unread takes back what it said.
            let end = if said.is_empty() { 4 } else { u64::MAX };
            stream.take(end).read_to_end(&mut Vec::new()).unwrap();
        });
        let failure = refused(&to(address));
        assert!(matches!(failure, Failure::Protocol(_)), "{failure}");
        assert!(failure.to_string().contains(named), "{failure}");
    }
}

#[test]
fn a_server_that_takes_a_connection_and_says_nothing_is_given_up() {
    let (end, ended) = mpsc::channel::<()>();
    let address = other_server(move |stream| {
        let _ = ended.recv();
        drop(stream);
    });
    let message = refused(&to(address)).to_string();
    assert!(message.contains("did not greet within 5 s"), "{message}");
    drop(end);
}

#[test]
fn a_listener_of_another_version_is_refused_with_both_versions() {
    for answer in [
        Answer::Refused {
            protocol: PROTOCOL + 1,
            tool_version: "9.9.9".into(),
            reason: Refusal::Version,
            message: "another version".into(),
        },
        Answer::Welcome {
            protocol: PROTOCOL + 1,
            tool_version: "9.9.9".into(),
            token: vec![0; 16].into(),
            no_kernel_stamps: None,
            buffer_bytes: 0,
        },
    ] {
        let address = other_server(move |stream| {
            let mut channel = Channel::over(stream).unwrap();
            let _: Request = channel.receive(LIMIT, &GO_ON).unwrap();
            channel.send(&answer, LIMIT, &GO_ON).unwrap();
        });
        let message = refused(&to(address)).to_string();
        assert!(
            message.contains("9.9.9") && message.contains(TOOL_VERSION) && message.contains("install"),
            "{message}"
        );
    }
}

/// A later version's greeting may hold more than this one knows.
#[derive(serde::Serialize)]
struct Later<'a> {
    r#type: &'a str,
    protocol: u32,
    tool_version: &'a str,
    more: [u32; 3],
}

#[test]
fn a_sender_of_another_version_is_told_so_and_gets_no_token() {
    let listening = Listening::on_loopback();
    let mut channel = channel_to(listening.address);
    let later = Later { r#type: "hello", protocol: PROTOCOL + 1, tool_version: "9.9.9", more: [1, 2, 3] };
    channel.send(&later, LIMIT, &GO_ON).unwrap();
    match channel.receive(LIMIT, &GO_ON).unwrap() {
        Answer::Refused { protocol, reason, message, .. } => {
            assert_eq!((protocol, reason), (PROTOCOL, Refusal::Version));
            assert!(message.contains("9.9.9"), "{message}");
        }
        answer => panic!("{answer:?}"),
    }
    let events = listening.end();
    assert!(matches!(&events[1], Event::Refused { reason, .. } if reason.contains("9.9.9")), "{events:?}");
}

#[test]
fn a_listener_with_a_token_lets_in_those_who_know_it() {
    let secret = session::secret();
    let listening = Listening::start(
        bandwidth::control::listener::Settings { secret: Some(secret), ..settings("127.0.0.1") },
        None,
    );
    for wrong in [None, Some(session::secret())] {
        let failure = refused(&client::Settings { secret: wrong, ..to(listening.address) });
        assert!(matches!(failure, Failure::Invalid(_)) && failure.to_string().contains("--token"), "{failure}");
    }
    let session = Session::open(&client::Settings { secret: Some(secret), ..to(listening.address) }).unwrap();
    // What probes hold, in the clear, is not what lets in.
    assert!(!session.token.is(secret.bytes()));
    session.close();
}

#[test]
fn a_second_sender_is_told_to_wait_and_let_in_afterwards() {
    let listening = Listening::on_loopback();
    let first = Session::open(&to(listening.address)).unwrap();
    let failure = refused(&to(listening.address));
    assert!(matches!(failure, Failure::Unsupported(_)) && failure.to_string().contains("another sender"), "{failure}");
    let token = first.token;
    first.close();
    let second = patiently(&sender(to(listening.address)));
    assert!(!second.session().token.is(token.bytes()));
    second.close();
}

#[test]
fn a_sender_that_has_finished_leaves_the_listener_free_for_the_next_one() {
    let listening = Listening::on_loopback();
    for finished in 1..=20 {
        patiently(&sender(to(listening.address))).close();
        let events = listening.events();
        let closed = events.iter().filter(|event| matches!(event, Event::Closed(_))).count();
        assert_eq!(closed, finished, "{events:?}");
    }
    let busy = |event: &Event| matches!(event, Event::Refused { reason, .. } if reason.contains("has a session"));
    let events = listening.end();
    assert!(!events.iter().any(busy), "{events:?}");
}

#[test]
fn a_listener_that_does_not_end_a_session_is_left_all_the_same() {
    let (address, _silent) = silent_server();
    let session = Session::open(&to(address)).unwrap();
    let begun = Instant::now();
    session.close();
    assert!(begun.elapsed() < LIMIT, "{:?}", begun.elapsed());
}

#[test]
fn those_who_say_nothing_or_nonsense_do_not_keep_the_listener_from_others() {
    let listening = Listening::on_loopback();
    let _silent = TcpStream::connect(listening.address).unwrap();
    let mut nonsense = TcpStream::connect(listening.address).unwrap();
    nonsense.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut ungreeted = channel_to(listening.address);
    ungreeted.send(&Request::Bye, LIMIT, &GO_ON).unwrap();
    open(listening.address).close();
    // Who speaks nonsense is not answered at all.
    assert_eq!(nonsense.read(&mut [0; 100]).unwrap_or(0), 0);
}

/// Sixteen places are for those who are at their greeting.
#[test]
fn a_crowd_that_says_nothing_and_comes_again_does_not_keep_senders_out() {
    let listening = Listening::on_loopback();
    let call = || TcpStream::connect(listening.address).unwrap();
    let mut crowd: Vec<TcpStream> = (0..16).map(|_| call()).collect();
    for round in 0..5 {
        patiently(&sender(to(listening.address))).close();
        // Those who made room for the sender are back before the next one.
        for place in 0..16 {
            crowd[(place + round) % 16] = call();
        }
    }
    let refused = |event: &Event| matches!(event, Event::Refused { reason, .. } if reason.contains("closed before"));
    assert!(listening.end().iter().any(refused));
}

#[test]
fn a_sender_out_of_turn_is_told_and_the_session_ends() {
    let listening = Listening::on_loopback();
    let stream =
        |stream, packets| Request::Stream { stream, packets, payload_bytes: 100, in_bursts: false, count_only: false };
    for wrong in [Request::Sent { packets: 1, quiet_ms: 1 }, hello(PROTOCOL), stream(1, 0), stream(1, u32::MAX)] {
        let mut channel = loop {
            let mut channel = channel_to(listening.address);
            channel.send(&hello(PROTOCOL), LIMIT, &GO_ON).unwrap();
            if matches!(channel.receive(LIMIT, &GO_ON).unwrap(), Answer::Welcome { .. }) {
                break channel;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        channel.send(&wrong, LIMIT, &GO_ON).unwrap();
        let answer: Answer = channel.receive(LIMIT, &GO_ON).unwrap();
        assert!(matches!(answer, Answer::Error { .. }), "{wrong:?}: {answer:?}");
    }
}

#[test]
fn a_listener_that_vanishes_is_told_from_a_path_that_loses_everything() {
    let listening = Listening::on_loopback();
    let mut transport = open(listening.address);
    transport.send(&Stream::at_rate(10, 200, 1e7)).unwrap();
    let events = listening.end();
    assert!(matches!(&events.last(), Some(Event::Closed(closed)) if closed.streams == 2), "{events:?}");
    let failure = transport.send(&Stream::at_rate(10, 200, 1e7)).unwrap_err();
    assert!(matches!(&failure, Failure::PeerLost(reason) if reason.contains("vanished")), "{failure}");
}

#[test]
fn a_listener_that_falls_silent_is_given_up() {
    let (address, _silent) = silent_server();
    let failure = UdpTransport::open(sender(to(address))).err().unwrap();
    assert!(matches!(&failure, Failure::PeerLost(reason) if reason.contains("fell silent")), "{failure}");
}

#[test]
fn somebody_who_asks_for_an_end_does_not_wait_for_the_other_end() {
    let (end, ended) = mpsc::channel::<()>();
    let address = other_server(move |stream| {
        let _ = ended.recv();
        drop(stream);
    });
    let settings = to(address);
    let cancel = Arc::clone(&settings.cancel);
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(30));
        cancel.store(true, Ordering::Relaxed);
    });
    assert!(matches!(refused(&settings), Failure::Cancelled));
    drop(end);
}

#[test]
fn foreign_packets_are_ignored_and_counted_by_their_kind() {
    session::apart(|| {
        session::enter_new();
        session::run("ip address add 127.0.0.2/8 dev lo");
        let listening = Listening::on_loopback();
        let mut transport = open(listening.address);
        let token = transport.session().token;
        let from = |address: &str| {
            let socket = UdpSocket::bind(address).unwrap();
            socket.connect(listening.address).unwrap();
            socket
        };
        let (stranger, neighbour) = (from("127.0.0.2:0"), from("127.0.0.1:0"));
        let mut probe = vec![0; 172];
        packet::fill(&mut probe, &token, 1);
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let pestering = std::thread::spawn(move || {
            let mut sent = 0u64;
            while !flag.load(Ordering::Relaxed) {
                // From another address, even with the token; from the same one without it; and of a stream that is over.
                stranger.send(&probe).unwrap();
                neighbour.send(&[0; 100]).unwrap();
                neighbour.send(&probe).unwrap();
                sent += 1;
                std::thread::sleep(Duration::from_micros(500));
            }
            sent
        });
        in_one_of_five(|| {
            let observation = transport.send(&Stream::at_rate(200, 200, 8e6)).unwrap();
            assert_eq!((observation.received.len(), observation.duplicates, observation.lost()), (200, 0, 0));
            // Who pesters may pause as long as a stream lasts.
            (observation.foreign_packets > 30, observation.foreign_packets)
        });
        stop.store(true, Ordering::Relaxed);
        let sent = pestering.join().unwrap();
        // Until the next stream begins, they are nobody's, and still counted.
        transport.send(&Stream::at_rate(2, 200, 8e6)).unwrap();
        transport.close();
        let Some(Event::Closed(closed)) = listening.end().pop() else { panic!("the session has not ended") };
        let Ignored { stranger, wrong_token, stale, malformed } = closed.ignored;
        assert_eq!((stranger, wrong_token, stale, malformed), (sent, sent, sent, 0));
    });
}

#[test]
fn nothing_is_sent_to_an_address_that_has_not_welcomed_us() {
    // Something listens on UDP where TCP is refused, or where TCP is somebody else's.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let udp = UdpSocket::bind(address).unwrap();
    udp.set_nonblocking(true).unwrap();
    drop(silent);
    assert!(UdpTransport::open(sender(to(address))).is_err());
    let impostor = TcpListener::bind(address).unwrap();
    std::thread::spawn(move || impostor.accept().unwrap().0.write_all(b"220 ready\r\n").unwrap());
    assert!(UdpTransport::open(sender(to(address))).is_err());
    assert_eq!(udp.recv(&mut [0; 10]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn a_port_or_an_address_that_cannot_be_had_is_named_with_what_helps() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut wanted = settings("127.0.0.1");
    wanted.port = taken.local_addr().unwrap().port();
    let message = bandwidth::control::listener::Listener::bind(wanted).unwrap_err().to_string();
    assert!(message.contains("--port"), "{message}");
    let message = bandwidth::control::listener::Listener::bind(settings("192.0.2.77")).unwrap_err().to_string();
    assert!(message.contains("192.0.2.77") && message.contains("ip address"), "{message}");
}
