//! What all kernels have in common.

use failure::Failure;

/// One kind of work.
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
