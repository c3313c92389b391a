//! A load generator for sensor data on databases: writes and reads, closed and open loop, every answer checked.
//!
//! The method is that of van der Veen et al. 2012, "Sensor Data Storage Performance: SQL or NoSQL, Physical or Virtual",
//! with what has been learned since: intended-start latency, durability as a factor, answers checked.

#![allow(clippy::needless_pass_by_value, reason = "what is built for one call is given away with it")]

pub mod acknowledged;
pub mod arrivals;
pub mod audit;
pub mod check;
pub mod client;
pub mod clock;
pub mod commands;
pub mod disk;
pub mod drivers;
pub mod failure;
pub mod files;
pub mod flushes;
pub mod generator;
pub mod histogram;
pub mod measure;
mod messages;
pub mod null;
pub mod prepare;
pub mod roles;
pub mod schedule;
pub mod spec;
pub mod store;

#[cfg(test)]
#[global_allocator]
static MEMORY: fuzz::Watched = fuzz::Watched;
