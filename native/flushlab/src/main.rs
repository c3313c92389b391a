//! `virtgauge-flushes --counters FILE --profile PROFILE [--library FILE] [--static] -- PROGRAM [ARGS]...`
//!
//! Becomes the program, which keeps this process's number, in the flush laboratory; see docs/flushes.md.  A dynamic
//! program gets the library preloaded; one of Go, or without a loader, a supervisor that answers its flushes by
//! seccomp's user notification.

mod arguments;
mod program;
mod supervisor;

use std::ffi::{CStr, CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use arguments::Arguments;
use virtgauge_flushes::counters;
use virtgauge_flushes::executable::Reach;
use virtgauge_flushes::lifecycle::{LAUNCHER, UNUSABLE, VARIABLE};

const LIBRARY: &str = "libvirtgauge_flushes.so";
const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    ExitCode::from(run(&words).unwrap_or_else(|message| {
        eprintln!("virtgauge-flushes: {message}");
        UNUSABLE as u8
    }))
}

/// Returns only where it was asked for help, or where the program does not run: the exit status, 126 or 127, as `env` and
/// `timeout` have it; why there is no laboratory is an error.
fn run(words: &[OsString]) -> Result<u8, String> {
    let Some(arguments) = Arguments::parse(words)? else {
        print!("{}", arguments::HELP);
        return Ok(0);
    };
    let file = counters::create(&arguments.counters, arguments.profile)?;
    let by_kernel = arguments.by_kernel || reach_of(&arguments)? == Reach::Kernel;
    let mut command = Command::new(&arguments.command[0]);
    command.args(&arguments.command[1..]);
    if by_kernel {
        supervisor::begin(&file, arguments.profile)?;
        command.env_remove(name_of(VARIABLE)); // a library that is preloaded all the same would count twice
    } else {
        let counters = absolute(&arguments.counters)?;
        let launcher = for_everybody(&this_executable()?, &counters, "launcher")?;
        let library = for_everybody(&library(arguments.library.as_deref())?, &counters, "so")?;
        command.env("LD_PRELOAD", preloaded(&library)?);
        command.env(name_of(VARIABLE), counters).env(name_of(LAUNCHER), launcher);
    }
    drop(file);
    let error = command.exec();
    eprintln!("virtgauge-flushes: {}: {error}", arguments.program());
    Ok(if error.kind() == std::io::ErrorKind::NotFound { NOT_FOUND } else { CANNOT_RUN })
}

/// By what the program at the end of the command is reached; a command of unknown kind is left to `exec` to refuse.
fn reach_of(arguments: &Arguments) -> Result<Reach, String> {
    match program::reach(&arguments.command, 0) {
        Reach::Foreign => Err(format!(
            "{}: its program is for another kind of processor, or for 32 bits; neither is reached",
            arguments.program()
        )),
        reach => Ok(reach),
    }
}

fn absolute(path: &Path) -> Result<PathBuf, String> {
    path.canonicalize().map_err(|error| format!("{}: {error}", path.display()))
}

fn name_of(variable: &'static CStr) -> &'static OsStr {
    OsStr::from_bytes(variable.to_bytes())
}

fn this_executable() -> Result<PathBuf, String> {
    std::env::current_exe().map_err(|error| format!("this executable's own place cannot be told: {error}"))
}

/// The library: as given, else beside this executable.
fn library(given: Option<&Path>) -> Result<PathBuf, String> {
    let path =
        given.map_or_else(|| this_executable().map(|this| this.with_file_name(LIBRARY)), |path| Ok(path.into()))?;
    // The loader only warns of a library that it does not find, and the program would run without.
    absolute(&path).map_err(|error| format!("{error}; --library names {LIBRARY}"))
}

/// A file where every user can reach it: where it is, else as a copy beside the counters.  The program may become another
/// user, and the loader only warns of what it cannot open.
fn for_everybody(path: &Path, counters: &Path, extension: &str) -> Result<PathBuf, String> {
    let allows = |path: &Path, bits| path.metadata().is_ok_and(|status| status.permissions().mode() & bits == bits);
    if allows(path, 0o005) && path.ancestors().skip(1).all(|folder| allows(folder, 0o001)) {
        return Ok(path.to_path_buf());
    }
    let named = |extension: &str| {
        let mut name = counters.as_os_str().to_owned();
        name.push(format!(".{extension}"));
        PathBuf::from(name)
    };
    let (copy, partial) = (named(extension), named(&format!("{}.{extension}", std::process::id())));
    std::fs::copy(path, &partial)
        .and_then(|_| std::fs::set_permissions(&partial, PermissionsExt::from_mode(0o755)))
        .and_then(|()| std::fs::rename(&partial, &copy))
        .map_err(|error| format!("{}: {error}", copy.display()))?;
    Ok(copy)
}

/// The loader's list, with what was on it; it separates by spaces and colons and has no way to quote them.
fn preloaded(library: &Path) -> Result<OsString, String> {
    let mut list = library.as_os_str().as_bytes().to_vec();
    if list.iter().any(|byte| matches!(byte, b' ' | b':')) {
        return Err(format!("{}: a preloaded library's path may hold no space and no colon", library.display()));
    }
    if let Some(before) = std::env::var_os("LD_PRELOAD").filter(|before| !before.is_empty()) {
        list.push(b':');
        list.extend_from_slice(before.as_bytes());
    }
    Ok(OsString::from_vec(list))
}

/// A path as the kernel takes it.
fn c_path(path: &Path) -> Option<CString> {
    CString::new(path.as_os_str().as_bytes()).ok()
}
