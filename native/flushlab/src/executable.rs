//! What kind of program a file is, as far as a preloaded library is concerned.

use std::fs::File;
use std::io;
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
    reach(&|bytes, at| file.read_at(bytes, at))
}

/// Reads from a place on as many bytes as there are and have room.
type ReadAt<'a> = &'a dyn Fn(&mut [u8], u64) -> io::Result<usize>;

fn reach(file: ReadAt) -> Option<Reach> {
    let mut head = [0; 64];
    if file(&mut head, 0).ok()? < head.len() {
        return None;
    }
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

fn number(file: ReadAt, at: u64) -> Option<u32> {
    read(file, at).map(u32::from_le_bytes)
}

/// So many bytes; zeros beyond the end, where a name may be.
fn read<const N: usize>(file: ReadAt, at: u64) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    (file(&mut bytes, at).ok()? > 0).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_a_program_is_it_has_a_reach_or_is_none() {
        fuzz::fuzz("program", include_str!("../../fuzz/corpus/program.txt"), |input| {
            let of = reach(&|bytes, at| {
                let rest = usize::try_from(at).ok().and_then(|at| input.get(at..)).unwrap_or_default();
                let read = rest.len().min(bytes.len());
                bytes[..read].copy_from_slice(&rest[..read]);
                Ok(read)
            });
            assert!(of.is_none_or(|reach| reach != Reach::Unknown));
        });
    }
}
