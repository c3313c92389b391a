//! The command line of the agent.

use std::env;
use std::ffi::{CStr, OsStr, OsString, c_char, c_int};
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use virtgauge_agent::channel::message::PROTOCOL;
use virtgauge_agent::channel::serial;
use virtgauge_agent::channel::session::{self, Broken, Ending};
use virtgauge_agent::channel::stream::{Input, Output};
use virtgauge_agent::dial::{self, Dial};
use virtgauge_agent::facts::Identity;
use virtgauge_agent::failure::{Code, Failure};
use virtgauge_agent::init::{self, Port, Way};
use virtgauge_agent::relay;

const USAGE: &str = "\
The agent of virtgauge; the controller starts it.

usage: virtgauge-agent                 converse on standard input and output
       virtgauge-agent --lease SECONDS the same, and end when nothing has come for so long
       virtgauge-agent --dial ADDRESS:PORT --identity FILE [--patience SECONDS]
                                       call the controller over TLS, again for each guest, until the identity expires
                                       or nobody has answered for SECONDS after a guest (600)
       virtgauge-agent --channel PATH  converse over a device or a Unix socket
       virtgauge-agent --init          be the first process of a virtual machine (also when started as `init`)
       virtgauge-agent --relay TERMINAL virtio:NAME
                                       join a terminal to a virtio port until one of them ends
       virtgauge-agent --version

exit codes: 0 the controller closed the channel or asked for the end; 1 the channel could not be opened;
            2 wrong usage, or an identity that cannot be used; 3 the controller broke the protocol; 4 the channel broke, or ended inside a frame
";

const NO_CHANNEL: u8 = 1;
const WRONG_USAGE: u8 = 2;
const PROTOCOL_BROKEN: u8 = 3;
const CHANNEL_BROKEN: u8 = 4;

