//! One trial: frames are sent through one interface and received from another, each on a thread of its own.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use failure::Failure;
use hptime::{OsClock, Sleeper};

use crate::analyser::Analyser;
use crate::frame::{Flow, Template};
use crate::interface::{self, Counters};
use crate::port::{self, Chosen, Kind, Receiver, ReceiverLoss};
use crate::schedule::{Order, Pace};
use crate::transmission::{Stream, Timed, Transmission, Transmitter, Watch};

/// A frame sent so long after it was due is late: it no longer belongs to the rate that was asked for, but to a burst.
pub const LATE_NS: u64 = 50_000;

/// A trial that took more than this share longer than asked for is stretched: the rate was not offered.
pub const STRETCHED: f64 = 0.01;

/// How long the receiver rests when nothing has come.  Frames wait in its ring, stamped by the kernel already.
const REST: Duration = Duration::from_micros(200);

/// Niceness of the receiving thread.
const RECEIVING_NICENESS: i32 = -10;

/// How often cancellation is looked for.
const LOOK: Duration = Duration::from_millis(10);

/// What is measured.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Which port, or the fastest that works.
    pub port: Option<Kind>,
    /// Interface to send through.
    pub transmit: String,
    /// Interface to receive from.
    pub receive: String,
    /// The flows and their weights.
    pub flows: Vec<(Flow, f64)>,
    /// Length of each frame, less the check sequence.
    pub length: usize,
    /// How many frames, and when.
    pub pace: Pace,
    /// Which frames are timed.
    pub timed: Timed,
    /// How long sending may take at most.
    pub give_up_ns: u64,
    /// How long to wait for frames after the last was sent.
    pub drain_ns: u64,
    /// Processor of the sending thread.
    pub tx_cpu: Option<usize>,
    /// Processor of the receiving thread.
    pub rx_cpu: Option<usize>,
    /// Decides the session's number and the order of flows.
    pub seed: u64,
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What was sent.
    pub transmission: Transmission,
    /// What was received.
    pub analyser: Analyser,
    /// What the receiver lost itself.
    pub receiver_loss: ReceiverLoss,
    /// What the sending interface counted meanwhile.
    pub transmit_counters: Counters,
    /// What the receiving interface counted meanwhile.
    pub receive_counters: Counters,
    /// Frames that the whole machine dropped meanwhile for a full backlog; `None` where it does not say.
    pub backlog_dropped: Option<u64>,
    /// CPU time of the sending thread.
    pub tx_cpu_ns: u64,
    /// CPU time of the receiving thread.
    pub rx_cpu_ns: u64,
}

/// A trial whose ports are open.
pub struct Trial {
    settings: Settings,
    stream: Stream,
    analyser: Analyser,
    transmitter: Box<dyn Transmitter>,
    receiver: Box<dyn Receiver>,
    chosen: Chosen,
    watch: Arc<Watch>,
}

impl Trial {
    /// Opens the ports.  Refuses the machine's own network namespace.
    pub fn open(settings: Settings, sleeper: &'static Sleeper<'static>) -> Result<Self, Failure> {
        interface::require_own_namespace()?;
        let transmit = interface::index_of(&settings.transmit)?;
        let receive = interface::index_of(&settings.receive)?;
        let session = session(settings.seed);
        let stream = stream(&settings, session);
        let analyser = Analyser::new(session, settings.length, &stream.order.shares_of(settings.pace.frames));
        let opened = port::open(settings.port, transmit, receive, session, &stream, sleeper)?;
        let (transmitter, receiver, chosen) = (opened.transmitter, opened.receiver, opened.chosen);
        Ok(Self { settings, stream, analyser, transmitter, receiver, chosen, watch: Arc::default() })
    }

    /// The port, and why none of the faster ones.
    #[must_use]
    pub fn chosen(&self) -> &Chosen {
        &self.chosen
    }

