//! One client: a thread with a connection of its own, beginning statements as its stream says.

use std::mem::take;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use uuid::Uuid;

use crate::acknowledged::Writing;
use crate::arrivals::Arrivals;
use crate::check::{check, check_window};
use crate::clock::{Waiter, now, process_cpu, sleep_until};
use crate::failure::{Failure, Kind};
use crate::generator::{Data, mix};
use crate::histogram::Durations;
use crate::roles::Writer;
use crate::schedule::Schedule;
use crate::spec::Operation;
use crate::store::{Reading, Session, Store};

/// A client that alone had so many times as many statements answered as all were to have ends the span, for whatever the
/// others have makes no difference.
const PLENTY: u64 = 8;
/// Slices of the measured span, in nanoseconds.
pub const SLICE: u64 = 100_000_000;
/// From a failure to the next attempt, so that failures do not come by the million, in nanoseconds.
const PAUSE: u64 = 20_000_000;

/// When a measurement is, of `CLOCK_MONOTONIC`.
#[derive(Debug)]
pub struct Span {
    /// The warm-up's beginning.
    pub begin: u64,
    /// From here on it counts.
    pub start: u64,
    /// So long at least.
    least_end: u64,
    /// Answers that each client is to have before it ends; those that came together are one.
    least_operations: u64,
    /// How many there are.
    clients: u64,
    /// Clients that have not.
    pending: AtomicU64,
    /// Nothing is begun any more: of a span that some client has had too little of, the last moment that it may have.
    end: AtomicU64,
    /// What this process had used of processors at the end of a span that was lengthened, in nanoseconds; else 0.
    cpu_at_end: AtomicU64,
}

impl Span {
    /// Of so many nanoseconds, and longer by no more than `longer` until so many clients have had so many answers.
    #[must_use]
    pub fn new(begin: u64, start: u64, duration: u64, longer: u64, clients: u64, least_operations: u64) -> Self {
        let least_end = start + duration;
        Self {
            begin,
            start,
            least_end,
            least_operations,
            clients,
            pending: AtomicU64::new(clients),
            end: AtomicU64::new(if least_operations > 0 { least_end + longer } else { least_end }),
            cpu_at_end: AtomicU64::new(0),
        }
    }

    /// Nothing is begun from here on, as far as it is known.
    pub fn end(&self) -> u64 {
        self.end.load(Ordering::Relaxed)
    }

    fn counts(&self, moment: u64) -> bool {
        (self.start..self.end()).contains(&moment)
    }

    /// What this process had used of processors at the end, where that was not known before.
    pub fn cpu_at_end(&self) -> Option<u64> {
        Some(self.cpu_at_end.load(Ordering::Relaxed)).filter(|&cpu| cpu > 0)
    }

    /// One client more has had enough, or nobody waits for it any more.
    fn settle(&self) {
        if self.pending.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.conclude();
        }
    }

    /// All have had enough.
    fn conclude(&self) {
        if self.least_operations > 0 {
            let moment = now();
            if (self.least_end..self.end()).contains(&moment) {
                self.cpu_at_end.store(process_cpu(), Ordering::Relaxed);
            }
            self.end.fetch_min(self.least_end.max(moment), Ordering::Relaxed);
        }
    }
}

/// What all clients of a measurement have in common.
pub struct Common<'a> {
    /// Where they connect.
    pub store: &'a dyn Store,
    /// What they write and expect.
    pub data: &'a Data,
    /// When.
    pub span: Span,
    /// All is over.
    pub stop: AtomicBool,
    /// The first failure sets `stop`.
    pub until_failure: bool,
    /// Where acknowledgements are noted.
    pub acknowledged: Option<Writing>,
    /// Processor time that clients spun away in the measured span, in nanoseconds.
    pub spun: AtomicU64,
    /// The first failure of each stream.
    pub first_failures: Vec<Mutex<Option<Failure>>>,
}

