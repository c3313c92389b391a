//! Work of a known amount, for measuring how much of a processor, a memory or a disk is really to be had.
//!
//! Each kernel does one kind of work in passes of at most about a millisecond, on inputs that the compiler cannot know,
//! in functions that it may not inline, without optimization across crates; what a pass computes is checked, so that a
//! machine that computes wrong, or a compiler that leaves work out, cannot look fast.  [`timed`] runs a kernel for a
//! fixed time and counts its work by slices of that time.
//!
//! The integer and floating-point kernels follow the published descriptions of Dhrystone (R. P. Weicker, "Dhrystone: a
//! synthetic systems programming benchmark", CACM 27(10), 1984) and Whetstone (H. J. Curnow and B. A. Wichmann, "A
//! synthetic benchmark", The Computer Journal 19(1), 1976); the memory kernel does what `RAMspeed` is described to
//! do.
//! All are written anew.

pub mod chase;
pub mod disk;
pub mod floating;
pub mod frequency;
pub mod integer;
mod kernel;
pub mod memory;
pub mod neighbours;
pub mod random;
pub mod share;
pub mod timed;
pub mod wake;

pub use kernel::Kernel;
