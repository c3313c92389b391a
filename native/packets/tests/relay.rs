//! A relay between two pairs of interfaces does known harm to what it forwards; every port reports exactly that harm.

mod laboratory;

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use laboratory::{enter_new_namespace, offload_receiving, outcome, pair, received, settings};
use packets::interface::index_of;
use packets::port::Kind;
use packets::schedule::Pace;
use packets::trial::Outcome;

/// What is sent on in place of the frame of this number, in this order.
type Harm = fn(number: usize, frame: Vec<u8>, held: &mut Option<Vec<u8>>) -> Vec<Vec<u8>>;

fn socket(interface: &str) -> OwnedFd {
    // SAFETY: makes a descriptor, which nobody else owns; the other calls read one value of its size each.
    unsafe {
        let protocol = (libc::ETH_P_ALL as u16).to_be();
        let socket = libc::socket(libc::AF_PACKET, libc::SOCK_RAW, i32::from(protocol));
        assert!(socket >= 0, "{}", std::io::Error::last_os_error());
        let socket = OwnedFd::from_raw_fd(socket);
        let mut address: libc::sockaddr_ll = std::mem::zeroed();
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol;
        address.sll_ifindex = index_of(interface).unwrap() as i32;
        let length = size_of_val(&address) as u32;
        assert_eq!(libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length), 0);
        let room = 64i32 << 20;
        let patience = libc::timeval { tv_sec: 0, tv_usec: 20_000 };
        let set = |option, value: *const libc::c_void, length| {
            assert_eq!(libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, value, length as u32), 0);
        };
        set(libc::SO_RCVBUFFORCE, (&raw const room).cast(), size_of_val(&room));
        set(libc::SO_RCVTIMEO, (&raw const patience).cast(), size_of_val(&patience));
        socket
    }
}

/// Forwards what comes to `in` to `out` until it is told to stop; says when it is ready to.
fn relay(harm: Harm, stop: &AtomicBool, ready: &mpsc::Sender<()>) {
    let (from, to) = (socket("in"), socket("out"));
    ready.send(()).unwrap();
    let (mut number, mut held) = (0, None);
    while !stop.load(Ordering::Relaxed) {
        let mut frame = vec![0; 2048];
        // SAFETY: fills the frame within its length.
        let length = unsafe { libc::recv(from.as_raw_fd(), frame.as_mut_ptr().cast(), frame.len(), 0) };
        if length <= 0 {
            continue;
        }
        frame.truncate(length as usize);
        for frame in harm(number, frame, &mut held) {
            // SAFETY: reads the frame.
            unsafe { libc::send(to.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        }
        number += 1;
    }
}

/// A trial of 4000 frames through a relay, by each port.
fn each_port(harm: Harm, state: fn(&Outcome)) {
    for kind in Kind::ALL {
        let judged = thread::spawn(move || {
            enter_new_namespace();
            pair("tx", "in");
            pair("out", "rx");
            offload_receiving("in");
            let stop = Arc::new(AtomicBool::new(false));
            let (tell, told) = mpsc::channel();
            let relaying = {
                let stop = Arc::clone(&stop);
                thread::spawn(move || relay(harm, &stop, &tell))
            };
            told.recv().unwrap();
            let mut settings = settings(Some(kind), 124, Pace::new(10_000.0, 400_000_000));
            settings.flows.truncate(1);
            // The relay may pause meanwhile, with frames that it has still to forward.
            settings.drain_ns = 1_500_000_000;
            let outcome = outcome(settings);
            stop.store(true, Ordering::Relaxed);
            relaying.join().unwrap();
            assert_eq!(outcome.transmission.total(), 4000);
            state(&outcome);
        });
        judged.join().unwrap_or_else(|_| panic!("with {}", kind.name()));
    }
}

#[test]
fn what_is_dropped_is_lost() {
    each_port(
        |number, frame, _| if number % 10 == 3 { vec![] } else { vec![frame] },
        |outcome| {
            let tally = &outcome.analyser.flows()[0];
            assert_eq!(received(outcome), [3600]);
            assert_eq!((tally.duplicates, tally.reordered, outcome.analyser.corrupted()), (0, 0, 0));
        },
    );
}

#[test]
fn what_is_doubled_is_received_once() {
    each_port(
        |number, frame, _| if number % 8 == 0 { vec![frame.clone(), frame] } else { vec![frame] },
        |outcome| {
            let tally = &outcome.analyser.flows()[0];
            assert_eq!(received(outcome), [4000]);
            assert_eq!((tally.duplicates, tally.reordered, outcome.analyser.corrupted()), (500, 0, 0));
            assert_eq!(tally.latency.len(), 4000);
        },
    );
}

#[test]
fn what_is_overtaken_is_reordered() {
    each_port(
        |number, frame, held| match number % 10 {
            0 => {
                *held = Some(frame);
                vec![]
            }
            3 => [Some(frame), held.take()].into_iter().flatten().collect(),
            _ => vec![frame],
        },
        |outcome| {
            let tally = &outcome.analyser.flows()[0];
            assert_eq!(received(outcome), [4000]);
            assert_eq!((tally.duplicates, tally.reordered, tally.reordering_extent), (0, 400, 4));
        },
    );
}

#[test]
fn what_is_harmed_is_corrupted_and_lost() {
    each_port(
        |number, mut frame, _| {
            if number % 20 == 7 {
                frame[100] ^= 0x10;
            }
            vec![frame]
        },
        |outcome| {
            assert_eq!(received(outcome), [3800]);
            assert_eq!(outcome.analyser.corrupted(), 200);
        },
    );
}

#[test]
fn frames_of_others_are_counted_apart() {
    each_port(
        |number, frame, _| {
            let stranger = vec![0xff; 60];
            if number % 4 == 0 { vec![stranger, frame] } else { vec![frame] }
        },
        |outcome| {
            assert_eq!(received(outcome), [4000]);
            assert_eq!((outcome.analyser.foreign(), outcome.analyser.corrupted()), (1000, 0));
        },
    );
}
