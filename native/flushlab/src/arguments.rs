//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use virtgauge_flushes::profile::Profile;

pub(crate) const HELP: &str = "\
usage: virtgauge-flushes --counters FILE --profile PROFILE [--library FILE] [--static] -- PROGRAM [ARGS]...

Becomes PROGRAM, counts its flushes, and lets each take as long as the profile's disk.

  --counters FILE   where to count; made if it is not there
  --profile PROFILE as-is | rotational:RPM | rotational-seek:RPM:MICROSECONDS | latency:MICROSECONDS | at-once
  --library FILE    libvirtgauge_flushes.so, if it is not beside this executable
  --static          by the kernel (seccomp), for a static or Go program behind another, such as a shell

Status 125: the laboratory cannot be set up; 126, 127: PROGRAM cannot be run, is not found.
";

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Arguments {
    pub(crate) counters: PathBuf,
    pub(crate) profile: Profile,
    pub(crate) library: Option<PathBuf>,
    pub(crate) by_kernel: bool,
    /// Never empty.
    pub(crate) command: Vec<OsString>,
}

impl Arguments {
    /// The program's name, to be shown.
    pub(crate) fn program(&self) -> String {
        self.command[0].to_string_lossy().into_owned()
    }

    /// `None` when help is asked for.
    pub(crate) fn parse(words: &[OsString]) -> Result<Option<Self>, String> {
        let (mut counters, mut profile, mut library, mut by_kernel) = (None, None, None, false);
        let mut rest = words.iter();
        while let Some(word) = rest.next() {
            let name = word.to_string_lossy().into_owned();
            let mut value = || rest.next().ok_or_else(|| format!("{name} wants a value"));
            match name.as_str() {
                "--help" | "-h" => return Ok(None),
                "--counters" => counters = Some(PathBuf::from(value()?)),
                "--profile" => profile = Some(value()?.to_string_lossy().parse()?),
                "--library" => library = Some(PathBuf::from(value()?)),
                "--static" => by_kernel = true,
                "--" => break,
                _ => return Err(format!("{name}: no such option; the program comes after --")),
            }
        }
        let command: Vec<OsString> = rest.cloned().collect();
        if command.is_empty() {
            return Err("no program is named; it comes after --".into());
        }
        let counters = counters.ok_or("--counters FILE is needed")?;
        let profile = profile.ok_or("--profile PROFILE is needed")?;
        Ok(Some(Self { counters, profile, library, by_kernel, command }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Option<Arguments>, String> {
        Arguments::parse(&line.split_whitespace().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn the_program_and_its_own_options_come_after_two_dashes() {
        let parsed = parse("--counters c --profile at-once -- sh --static -- x").unwrap().unwrap();
        assert_eq!(parsed.command, ["sh", "--static", "--", "x"]);
        assert!(!parsed.by_kernel);
        assert_eq!(parsed.profile, Profile::AtOnce);
    }

    #[test]
    fn what_is_missing_or_unknown_is_named() {
        for (line, word) in [
            ("--profile as-is -- true", "--counters"),
            ("--counters c -- true", "--profile"),
            ("--counters c --profile as-is", "no program"),
            ("--counters c --profile as-is true", "true: no such option"),
            ("--counters", "--counters wants"),
            ("--counters c --profile floppy -- true", "profile floppy"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(word), "{line}: {error}");
        }
        assert_eq!(parse("--help"), Ok(None));
    }
}
