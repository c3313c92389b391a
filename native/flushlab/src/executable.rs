//! What kind of program a file is, as far as a preloaded library is concerned.

use std::fs::File;
use std::os::unix::fs::FileExt;

const PT_INTERP: u32 = 3;
#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = 62;
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = 183;

/// By what a program's flushes are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// It asks for a loader, which preloads.
    Library,
    /// It has no loader; or it is of Go, which makes its system calls by itself even where it has one.
    Kernel,
    /// By neither: it is not for this machine's 64 bits.
    Foreign,
    /// It is not found, cannot be read, or is of no known kind.
    Unknown,
}

/// The reach of an ELF file by its own fields, which are those of the System V ABI; `None` if it is none.
#[must_use]
pub fn reach_of(file: &File) -> Option<Reach> {
    let mut head = [0; 64];
    file.read_exact_at(&mut head, 0).ok()?;
    if !head.starts_with(b"\x7fELF") {
        return None;
    }
    let half = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    if !head[4..].starts_with(&[2, 1]) || half(18) != MACHINE {
        return Some(Reach::Foreign);
    }
    let long = |at: usize| head[at..].first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    let (segments, sections) = (long(32)?, long(40)?);
    let (size, count) = (u64::from(half(54)), u64::from(half(56)));
    let has_loader = (0..count).any(|index| number(file, segments.saturating_add(index * size)) == Some(PT_INTERP));
    let (size, count, names) = (u64::from(half(58)), u64::from(half(60)), u64::from(half(62)));
    let is_go = || {
        let names = number(file, sections.saturating_add(names * size + 24))?; // the offset of the section that holds them
        let mut names = (0..count).filter_map(|index| {
            let name = u64::from(names) + u64::from(number(file, sections.saturating_add(index * size))?);
            read::<20>(file, name)
        });
        names.any(|name| GO.iter().any(|go| name.starts_with(go))).then_some(())
    };
    Some(if has_loader && is_go().is_none() { Reach::Library } else { Reach::Kernel })
}

/// The compiler's marks, as section names.
const GO: [&[u8]; 2] = [b".go.buildinfo\0", b".note.go.buildid\0"];

fn number(file: &File, at: u64) -> Option<u32> {
    read(file, at).map(u32::from_le_bytes)
}

/// So many bytes; zeros beyond the end, where a name may be.
fn read<const N: usize>(file: &File, at: u64) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    (file.read_at(&mut bytes, at).ok()? > 0).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_a_program_is_it_has_a_reach_or_is_none() {
        let path = std::env::temp_dir().join(format!("flushlab-program-{}", std::process::id()));
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        fuzz::fuzz("program", include_str!("../../fuzz/corpus/program.txt"), |input| {
            file.set_len(0).unwrap();
            file.write_all_at(input, 0).unwrap();
            assert!(reach_of(&file).is_none_or(|reach| reach != Reach::Unknown));
        });
    }
}
