//! Programs for the kernel's virtual machine: assembled here, since no compiler for them is at hand where this runs.

pub(crate) mod assembler;
pub(crate) mod generator;
pub(crate) mod redirection;
pub(crate) mod system;
