//! A tester of networks: sends numbered and timed frames through an interface at a given rate, takes them from another,
//! and accounts for each one.
//!
//! [`trial`] is one measurement.  [`transmission`] sends and [`analyser`] counts what comes; both are fed through a
//! [`port`], of which there are several, from the fastest to the one that works everywhere.

pub mod analyser;
mod bpf;
pub mod failure;
mod features;
pub mod frame;
pub mod histogram;
pub mod interface;
mod memory;
pub mod port;
pub mod schedule;
pub mod transmission;
pub mod trial;
