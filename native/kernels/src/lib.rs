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
pub mod memory;
pub mod neighbours;
pub mod random;
pub mod share;
pub mod timed;
pub mod wake;

use failure::Failure;

/// One kind of work: what all kernels have in common.
pub trait Kernel: Send {
    /// What its work is counted in (`dhrystones`, `bytes`, `loads` …).
    fn unit(&self) -> &'static str;

    /// Does some work, of a millisecond at most on an idle machine, and says how many units it was.
    ///
    /// # Errors
    /// The system refused, or what was found is not what had been written.
    fn pass(&mut self) -> Result<u64, Failure>;

    /// Whether all passes so far computed what they should have; called once, after the last.
    ///
    /// # Errors
    /// [`Failure::Wrong`] with what was expected and what was found.
    fn check(&mut self) -> Result<(), Failure>;
}
