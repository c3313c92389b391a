//! One conversation from `hello` to its end.

use std::collections::HashMap;
use std::fmt;
use std::io::{Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use serde::Serialize;

use super::frame::{self, FrameError};
use super::message::requests::{Hello, Probe, Run};
use super::message::{self, PROTOCOL, Request, Violation};
use super::writer::Writer;
use crate::cancellation::Cancellation;
use crate::facts::Identity;
use crate::failure::{Code, Failure};
use crate::loads::Loads;
use crate::parameters::Parameters;
use crate::probes::{self, Trial};
use crate::{facts, kernel_files, network, program, roots};

/// Most programs that run at a time.
const MOST_PROGRAMS: usize = 16;

/// How long probes and programs may take to end when the session does.
const FAREWELL: Duration = Duration::from_secs(2);

/// How a session ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The controller closed the stream between two frames.
    Closed,
    /// The controller asked for it.
    Shutdown,
}

/// How a session ended badly.
#[derive(Debug)]
pub enum Broken {
    /// The controller went away inside a frame, or the stream failed.
    Channel(FrameError),
    /// The controller broke the protocol or speaks another version of it.
    Protocol(String),
}

impl fmt::Display for Broken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Channel(error) => error.fmt(formatter),
            Self::Protocol(message) => write!(formatter, "protocol error: {message}"),
        }
    }
}

/// Serves one controller until the stream ends; then everything that it started has been told to stop.
pub fn serve(mut input: impl Read, output: impl Write + Send + 'static, identity: &Identity) -> Result<Ending, Broken> {
    let mut session = Session {
        writer: Arc::new(Writer::new(Box::new(output))),
        tasks: Arc::new(Tasks::default()),
        loads: Loads::default(),
        identity,
        greeted: false,
    };
    let ending = session.converse(&mut input);
    session.stop_everything();
    ending
}

struct Session<'a> {
    writer: Arc<Writer>,
    tasks: Arc<Tasks>,
    loads: Loads,
    identity: &'a Identity,
    greeted: bool,
}

/// A result without fields.
#[derive(Serialize)]
struct Nothing {}

#[derive(Serialize)]
struct LoadStarted {
    load: u64,
}

#[derive(Serialize)]
struct CancelAnswer {
    cancelled: bool,
}