    /// Sends, receives, and waits for stragglers.
    ///
    /// `goes_on` is called now and then with the share of frames sent; an error from it ends the trial.
    pub fn run<E: From<Failure>>(self, mut goes_on: impl FnMut(f64) -> Result<(), E>) -> Result<Outcome, E> {
        let Self { settings, stream, mut analyser, mut transmitter, mut receiver, watch, .. } = self;
        let received = Watch::default();
        let transmit_before = Counters::read(&settings.transmit)?;
        let receive_before = Counters::read(&settings.receive)?;
        let backlog_before = interface::backlog_dropped();
        thread::scope(|scope| {
            // Whichever way this ends, both threads are told to.
            let _transmitting = Stopping(&watch);
            let _receiving = Stopping(&received);
            let receiving = scope.spawn(|| receive(&mut *receiver, &mut analyser, settings.rx_cpu, &received));
            let sending = scope.spawn(|| send(&mut *transmitter, &stream, settings.tx_cpu, &watch));
            while !sending.is_finished() && !receiving.is_finished() {
                thread::sleep(LOOK);
                goes_on(watch.sent() as f64 / stream.pace.frames as f64)?;
            }
            if receiving.is_finished() {
                // It ends by itself only when it fails.
                watch.stop();
            }
            let (transmission, tx_cpu_ns) = joined(sending)?;
            let end_ns = transmission.end_ns + settings.drain_ns;
            loop {
                let left_ns = end_ns.saturating_sub(OsClock::Monotonic.now_ns());
                if left_ns == 0 || receiving.is_finished() {
                    break;
                }
                thread::sleep(LOOK.min(Duration::from_nanos(left_ns)));
                goes_on(1.0)?;
            }
            received.stop();
            let (receiver_loss, rx_cpu_ns) = joined(receiving)?;
            let transmit_counters = Counters::read(&settings.transmit)?.since(&transmit_before);
            let receive_counters = Counters::read(&settings.receive)?.since(&receive_before);
            // Counters of processors that went offline meanwhile are not among the later ones.
            let backlog_now = interface::backlog_dropped();
            let backlog_dropped = backlog_now.zip(backlog_before).and_then(|(now, then)| now.checked_sub(then));
            Ok((
                transmission,
                tx_cpu_ns,
                receiver_loss,
                rx_cpu_ns,
                transmit_counters,
                receive_counters,
                backlog_dropped,
            ))
        })
        .map(
            |(
                transmission,
                tx_cpu_ns,
                receiver_loss,
                rx_cpu_ns,
                transmit_counters,
                receive_counters,
                backlog_dropped,
            )| {
                Outcome {
                    transmission,
                    analyser,
                    receiver_loss,
                    transmit_counters,
                    receive_counters,
                    backlog_dropped,
                    tx_cpu_ns,
                    rx_cpu_ns,
                }
            },
        )
    }
}

/// The number that this trial's frames carry.  Not zero: memory that nobody wrote would look like a session.
fn session(seed: u64) -> u32 {
    (seed ^ seed >> 32) as u32 ^ OsClock::Monotonic.now_ns() as u32 | 1
}

fn stream(settings: &Settings, session: u32) -> Stream {
    let weights: Vec<f64> = settings.flows.iter().map(|&(_, weight)| weight).collect();
    let templates = (0..).zip(&settings.flows);
    Stream {
        templates: templates.map(|(number, (flow, _))| Template::new(flow, session, number, settings.length)).collect(),
        length: settings.length,
        order: Order::new(&weights, settings.seed),
        pace: settings.pace,
        timed: settings.timed,
        late_ns: LATE_NS,
        give_up_ns: settings.give_up_ns,
    }
}

/// Sends without receiving, on a thread of its own: what a port can send by itself.  What was sent, and the CPU time it took.
pub fn send_only(settings: &Settings, sleeper: &'static Sleeper<'static>) -> Result<(Transmission, u64), Failure> {
    interface::require_own_namespace()?;
    let Some(kind) = settings.port else {
        return Err(Failure::Unsupported("sending alone is by a port of a given kind".into()));
    };
    let stream = stream(settings, session(settings.seed));
    let interface = interface::index_of(&settings.transmit)?;
    let mut transmitter = port::open_transmitter(kind, interface, &stream, sleeper)?;
    thread::scope(|scope| joined(scope.spawn(|| send(&mut *transmitter, &stream, settings.tx_cpu, &Arc::default()))))
}

/// Tells a thread to end.
struct Stopping<'a>(&'a Watch);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

fn joined<T>(thread: thread::ScopedJoinHandle<'_, Result<T, Failure>>) -> Result<T, Failure> {
    match thread.join() {
        Ok(outcome) => outcome,
        // A defect: whoever runs this trial reports it.
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

fn send(
    transmitter: &mut dyn Transmitter,
    stream: &Stream,
    cpu: Option<usize>,
    watch: &Arc<Watch>,
) -> Result<(Transmission, u64), Failure> {
    cpu.map_or(Ok(()), interface::bind_to_cpu)?;
    let cpu_before_ns = OsClock::ThreadCpu.now_ns();
    let transmission = transmitter.transmit(stream, watch)?;
    Ok((transmission, OsClock::ThreadCpu.now_ns() - cpu_before_ns))
}

fn receive(
    receiver: &mut dyn Receiver,
    analyser: &mut Analyser,
    cpu: Option<usize>,
    watch: &Watch,
) -> Result<(ReceiverLoss, u64), Failure> {
    cpu.map_or(Ok(()), interface::bind_to_cpu)?;
    // Where it shares a processor, its ring must not overflow meanwhile; it has little to do, and rests in between.
    // SAFETY: no memory is involved.  Who may not do this receives at the usual priority.
    let _ = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, RECEIVING_NICENESS) };
    let cpu_before_ns = OsClock::ThreadCpu.now_ns();
    while !watch.stopped() {
        if receiver.drain(analyser)? == 0 {
            thread::sleep(REST);
        }
    }
    while receiver.drain(analyser)? > 0 {}
    let loss = receiver.loss()?;
    Ok((loss, OsClock::ThreadCpu.now_ns() - cpu_before_ns))
}
