//! A measurement: streams of clients over a span of time.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use crate::acknowledged::Writing;
use crate::client::{Client, Common, Role, SLICE, Span, Tally};
use crate::clock::{now, process_cpu, sleep_until};
use crate::failure::{Failure, Kind};
use crate::generator::mix;
use crate::histogram::{Distribution, Durations};
use crate::roles::writers;
use crate::schedule::Schedule;
use crate::spec::{Loop, MeasureSpec, Operation, StreamSpec};
use crate::store::Store;

/// From the last connection to the first statement, in nanoseconds: the threads have to be there.
const HEAD_START: u64 = 20_000_000;
/// How often it is looked whether all clients have ended, in nanoseconds.
const GLANCE: u64 = 20_000_000;
/// The most that a span may last, in milliseconds.
const LONGEST_MS: u64 = 86_400_000;

/// What `measure` answers.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// How long it counted.
    pub elapsed_ns: u64,
    /// Processor time of this process meanwhile, user and system, without what was spun in waiting.
    pub cpu_ns: u64,
    /// What was spun.
    pub spun_ns: u64,
    /// When it began to count, of `CLOCK_MONOTONIC`.
    pub started_monotonic_ns: u64,
    /// One for each stream.
    pub streams: Vec<StreamResult>,
}

/// What became of a stream.
#[derive(Clone, Debug, Serialize)]
pub struct StreamResult {
    /// Statements that were answered rightly, warm-up included.
    pub answered: u64,
    /// Of these, those that count.
    pub operations: u64,
    /// Statements a second: of a closed loop by whole cycles of its clients ([`Tally::cycles_per_s`]), of others those
    /// answered within the span.
    pub operations_per_s: f64,
    /// Readings in the operations.
    pub rows: u64,
    /// Of those written, readings that are older than one of an earlier statement of their sensor; of those that arrive
    /// late, what a statement does not sort.
    pub late_rows: u64,
    /// Statements that failed, warm-up included.
    pub errors: u64,
    /// Reads that were answered wrongly, warm-up included.
    pub wrong: u64,
    /// The first of either, in words.
    pub first_error: Option<String>,
    /// And its kind.
    pub first_error_kind: Option<Kind>,
    /// From sending to answer.
    pub service: Distribution,
    /// From the intended beginning to the answer; of the unstarted, to the end of the span, which is less than it
    /// would have been.  Nothing for a closed loop.
    pub response: Option<Distribution>,
    /// From the intended beginning to sending, of those that a free client waited for; nothing for a closed loop.
    pub lateness: Option<Distribution>,
    /// Statements that were to begin within the span, and were not begun at its end.
    pub unstarted: u64,
    /// Statements answered rightly, of each client.
    pub per_client: Vec<u64>,
    /// Statements answered in each 100 ms of the span.
    pub slices: Vec<u64>,
}