impl Session<'_> {
    fn converse(&mut self, input: &mut impl Read) -> Result<Ending, Broken> {
        let mut payload = Vec::new();
        for seq in 0.. {
            match frame::read(input, &mut payload) {
                Ok(true) => {}
                Ok(false) => return Ok(Ending::Closed),
                Err(FrameError::Length(length)) => {
                    return Err(self.refuse(FrameError::Length(length).to_string()));
                }
                Err(error) => return Err(Broken::Channel(error)),
            }
            let request = message::decode(&payload, seq).map_err(|Violation(message)| self.refuse(message))?;
            if let Some(ending) = self.answer(request, &payload)? {
                return Ok(ending);
            }
        }
        unreachable!("the numbers of 64 bits do not run out");
    }

    /// Tells the controller how it broke the protocol.
    fn refuse(&self, message: String) -> Broken {
        self.part(Failure::new(Code::Protocol, message.clone()));
        Broken::Protocol(message)
    }

    /// Sends the last error of a session, unless the controller does not read it within bounds.
    fn part(&self, failure: Failure) {
        let writer = Arc::clone(&self.writer);
        let (sent, wait) = mpsc::channel();
        let sender = thread::Builder::new().name("farewell".into()).spawn(move || {
            let _ = writer.error(None, &failure);
            let _ = sent.send(());
        });
        if sender.is_ok() {
            let _ = wait.recv_timeout(FAREWELL);
        }
    }

    fn answer(&mut self, request: Request, payload: &[u8]) -> Result<Option<Ending>, Broken> {
        match (request, self.greeted) {
            (Request::Hello(hello), false) => return self.greet(&hello).map(|()| None),
            (Request::Hello(_), true) => return Err(self.refuse("a second hello".into())),
            (_, false) => return Err(self.refuse("the first message must be hello".into())),
            (Request::Facts(request), true) => {
                let facts = self.guarded(|session| Ok(facts::collect(session.identity)));
                self.reply(request.id, facts)?;
            }
            (Request::Probe(request), true) => self.start_probe(request, Parameters::of_request(payload))?,
            (Request::LoadStart(request), true) => {
                let started =
                    self.guarded(|session| session.loads.start(&request.name, &Parameters::of_request(payload)));
                self.reply(request.id, started.map(|load| LoadStarted { load }))?;
            }
            (Request::LoadStop(request), true) => {
                let stopped = self.guarded(|session| session.loads.stop(request.load));
                self.reply(request.id, stopped)?;
            }
            (Request::Network(request), true) => {
                let configured = self.guarded(|_| network::configure(&request.interfaces.0, request.forwarding));
                self.reply(request.id, configured)?;
            }
            (Request::Read(request), true) => {
                let contents = self.guarded(|_| kernel_files::read(&request.paths.0));
                self.reply(request.id, contents)?;
            }
            (Request::Run(request), true) => self.start_program(request)?,
            (Request::Cancel(request), true) => {
                let cancelled = self.tasks.cancel(request.target);
                self.reply(request.id, Ok(CancelAnswer { cancelled }))?;
            }
            (Request::Shutdown(request), true) => {
                self.stop_everything();
                self.reply(request.id, Ok(Nothing {}))?;
                return Ok(Some(Ending::Shutdown));
            }
        }
        Ok(None)
    }

    fn greet(&mut self, hello: &Hello) -> Result<(), Broken> {
        if hello.protocol != PROTOCOL {
            let message = format!("protocol {} is spoken here, not {}", PROTOCOL, hello.protocol);
            self.part(Failure::new(Code::Version, message.clone()));
            return Err(Broken::Protocol(message));
        }
        roots::give(&hello.roots.0).map_err(|message| self.refuse(message))?;
        self.greeted = true;
        self.writer.welcome(&hello.token, self.identity).map_err(|error| Broken::Channel(error.into()))
    }

    fn reply<Value: Serialize>(&self, id: u64, outcome: Result<Value, Failure>) -> Result<(), Broken> {
        self.writer.outcome(id, outcome).map_err(|error| Broken::Channel(error.into()))
    }

    /// Does something on this thread; a defect in it becomes an error of the request, not the end of the session.
    fn guarded<Value>(&mut self, action: impl FnOnce(&mut Self) -> Result<Value, Failure>) -> Result<Value, Failure> {
        catch_unwind(AssertUnwindSafe(|| action(self))).unwrap_or_else(|_| Err(defect()))
    }

    fn start_probe(&self, request: Probe, parameters: Parameters) -> Result<(), Broken> {
        let writer = Arc::clone(&self.writer);
        self.start_task(request.id, Kind::Probe, move |cancellation| {
            let beside = request.load.map(|load| (load.name, parameters.of_load_beside()));
            probes::run(&request.name, &parameters, &mut Trial::new(request.id, writer, cancellation, beside))
        })
    }

    fn start_program(&self, request: Run) -> Result<(), Broken> {
        self.start_task(request.id, Kind::Program, move |cancellation| program::run(&request, &cancellation))
    }

    /// Does something on a thread of its own and sends what it came to.
    fn start_task<Value, Action>(&self, id: u64, kind: Kind, action: Action) -> Result<(), Broken>
    where
        Value: Serialize,
        Action: FnOnce(Arc<Cancellation>) -> Result<Value, Failure> + Send + 'static,
    {
        let cancellation = match self.tasks.add(id, kind) {
            Ok(cancellation) => cancellation,
            Err(failure) => return self.reply::<Nothing>(id, Err(failure)),
        };
        let (tasks, writer) = (Arc::clone(&self.tasks), Arc::clone(&self.writer));
        let spawned = thread::Builder::new().name(kind.name().into()).spawn(move || {
            let outcome = catch_unwind(AssertUnwindSafe(|| action(cancellation))).unwrap_or_else(|_| Err(defect()));
            // In this order: whoever reads the outcome may start the next probe at once, and whoever waits for the
            // removal knows that the outcome was sent.  When it cannot be sent, the reader of the channel ends the session.
            tasks.set_done(id);
            let _ = writer.outcome(id, outcome);
            tasks.remove(id);
        });
        if let Err(error) = spawned {
            self.tasks.remove(id);
            return self.reply::<Nothing>(id, Err(Failure::os("starting a thread", &error)));
        }
        Ok(())
    }

    fn stop_everything(&mut self) {
        self.tasks.cancel_all();
        self.loads.stop_all();
        self.tasks.wait_until_none(FAREWELL);
    }
}

fn defect() -> Failure {
    Failure::new(Code::Internal, "the agent has a defect; its standard error says where")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Probe,
    Program,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Probe => "probe",
            Self::Program => "program",
        }
    }
}

#[derive(Debug)]
struct Task {
    kind: Kind,
    cancellation: Arc<Cancellation>,
    /// It has ended; only its outcome is still to be sent.
    done: bool,
}

/// Probes and programs that run, by the number of their request.
#[derive(Debug, Default)]
struct Tasks {
    active: Mutex<HashMap<u64, Task>>,
    removed: Condvar,
}

impl Tasks {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Task>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, id: u64, kind: Kind) -> Result<Arc<Cancellation>, Failure> {
        let mut active = self.lock();
        if active.contains_key(&id) {
            return Err(Failure::bad_request(format!("id is {id}, which is still in use; accepted: a new number")));
        }
        let running = active.values().filter(|task| task.kind == kind && !task.done).count();
        let most = if kind == Kind::Probe { 1 } else { MOST_PROGRAMS };
        if running >= most {
            return Err(Failure::new(Code::Busy, format!("{running} {} runs already, of at most {most}", kind.name())));
        }
        let cancellation = Arc::new(Cancellation::new().map_err(|error| Failure::os("eventfd", &error))?);
        active.insert(id, Task { kind, cancellation: Arc::clone(&cancellation), done: false });
        Ok(cancellation)
    }

    fn set_done(&self, id: u64) {
        if let Some(task) = self.lock().get_mut(&id) {
            task.done = true;
        }
    }

    fn remove(&self, id: u64) {
        self.lock().remove(&id);
        self.removed.notify_all();
    }

    /// Asks one to stop; false when there is none of that number.
    fn cancel(&self, id: u64) -> bool {
        let active = self.lock();
        let running = active.get(&id).filter(|task| !task.done);
        running.inspect(|task| task.cancellation.request()).is_some()
    }

    fn cancel_all(&self) {
        self.lock().values().for_each(|task| task.cancellation.request());
    }

    fn wait_until_none(&self, bound: Duration) {
        let waited = self.removed.wait_timeout_while(self.lock(), bound, |active| !active.is_empty());
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}