/// What a client does.
#[derive(Clone, Debug)]
pub enum Role {
    /// Writes its sensor's readings.
    Writer(Writer),
    /// Reads of any sensor.
    Reader {
        /// Its readings, the newest of them, or what the database reckons of them.
        asks: Operation,
        /// How many at a time.
        values: u64,
        /// Of how many that each sensor has.
        preload: u64,
        /// Which of them, in the course of time.
        seed: u64,
    },
}

/// What became of a client's statements.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Those that were answered rightly, of the whole run.
    pub answered: u64,
    /// Of these, those that count.
    pub operations: u64,
    /// Of a closed loop, when the first was answered since the span's start, and the last of all.
    pub cycles: Option<(u64, u64)>,
    /// And how many were answered rightly after that first one.
    pub renewed: u64,
    /// Failures, of the whole run.
    pub errors: u64,
    /// Wrong answers, of the whole run.
    pub wrong: u64,
    /// Readings in those that count which are older than one of an earlier statement.
    pub late_rows: u64,
    /// From sending to answer.
    pub service: Durations,
    /// From the intended beginning to the answer.
    pub response: Durations,
    /// From the intended beginning to sending, where the client had waited for it: the generator's own.
    pub lateness: Durations,
    /// Answered per slice of the measured span, right or not counted.
    pub slices: Vec<u64>,
}

/// A client with its connection.
pub struct Client<'a> {
    common: &'a Common<'a>,
    stream: usize,
    schedule: Option<&'a Schedule>,
    role: Role,
    session: Option<Box<dyn Session>>,
    waiter: Waiter,
    /// What a writer writes next.
    arrivals: Option<Arrivals>,
    /// The youngest reading that a writer has written yet.
    youngest: i64,
    /// Statements begun.
    begun: u64,
    tally: Tally,
    answer: Vec<Reading>,
    batch: Vec<Vec<Reading>>,
}

/// When a statement was to begin, and whether the client was free and waited for that.
#[derive(Clone, Copy)]
struct Intended {
    moment: u64,
    waited: bool,
}

impl<'a> Client<'a> {
    /// Of a stream, by its number; without a schedule it is a closed loop.
    pub fn new(
        common: &'a Common<'a>,
        stream: usize,
        schedule: Option<&'a Schedule>,
        role: Role,
        session: Box<dyn Session>,
    ) -> Self {
        Self {
            common,
            stream,
            schedule,
            arrivals: match &role {
                Role::Writer(writer) => Some(writer.arrivals(common.data)),
                Role::Reader { .. } => None,
            },
            role,
            session: Some(session),
            waiter: Waiter::new(),
            youngest: i64::MIN,
            begun: 0,
            tally: Tally::default(),
            answer: Vec::new(),
            batch: Vec::new(),
        }
    }

    /// Until the end, the first failure where that is the end, or a failure that no statement will do better after.
    #[must_use]
    pub fn run(mut self) -> Tally {
        let together = match &self.role {
            Role::Writer(writer) => writer.pipeline,
            Role::Reader { .. } => 1,
        };
        let least = self.common.span.least_operations * together;
        let (mut intended, mut enough, mut plenty) = (Vec::new(), false, false);
        self.waiter.wait(self.common.span.begin, &self.common.stop);
        while self.next(&mut intended) {
            let spun = take(&mut self.waiter.spun);
            // A closed loop never spins, and is spared a clock and a counter that all clients would write.
            if spun > 0 && self.common.span.counts(now()) {
                self.common.spun.fetch_add(spun, Ordering::Relaxed);
            }
            let done = match self.role.clone() {
                Role::Writer(writer) => self.write(&writer, &intended),
                Role::Reader { asks, values, preload, seed } => {
                    self.read(asks, values, preload, seed, intended.first().copied())
                }
            };
            let failed = done.is_err();
            if let Err(failure) = done
                && !self.goes_on_after(failure)
            {
                break;
            }
            if !enough && (failed || self.tally.operations >= least) {
                enough = true;
                self.common.span.settle();
            }
            if !plenty && self.tally.operations >= PLENTY * least * self.common.span.clients {
                plenty = true;
                self.common.span.conclude();
            }
        }
        if !enough {
            self.common.span.settle();
        }
        self.tally
    }