enum Mode {
    Standard,
    Leased(Duration),
    Dial(Dial),
    /// One call of several; whether the one before failed, too.
    Attempt(Dial, bool),
    Channel(PathBuf),
    Init,
    Relay(PathBuf, String),
    Version,
    Help,
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = mount_devices;

/// Mounts `/dev` before Rust's own start-up: glibc calls the functions of `.init_array` with the arguments of `main`.
///
/// A machine without a console starts its first process with the standard streams closed.  The standard library then
/// opens `/dev/null` in their place, and aborts where there is none, as in a bare initramfs: the kernel panics.  Nothing but
/// the C library may be used here.
extern "C" fn mount_devices(count: c_int, arguments: *const *const c_char, _environment: *const *const c_char) {
    const DEVICES: &CStr = c"/dev";
    const KIND: &CStr = c"devtmpfs";
    // SAFETY: the arguments are those of main, so the first is a terminated string when there is one; all other pointers
    // are terminated constants.
    unsafe {
        let closed = libc::fcntl(libc::STDIN_FILENO, libc::F_GETFD) == -1;
        if libc::getpid() != 1 || !closed || count < 1 || !CStr::from_ptr(*arguments).to_bytes().ends_with(b"init") {
            return;
        }
        libc::mkdir(DEVICES.as_ptr(), 0o755);
        libc::mount(KIND.as_ptr(), DEVICES.as_ptr(), KIND.as_ptr(), 0, std::ptr::null());
    }
}

fn main() -> ExitCode {
    // A controller that went away must be seen as an error of the write.
    // SAFETY: ignoring a signal installs no handler.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    match mode(env::args_os(), std::process::id()) {
        Ok(Mode::Standard) => opened(standard_streams()),
        Ok(Mode::Leased(lease)) => leased(lease),
        Ok(Mode::Dial(dial)) => supervised(&dial),
        Ok(Mode::Attempt(dial, again)) => match dial::call(&dial) {
            Ok(ending) => ended(ending),
            Err(why) if why.code == Code::BadRequest => unusable(&why),
            Err(why) => dial::no_conversation(&why, again),
        },
        Ok(Mode::Channel(path)) => opened(Port::at(&path)),
        Ok(Mode::Init) => init::run(|way| match way {
            Way::Port(port) => converse(port, true),
            Way::Dial(dial) => supervised(&dial),
        }),
        Ok(Mode::Relay(terminal, port)) => match relay::run(&terminal, &port) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => no_channel(&error),
        },
        Ok(Mode::Version) => {
            println!("virtgauge-agent {} (protocol {PROTOCOL})", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        Ok(Mode::Help) => {
            print!("{USAGE}");
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("virtgauge-agent: {message}\n\n{USAGE}");
            ExitCode::from(WRONG_USAGE)
        }
    }
}

/// What the arguments ask for.  A container's agent is process 1, too; only the name or the option makes it an init.
fn mode(mut arguments: impl Iterator<Item = OsString>, pid: u32) -> Result<Mode, String> {
    let program = arguments.next().unwrap_or_default();
    let arguments: Vec<OsString> = arguments.collect();
    let named_init = Path::new(&program).file_name() == Some(OsStr::new("init"));
    let asked_for_init = arguments.iter().any(|argument| argument == "--init");
    if pid == 1 && (named_init || asked_for_init) {
        // The kernel hands its unknown options on; they are not meant for us.
        return Ok(Mode::Init);
    }
    let words: Vec<&str> = arguments.iter().map(|argument| argument.to_str().unwrap_or("?")).collect();
    match words.as_slice() {
        [] => Ok(Mode::Standard),
        ["--lease", seconds] => match seconds.parse() {
            Ok(seconds) if seconds > 0 => Ok(Mode::Leased(Duration::from_secs(seconds))),
            _ => Err(format!("--lease is {seconds}; accepted: a whole number of seconds above 0")),
        },
        ["--dial", controller, "--identity", _, rest @ ..] => dialled(controller, PathBuf::from(&arguments[3]), rest),
        ["--channel", _] => Ok(Mode::Channel(PathBuf::from(&arguments[1]))),
        ["--relay", _, port] => Ok(Mode::Relay(PathBuf::from(&arguments[1]), (*port).to_owned())),
        ["--version"] => Ok(Mode::Version),
        ["--help" | "-h"] => Ok(Mode::Help),
        ["--init"] => Err(format!("--init is for process 1 of a machine; this is process {pid}")),
        _ => Err(format!("cannot make sense of: {}", words.join(" "))),
    }
}

fn dialled(controller: &str, identity: PathBuf, rest: &[&str]) -> Result<Mode, String> {
    let accepted = "an IP address and a port, as 192.0.2.1:7443 or [2001:db8::1]:7443";
    let controller = controller.parse().map_err(|_| format!("--dial is {controller}; accepted: {accepted}"))?;
    let dial = Dial { controller, identity, patience: dial::PATIENCE };
    match rest {
        [] => Ok(Mode::Dial(dial)),
        ["--attempt", which @ ("new" | "again")] => Ok(Mode::Attempt(dial, *which == "again")),
        ["--patience", seconds] => match seconds.parse() {
            Ok(seconds) => Ok(Mode::Dial(Dial { patience: Duration::from_secs(seconds), ..dial })),
            Err(_) => Err(format!("--patience is {seconds}; accepted: a whole number of seconds")),
        },
        _ => Err(format!("cannot make sense of: {}", rest.join(" "))),
    }
}

fn supervised(dial: &Dial) -> ExitCode {
    match dial::supervise(dial) {
        Ok(why) => {
            eprintln!("virtgauge-agent: {why}");
            ExitCode::SUCCESS
        }
        Err(why) => unusable(&why),
    }
}

fn unusable(why: &Failure) -> ExitCode {
    eprintln!("virtgauge-agent: {why}");
    ExitCode::from(WRONG_USAGE)
}

fn opened(port: io::Result<Port>) -> ExitCode {
    match port {
        Ok(port) => converse(port, false),
        Err(error) => no_channel(&error),
    }
}

fn no_channel(error: &io::Error) -> ExitCode {
    eprintln!("virtgauge-agent: cannot open the channel: {error}");
    ExitCode::from(NO_CHANNEL)
}

fn converse(port: Port, init: bool) -> ExitCode {
    let identity = Identity::of_this_process(init);
    let ending = if port.serial {
        match serial::open(port.input, port.output) {
            Ok((input, output)) => session::serve(input, output, &identity),
            Err(error) => return no_channel(&error),
        }
    } else {
        session::serve(Input::new(port.input), Output::new(port.output), &identity)
    };
    ended(ending)
}

/// Converses on the standard streams for as long as the controller lets itself be heard.
fn leased(lease: Duration) -> ExitCode {
    match standard_streams() {
        Ok(port) => {
            let input = Input::new(port.input).with_lease(lease);
            ended(session::serve(input, Output::new(port.output), &Identity::of_this_process(false)))
        }
        Err(error) => no_channel(&error),
    }
}

fn ended(ending: Result<Ending, Broken>) -> ExitCode {
    match ending {
        Ok(_) => ExitCode::SUCCESS,
        Err(broken) => {
            eprintln!("virtgauge-agent: {broken}");
            ExitCode::from(match broken {
                Broken::Protocol(_) => PROTOCOL_BROKEN,
                Broken::Channel(_) => CHANNEL_BROKEN,
            })
        }
    }
}

/// Takes standard input and output for the channel, and leaves nothing in their place that could disturb it.
fn standard_streams() -> io::Result<Port> {
    let port = Port { input: duplicate(libc::STDIN_FILENO)?, output: duplicate(libc::STDOUT_FILENO)?, serial: false };
    // A sandbox without /dev/null keeps its standard streams; nothing here prints to them.
    if let Ok(nothing) = OpenOptions::new().read(true).write(true).open("/dev/null") {
        for (source, target) in [(nothing.as_raw_fd(), libc::STDIN_FILENO), (libc::STDERR_FILENO, libc::STDOUT_FILENO)]
        {
            // SAFETY: the standard descriptors belong to no object of this process.
            unsafe { libc::dup2(source, target) };
        }
    }
    Ok(port)
}

fn duplicate(descriptor: i32) -> io::Result<OwnedFd> {
    // SAFETY: no memory is involved; a bad number is an error.
    let copy = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 3) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made the descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode_of(words: &[&str], pid: u32) -> Result<Mode, String> {
        mode(words.iter().map(OsString::from), pid)
    }