/// Measures, on tables that are there.
///
/// # Errors
/// `bad-request` for a specification that makes no sense; what the store says if a client cannot connect at first.
/// Failures after that are part of the answer.
pub fn measure(spec: &MeasureSpec, store: &dyn Store) -> Result<Measured, Failure> {
    let roles = roles(spec)?;
    let mut sessions = Vec::new();
    for _ in &roles {
        sessions.push(store.connect()?);
    }
    let begin = now() + HEAD_START;
    let start = begin + spec.warmup_ms * 1_000_000;
    let (duration, longer) = (spec.duration_ms * 1_000_000, spec.longer_ms * 1_000_000);
    let span = Span::new(begin, start, duration, longer, roles.len() as u64, spec.least_operations);
    let writing = roles.iter().filter(|(_, role)| matches!(role, Role::Writer(_))).count() as u64;
    let acknowledged = match &spec.acknowledged {
        Some(path) => Some(Writing::create(path, writing, begin)?),
        None => None,
    };
    let common = Common {
        store,
        data: &spec.data,
        span,
        stop: AtomicBool::new(false),
        until_failure: spec.until_failure,
        acknowledged,
        spun: AtomicU64::new(0),
        first_failures: spec.streams.iter().map(|_| Mutex::new(None)).collect(),
    };
    let mut schedules = Vec::new();
    for (number, stream) in (0..).zip(&spec.streams) {
        let end = common.span.end();
        schedules.push(Schedule::new(stream.r#loop, begin, end, mix(spec.data.seed.wrapping_add(number)))?);
    }
    let mut tallies: Vec<Vec<Tally>> = vec![Vec::new(); spec.streams.len()];
    let (mut used, mut ended, mut idle) = (0, start, 0);
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for ((stream, role), session) in roles.iter().zip(sessions) {
            let (common, schedule) = (&common, schedules[*stream].as_ref());
            threads.push((
                *stream,
                scope.spawn(move || Client::new(common, *stream, schedule, role.clone(), session).run()),
            ));
        }
        let glance_until = |moment: &dyn Fn() -> u64| {
            while now() < moment() && !threads.iter().all(|(_, thread)| thread.is_finished()) {
                sleep_until(moment().min(now() + GLANCE));
            }
        };
        glance_until(&|| start);
        let before = process_cpu();
        glance_until(&|| common.span.end());
        used = common.span.cpu_at_end().unwrap_or_else(process_cpu) - before;
        idle = common.spun.load(Ordering::Relaxed);
        ended = now().clamp(start, common.span.end());
        for (stream, thread) in threads {
            tallies[stream].push(thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
    });
    let results = spec.streams.iter().zip(tallies).zip(&schedules).zip(common.first_failures);
    Ok(Measured {
        elapsed_ns: ended - start,
        cpu_ns: used.saturating_sub(idle),
        spun_ns: idle,
        started_monotonic_ns: start,
        streams: results
            .map(|(((stream, tallies), schedule), failure)| {
                let failure = failure.into_inner().unwrap_or_else(PoisonError::into_inner);
                result(stream, &tallies, schedule.as_ref(), failure, start, ended)
            })
            .collect(),
    })
}

fn roles(spec: &MeasureSpec) -> Result<Vec<(usize, Role)>, Failure> {
    if spec.streams.is_empty() || spec.duration_ms == 0 {
        return Err(Failure::new(Kind::BadRequest, "a measurement needs a stream and a duration_ms"));
    }
    if spec.duration_ms.max(spec.warmup_ms).max(spec.longer_ms) > LONGEST_MS {
        let message = format!("duration_ms, warmup_ms and longer_ms are at most {LONGEST_MS}");
        return Err(Failure::new(Kind::BadRequest, message));
    }
    if spec.least_operations > 0 && spec.streams.iter().any(|stream| stream.r#loop != Loop::Closed) {
        return Err(Failure::new(Kind::BadRequest, "least_operations is of closed loops alone"));
    }
    let mut writers = writers(&spec.data, &spec.streams)?.into_iter();
    let mut roles = Vec::new();
    for (number, stream) in spec.streams.iter().enumerate() {
        Schedule::new(stream.r#loop, 0, 0, 0)?;
        for client in 0..u64::from(stream.clients) {
            let role = match stream.operation {
                Operation::Write => Role::Writer(writers.next().expect("there is one for each writing client")),
                asks => {
                    let seed = mix(spec.data.seed ^ mix((number as u64) << 32 | client));
                    Role::Reader { asks, values: stream.values, preload: stream.preload, seed }
                }
            };
            roles.push((number, role));
        }
    }
    Ok(roles)
}

fn result(
    stream: &StreamSpec,
    tallies: &[Tally],
    schedule: Option<&Schedule>,
    failure: Option<Failure>,
    start: u64,
    ended: u64,
) -> StreamResult {
    let (mut service, mut response, mut lateness) = (Durations::new(), Durations::new(), Durations::new());
    let mut slices = vec![0; (ended - start).div_ceil(SLICE) as usize];
    for tally in tallies {
        service.merge(&tally.service);
        response.merge(&tally.response);
        lateness.merge(&tally.lateness);
        for (sum, finished) in slices.iter_mut().zip(&tally.slices) {
            *sum += finished;
        }
    }
    let mut unstarted = 0;
    while let Some(moment) = schedule.and_then(|schedule| schedule.claim_until(ended)) {
        if moment >= start {
            unstarted += 1;
            response.record(ended - moment);
        }
    }
    let operations = tallies.iter().map(|tally| tally.operations).sum();
    let open = stream.r#loop != Loop::Closed;
    let operations_per_s = if open {
        slices.iter().sum::<u64>() as f64 * 1e9 / (ended - start).max(1) as f64
    } else {
        tallies.iter().map(Tally::cycles_per_s).sum()
    };
    StreamResult {
        answered: tallies.iter().map(|tally| tally.answered).sum(),
        operations,
        operations_per_s,
        rows: operations * stream.values,
        late_rows: tallies.iter().map(|tally| tally.late_rows).sum(),
        errors: tallies.iter().map(|tally| tally.errors).sum(),
        wrong: tallies.iter().map(|tally| tally.wrong).sum(),
        first_error: failure.as_ref().map(|failure| failure.message.clone()),
        first_error_kind: failure.map(|failure| failure.kind),
        service: service.distribution(),
        response: open.then(|| response.distribution()),
        lateness: open.then(|| lateness.distribution()),
        unstarted,
        per_client: tallies.iter().map(|tally| tally.operations).collect(),
        slices,
    }
}
