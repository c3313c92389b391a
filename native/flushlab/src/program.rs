//! Which program a command ends in, as far as a preloaded library is concerned.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use virtgauge_flushes::executable::{Reach, reach_of};

use crate::c_path;

/// Programs that become the one that their arguments name.
const WRAPPERS: [&str; 12] = [
    "chrt", "env", "ionice", "nice", "nohup", "numactl", "prlimit", "setpriv", "setsid", "stdbuf", "taskset", "timeout",
];

const DEEPEST: usize = 8;

/// The reach of what a command ends in: through wrappers and the interpreters of scripts.
pub(crate) fn reach(command: &[OsString], depth: usize) -> Reach {
    let Some(path) = find(&command[0]) else {
        return Reach::Unknown;
    };
    if depth < DEEPEST {
        if let Some(next) = script(&path).or_else(|| wrapped(command)) {
            return reach(&next, depth + 1);
        }
    }
    File::open(path).ok().and_then(|file| reach_of(&file)).unwrap_or(Reach::Unknown)
}

/// As `execvp` finds it.
fn find(name: &OsStr) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return is_program(Path::new(name)).then(|| PathBuf::from(name));
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| is_program(path))
}

fn is_program(path: &Path) -> bool {
    // SAFETY: a C string.
    path.is_file() && c_path(path).is_some_and(|path| unsafe { libc::access(path.as_ptr(), libc::X_OK) == 0 })
}

/// A wrapper's own program: what follows `--`, else the first word that is no option and names a program.
fn wrapped(command: &[OsString]) -> Option<Vec<OsString>> {
    let name = Path::new(&command[0]).file_name()?.to_str()?;
    if !WRAPPERS.contains(&name) {
        return None;
    }
    let words = &command[1..];
    let begin = match words.iter().position(|word| word == "--") {
        Some(dashes) => dashes + 1,
        None => words.iter().position(|word| !word.as_bytes().starts_with(b"-") && find(word).is_some())?,
    };
    (begin < words.len()).then(|| words[begin..].to_vec())
}

/// The command that a script's first line makes of it.
fn script(path: &Path) -> Option<Vec<OsString>> {
    let mut head = Vec::new();
    File::open(path).ok()?.take(256).read_to_end(&mut head).ok()?;
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?.trim_ascii();
    let mut words = line.splitn(2, |byte| matches!(byte, b' ' | b'\t'));
    let interpreter = words.next().filter(|word| !word.is_empty())?;
    let argument = words.next().map(<[u8]>::trim_ascii_start).filter(|word| !word.is_empty());
    let words = [Some(interpreter), argument, Some(path.as_os_str().as_bytes())];
    Some(words.into_iter().flatten().map(|word| OsString::from_vec(word.to_vec())).collect())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn of(words: &[&str]) -> Reach {
        reach(&words.iter().map(OsString::from).collect::<Vec<_>>(), 0)
    }

    #[test]
    fn wrappers_and_scripts_are_followed_to_the_program() {
        let this = std::env::current_exe().unwrap(); // static, as the launcher
        let this = this.to_str().unwrap();
        assert_eq!(of(&["/bin/sh"]), Reach::Library);
        assert_eq!(of(&["sh"]), Reach::Library);
        let expected = of(&[this]);
        assert_eq!(of(&["setpriv", "--reuid=1", "--clear-groups", this, "sh"]), expected);
        assert_eq!(of(&["nice", "-n", "5", "env", "A=1", "--", this]), expected);
        assert_eq!(of(&["nice", "-n", "5", "sh", this]), Reach::Library);
        assert_eq!(of(&["no-such-program-anywhere"]), Reach::Unknown);

        let script = std::env::temp_dir().join(format!("flushlab-script-{}", std::process::id()));
        std::fs::write(&script, "#! /usr/bin/env sh\n").unwrap();
        std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
        assert_eq!(of(&[script.to_str().unwrap()]), Reach::Library);
        std::fs::write(&script, format!("#!{this}\n")).unwrap();
        assert_eq!(of(&[script.to_str().unwrap()]), expected);
        std::fs::write(&script, "\x7fELF\x01\x01 and too little besides, of a program for thirty-two bits only")
            .unwrap();
        assert_eq!(of(&[script.to_str().unwrap()]), Reach::Foreign);
        std::fs::write(&script, format!("#!{}\n", script.display())).unwrap();
        assert_eq!(of(&[script.to_str().unwrap()]), Reach::Unknown); // round and round
        std::fs::remove_file(script).unwrap();
    }
}
