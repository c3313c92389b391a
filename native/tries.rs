//! For tests on a machine that others share, which pauses at any point: for 50 to 300 ms, seldom for a second.

use std::fmt::Debug;

/// Fails where a fact has held in none of five tries; else it ends with the first in which it held.
///
/// Only for what a pause breaks now and then, and a wrong product in every try.  What no pause can break is asserted in
/// `attempt`, of each try.  It answers whether the fact held, and what is told if it never did.
#[track_caller]
pub(crate) fn in_one_of_five<T: Debug>(mut attempt: impl FnMut() -> (bool, T)) {
    let mut found = Vec::new();
    for _ in 0..5 {
        let (holds, what) = attempt();
        if holds {
            return;
        }
        found.push(what);
    }
    panic!("in none of five tries: {found:?}");
}
