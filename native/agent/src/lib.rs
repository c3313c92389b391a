//! The agent of virtgauge: one static program that runs on the host and in every guest, measures there on behalf of the
//! controller, and is the first process of a virtual machine.

pub mod cancellation;
pub mod channel;
pub mod clocks;
pub mod dial;
pub mod distribution;
pub mod facts;
pub mod failure;
pub mod idle;
pub mod init;
pub mod kernel_files;
pub mod kernel_trace;
pub mod loads;
pub mod machine;
pub mod network;
pub mod parameters;
pub mod precise;
pub mod probes;
pub mod program;
pub mod relay;
pub mod roots;
pub mod work;

#[cfg(test)]
#[global_allocator]
static MEMORY: fuzz::Watched = fuzz::Watched;
