//! The method, tried on stores whose behaviour is known, and on the embedded databases.

mod answers;
mod crash;
mod embedded;
mod loops;
mod memory;
#[path = "../../../tries.rs"]
mod tries;
