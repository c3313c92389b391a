//! A tester of networks: sends numbered and timed frames through an interface at a given rate, takes them from another,
//! and accounts for each one.
//!
//! [`trial`] is one measurement.  [`transmission`] sends and [`analyser`] counts what comes; both are fed through a
//! [`port`], of which there are several, from the fastest to the one that works everywhere.  [`emulator`] is a link of a
//! known rate, delay and loss.

pub mod analyser;
mod bpf;
pub mod emulator;
mod features;
pub mod frame;
pub mod histogram;
pub mod interface;
pub mod kernel;
pub mod port;
pub mod random;
pub mod schedule;
pub mod transmission;
pub mod trial;

#[cfg(test)]
#[global_allocator]
static MEMORY: fuzz::Watched = fuzz::Watched;