    #[test]
    fn only_name_or_option_make_process_one_an_init() {
        assert!(matches!(mode_of(&["/init"], 1), Ok(Mode::Init)));
        assert!(matches!(mode_of(&["/init", "splash"], 1), Ok(Mode::Init)));
        assert!(matches!(mode_of(&["/agent", "--init"], 1), Ok(Mode::Init)));
        assert!(matches!(mode_of(&["/agent"], 1), Ok(Mode::Standard)));
        assert!(matches!(mode_of(&["/init"], 7), Ok(Mode::Standard)));
        assert!(mode_of(&["/agent", "--init"], 7).is_err());
    }

    #[test]
    fn unknown_arguments_are_refused() {
        assert!(mode_of(&["/agent", "--chanel", "x"], 9).is_err());
        assert!(mode_of(&["/agent", "--channel"], 9).is_err());
        assert!(mode_of(&["/agent", "--lease", "0"], 9).is_err());
        assert!(mode_of(&["/agent", "--lease", "5"], 9).is_ok());
        assert!(mode_of(&["/agent", "--dial", "controller:7443", "--identity", "x"], 9).is_err());
        assert!(mode_of(&["/agent", "--dial", "192.0.2.1", "--identity", "x"], 9).is_err());
        assert!(mode_of(&["/agent", "--dial", "192.0.2.1:7443"], 9).is_err());
        assert!(mode_of(&["/agent", "--dial", "192.0.2.1:7443", "--identity", "x", "--patience", "-1"], 9).is_err());
    }

    #[test]
    fn a_call_is_of_an_address_with_an_identity() {
        let asked = mode_of(&["/agent", "--dial", "[2001:db8::1]:7443", "--identity", "/x", "--patience", "7"], 9);
        let Ok(Mode::Dial(dial)) = asked else { panic!("not a call") };
        assert_eq!((dial.controller.port(), dial.patience), (7443, Duration::from_secs(7)));
        assert!(matches!(
            mode_of(&["/agent", "--dial", "192.0.2.1:1", "--identity", "/x", "--attempt", "again"], 9),
            Ok(Mode::Attempt(_, true))
        ));
    }
}
