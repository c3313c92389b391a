//! The highest rate that a way of sending paces.

use failure::{Failure, PacingLimit};
use serde::Serialize;

use crate::pacing::profile::Profile;

/// How close the search comes to the highest paced rate.
const RESOLUTION: f64 = 0.02;

/// The first rate that is tried, as a share of the one that is reached flat out.
const FIRST_SHARE: f64 = 0.9;

/// Where even this share of what is reached flat out is not paced, no rate is.
const LEAST_SHARE: f64 = 1.0 / 64.0;

/// Votes on each rate, of which most decide: one hiccup of a machine is not the machine.
const VOTES: u32 = 3;

/// What a way of sending can do.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rung {
    /// Name of the way.
    pub method: &'static str,
    /// Length of each IP packet.
    pub packet_bytes: u32,
    /// Without any pacing.
    pub flat_out: Profile,
    /// At the highest paced rate; `None` when no rate was paced.
    pub paced: Option<Profile>,
    /// Every rate that was tried, with the votes that found it paced, and those that did not.
    pub tried: Vec<(f64, u32, u32)>,
}

impl Rung {
    /// The highest paced rate, in bit/s of IP packets: what was achieved, not what was asked for; 0 if there is none.
    #[must_use]
    pub fn max_paced_bps(&self) -> f64 {
        self.paced.as_ref().map_or(0.0, |profile| profile.achieved_bps)
    }
}

/// Climbs: `measure` sends at a rate, or as fast as it can for `None`.
pub fn climb(
    method: &'static str,
    packet_bytes: u32,
    mut measure: impl FnMut(Option<f64>) -> Result<Profile, Failure>,
) -> Result<Rung, Failure> {
    let flat_out = measure(None)?;
    let mut rung = Rung { method, packet_bytes, flat_out, paced: None, tried: Vec::new() };
    let most_bps = rung.flat_out.achieved_bps;
    let (mut low_bps, mut high_bps) = (0.0, most_bps);
    let mut rate_bps = FIRST_SHARE * most_bps;
    // Down by halves until a rate is paced, then between the highest that was and the lowest that was not.
    while rate_bps >= LEAST_SHARE * most_bps && high_bps - low_bps > RESOLUTION * high_bps {
        let best = vote(rate_bps, &mut rung.tried, &mut measure)?;
        match best {
            Some(profile) => {
                low_bps = rate_bps;
                rung.paced = Some(profile);
            }
            None => high_bps = rate_bps,
        }
        rate_bps = f64::midpoint(low_bps, high_bps);
    }
    Ok(rung)
}

/// Asks until most have spoken; a profile of those that found the rate paced, if these are most.
fn vote(
    rate_bps: f64,
    tried: &mut Vec<(f64, u32, u32)>,
    measure: &mut impl FnMut(Option<f64>) -> Result<Profile, Failure>,
) -> Result<Option<Profile>, Failure> {
    let (mut paced, mut unpaced) = (None, 0);
    let mut ayes = 0;
    while ayes <= VOTES / 2 && unpaced <= VOTES / 2 {
        let profile = measure(Some(rate_bps))?;
        if profile.paced {
            ayes += 1;
            paced = Some(profile);
        } else {
            unpaced += 1;
        }
    }
    tried.push((rate_bps, ayes, unpaced));
    Ok(paced.filter(|_| ayes > unpaced))
}

/// Refuses a rate that no way of sending paces.
///
/// # Errors
/// [`Failure::CannotPace`] with the highest rate that one does.
pub fn require(asked_bps: f64, rungs: &[Rung]) -> Result<(), Failure> {
    let max_paced_bps = rungs.iter().map(Rung::max_paced_bps).fold(0.0, f64::max);
    if asked_bps <= max_paced_bps {
        return Ok(());
    }
    Err(Failure::CannotPace(PacingLimit { asked_bps, max_paced_bps, undisturbed_bps: None, carried_bps: None }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pacing::profile::Measured;

    /// A host that paces up to a rate and no further.
    fn measured(asked_bps: Option<f64>, most_bps: f64, paced: bool) -> Profile {
        let lateness_ns = if paced { 0 } else { 1_000_000 };
        Profile::from_measured(&Measured::of_one(asked_bps, asked_bps.unwrap_or(most_bps), 1, lateness_ns))
    }

    #[test]
    fn the_search_finds_the_highest_rate_that_a_host_paces() {
        for truth_bps in [1.99e9, 1.5e9, 0.4e9, 0.06e9] {
            let mut asked = 0;
            let rung = climb("send", 1500, |rate| {
                asked += 1;
                Ok(measured(rate, 2e9, rate.is_some_and(|rate| rate <= truth_bps)))
            });
            let found_bps = rung.unwrap().max_paced_bps();
            assert!(found_bps <= truth_bps && found_bps > truth_bps * 0.97 - 1e6, "{truth_bps} {found_bps}");
            assert!(asked < 40, "{asked}");
        }
    }

    #[test]
    fn one_hiccup_does_not_lower_the_rate_and_one_lucky_try_does_not_raise_it() {
        for truth_bps in [0.3e9, 1e9, 1.7e9] {
            let mut tries = std::collections::HashMap::new();
            let rung = climb("send", 1500, |rate| {
                let number = tries.entry(rate.map(f64::to_bits)).or_insert(0);
                *number += 1;
                // The first of each rate's tries comes out wrong.
                let wrong = *number == 1;
                Ok(measured(rate, 2e9, rate.is_some_and(|rate| (rate <= truth_bps) != wrong)))
            });
            let found_bps = rung.unwrap().max_paced_bps();
            assert!(found_bps <= truth_bps && found_bps > truth_bps * 0.97, "{found_bps}");
        }
    }

    #[test]
    fn a_host_that_paces_nothing_paces_no_rate_and_every_rate_is_refused_with_that() {
        let rung = climb("send", 1500, |rate| Ok(measured(rate, 2e9, false))).unwrap();
        assert_eq!((rung.max_paced_bps(), rung.paced.is_none()), (0.0, true));
        assert!(rung.tried.iter().all(|&(_, ayes, unpaced)| (ayes, unpaced) == (0, 2)));
        let message = require(1e9, &[rung]).unwrap_err().to_string();
        assert!(message.contains("1000.0 Mbit/s") && message.contains(" 0.0 Mbit/s"), "{message}");
    }

    #[test]
    fn the_best_way_counts_and_its_figure_stands_in_the_refusal() {
        let rung = |most_bps: f64| climb("gso", 1500, |rate| Ok(measured(rate, most_bps, true))).unwrap();
        let rungs = [rung(2e9), rung(20e9)];
        let max_paced_bps = rungs[1].max_paced_bps();
        assert!(require(max_paced_bps, &rungs).is_ok());
        let Err(Failure::CannotPace(limit)) = require(25e9, &rungs) else { panic!("25 Gbit/s were not refused") };
        assert_eq!((limit.asked_bps, limit.max_paced_bps), (25e9, max_paced_bps));
    }

    #[test]
    fn a_failure_ends_the_climb() {
        let failed = climb("send", 1500, |_| Err(Failure::Cancelled));
        assert!(matches!(failed, Err(Failure::Cancelled)));
    }
}