    /// Waits for the next statements that are to begin; none are left when it says no.  Leaves none in `intended` for a
    /// closed loop, and more than one only if they are due together and pipelined.
    fn next(&mut self, intended: &mut Vec<Intended>) -> bool {
        intended.clear();
        let common = self.common;
        let current = now();
        if common.stop.load(Ordering::Relaxed) || current >= common.span.end() {
            return false;
        }
        let Some(schedule) = self.schedule else { return true };
        let Some(moment) = schedule.claim() else { return false };
        let waited = moment > current;
        if !self.waiter.wait(moment, &common.stop) {
            return false;
        }
        intended.push(Intended { moment, waited });
        if let Role::Writer(writer) = &self.role {
            let due = now();
            while (intended.len() as u64) < writer.pipeline {
                let Some(moment) = schedule.claim_until(due) else { break };
                intended.push(Intended { moment, waited: false });
            }
        }
        true
    }

    fn write(&mut self, writer: &Writer, intended: &[Intended]) -> Result<(), Failure> {
        let common = self.common;
        let depth = if intended.is_empty() { writer.pipeline as usize } else { intended.len() };
        self.batch.resize_with(self.batch.len().max(depth), Vec::new);
        let arrivals = self.arrivals.as_mut().expect("a writer has readings to write");
        let mut late = vec![0; if common.data.late.is_some() { depth } else { 0 }];
        for (place, readings) in self.batch[..depth].iter_mut().enumerate() {
            readings.clear();
            let numbers = arrivals.by_ref().take(writer.values as usize);
            readings.extend(numbers.map(|number| common.data.reading(writer.sensor, number)));
            if let Some(late) = late.get_mut(place) {
                *late = readings.iter().filter(|reading| reading.timestamp < self.youngest).count() as u64;
                let youngest = readings.iter().map(|reading| reading.timestamp).max();
                self.youngest = self.youngest.max(youngest.unwrap_or(i64::MIN));
            }
        }
        let sensor = common.data.sensor(writer.sensor);
        let first = self.begun;
        self.begun += depth as u64;
        let session = self.session.as_mut().expect("a client without a session does not go on");
        let tally = &mut self.tally;
        let mut noted = Ok(());
        // What is noted is how many were acknowledged before any that was not, in whatever order answers come.
        let mut done = vec![false; if common.acknowledged.is_some() { depth } else { 0 }];
        let mut reached = 0;
        let sent = now();
        let mut answered = sent;
        let mut acknowledged = |number: usize| {
            answered = now();
            if tally.count(&common.span, intended.get(number).copied(), sent, answered) {
                tally.late_rows += late.get(number).copied().unwrap_or(0);
            }
            if let (Some(file), Ok(())) = (&common.acknowledged, &noted) {
                done[number] = true;
                let before = reached;
                reached += done[reached..].iter().take_while(|done| **done).count();
                if reached > before {
                    noted = file.note(writer.place, first + reached as u64, answered);
                }
            }
        };
        if depth == 1 {
            session.write(sensor, &self.batch[0])?;
            acknowledged(0);
        } else {
            let statements: Vec<(Uuid, &[Reading])> =
                self.batch[..depth].iter().map(|one| (sensor, &one[..])).collect();
            session.write_pipelined(&statements, &mut acknowledged)?;
        }
        if intended.is_empty() {
            tally.renew(&common.span, answered, depth);
        }
        noted
    }

    fn read(
        &mut self,
        asks: Operation,
        values: u64,
        preload: u64,
        seed: u64,
        intended: Option<Intended>,
    ) -> Result<(), Failure> {
        let data = self.common.data;
        let chance = mix(seed.wrapping_add(2 * self.begun));
        let sensor = chance % data.sensors;
        let first = match asks {
            Operation::LastValue => preload - 1,
            _ => mix(seed.wrapping_add(2 * self.begun + 1)) % (preload - values + 1),
        };
        self.begun += 1;
        let (from, to) = (data.timestamp(first), data.timestamp(first + values - 1));
        let name = data.sensor(sensor);
        let session = self.session.as_mut().expect("a client without a session does not go on");
        let sent = now();
        let window = match asks {
            Operation::Window => Some(session.window(name, from, to)?),
            Operation::LastValue => {
                session.last_value(name, data.timestamp(preload), &mut self.answer).map(|()| None)?
            }
            _ => session.read(name, from, to, &mut self.answer).map(|()| None)?,
        };
        let answered = now();
        match window {
            Some(window) => check_window(data, sensor, first, values, window)?,
            None => check(data, sensor, first, values, &self.answer)?,
        }
        self.tally.count(&self.common.span, intended, sent, answered);
        if intended.is_none() {
            self.tally.renew(&self.common.span, answered, 1);
        }
        Ok(())
    }

    /// Takes note of a failure; whether to go on, with a connection.
    fn goes_on_after(&mut self, failure: Failure) -> bool {
        let common = self.common;
        // One step asks and tells: of clients that fail at once, one has the failure that ended it.
        if common.until_failure && common.stop.swap(true, Ordering::Relaxed) {
            return false; // it is over, and by the same failure
        }
        let kind = failure.kind;
        match kind {
            Kind::WrongAnswer => self.tally.wrong += 1,
            _ => self.tally.errors += 1,
        }
        let mut first = common.first_failures[self.stream].lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert(failure);
        drop(first);
        if common.until_failure {
            return false;
        }
        if common.acknowledged.is_some() {
            return false; // the file says how many, and so has to be without gaps
        }
        match kind {
            Kind::WrongAnswer => true,
            Kind::Full | Kind::Database => self.pause(),
            Kind::Lost | Kind::Timeout | Kind::Refused => self.reconnects(),
            _ => false,
        }
    }

    fn pause(&self) -> bool {
        sleep_until(now() + PAUSE);
        !self.common.stop.load(Ordering::Relaxed) && now() < self.common.span.end()
    }

    fn reconnects(&mut self) -> bool {
        self.session = None;
        while self.pause() {
            match self.common.store.connect() {
                Ok(session) => {
                    self.session = Some(session);
                    return true;
                }
                Err(failure) if matches!(failure.kind, Kind::Denied | Kind::Schema | Kind::Unsupported) => {
                    return false;
                }
                Err(_) => (), // not yet; the statement that failed has been counted
            }
        }
        false
    }
}

impl Tally {
    /// Counts a statement that was answered.  One of a closed loop counts where it was answered within the span; one
    /// of an open loop where it was to begin within, whenever it was answered.  Whether it counts.
    fn count(&mut self, span: &Span, intended: Option<Intended>, sent: u64, answered: u64) -> bool {
        self.answered += 1;
        if span.counts(answered) {
            let slice = ((answered - span.start) / SLICE) as usize;
            self.slices.resize(self.slices.len().max(slice + 1), 0);
            self.slices[slice] += 1;
        }
        if !span.counts(intended.map_or(answered, |intended| intended.moment)) {
            return false;
        }
        self.operations += 1;
        self.service.record(answered.saturating_sub(sent));
        if let Some(intended) = intended {
            self.response.record(answered.saturating_sub(intended.moment));
            if intended.waited {
                self.lateness.record(sent.saturating_sub(intended.moment));
            }
        }
        true
    }

    /// So many statements of a closed loop were answered together, and the client is free.
    fn renew(&mut self, span: &Span, answered: u64, statements: usize) {
        match &mut self.cycles {
            Some((_, last)) => {
                *last = answered;
                self.renewed += statements as u64;
            }
            none if answered >= span.start => *none = Some((answered, answered)),
            _ => (),
        }
    }

    /// Statements a second of a closed loop, by whole cycles of its client: from its first answer in the span to its
    /// first after it, so that it makes no difference where in a cycle the span begins and ends.
    #[must_use]
    pub fn cycles_per_s(&self) -> f64 {
        match self.cycles {
            Some((first, last)) if last > first => self.renewed as f64 * 1e9 / (last - first) as f64,
            _ => 0.0,
        }
    }
}
