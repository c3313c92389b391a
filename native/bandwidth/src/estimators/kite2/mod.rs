//! Our Kite2: an estimator after what is published of the tool of that name.
//!
//! Neither source nor a full description of Kite2 is public.  What is (Kirova et al. 2018, 2019; Kachan, Siemens,
//! Shuvalov 2015): it probes at rates; it looks for the smallest sending interval after which the difference of the
//! received and the sent one is least; packets are stamped by the time stamp counter just before they are sent and by the
//! kernel when they come; sleeps are precise; the length of a train adapts to the path; many instant estimates are reduced
//! to one, which is rather too low than too high.  This estimator follows those facts; everything else is ours.

mod hint;
mod search;
mod verdict;

use failure::Failure;
use serde::{Deserialize, Serialize};

use crate::outcome::Outcome;
use crate::probing::{Effort, Probing, Watch, require};
use crate::transport::{Limits, Transport};
use search::Search;

/// How to search.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// How often to search.
    pub effort: Effort,
    /// Length of the packets, in bytes.
    pub packet_bytes: u32,
    /// The lowest rate that is tried, in bit/s of IP packets.
    pub lowest_bps: f64,
    /// The highest rate that is tried.
    pub highest_bps: f64,
    /// Duration of a train while the rate is only roughly known, in nanoseconds.
    pub short_train_ns: u32,
    /// Duration of a train once it is better known.
    pub long_train_ns: u32,
    /// The fewest packets in a train, however slow.
    pub fewest_packets: u32,
    /// The most packets in a train, however fast.
    pub most_packets: u32,
    /// A train whose rate fell by more than this share is congested: ε.
    pub rate_tolerance: f64,
    /// A train whose delay grew by more than so many standard errors is congested.
    pub slope_errors: f64,
    /// Growth of the delay by time that two clocks may show between them: no less is called growth.
    pub slope_tolerance: f64,
    /// Loss of more than this share is congestion; less may be an accident.
    pub loss_tolerance: f64,
    /// The bracket of a search that has ended, as a share of the rate.
    pub resolution_share: f64,
    /// The share of the time in which trains are under way, so that probing is no load of its own.
    pub probing_share: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            effort: Effort::default(),
            packet_bytes: 1500,
            lowest_bps: 1e6,
            highest_bps: 100e9,
            short_train_ns: 2_000_000,
            long_train_ns: 5_000_000,
            fewest_packets: 50,
            most_packets: 2000,
            rate_tolerance: 0.01,
            slope_errors: 3.0,
            slope_tolerance: 5e-4,
            loss_tolerance: 0.01,
            resolution_share: 0.01,
            probing_share: 0.2,
        }
    }
}

/// Estimates the available bandwidth.
pub fn estimate<'a>(
    transport: &'a mut dyn Transport,
    settings: &Settings,
    watch: &'a mut Watch<'a>,
) -> Result<Outcome, Failure> {
    settings.check(&transport.limits())?;
    let mut probing = Probing::new(transport, watch, &settings.effort)?;
    let hint_bps = hint::capacity_bps(&mut probing, settings)?;
    let mut search = Search::new(settings, hint_bps);
    probing.search_on(|probing| search.run(probing))?;
    probing.finish(hint_bps)
}

impl Settings {
    fn check(&self, limits: &Limits) -> Result<(), Failure> {
        let share = |name: &str, value: f64, least: f64, most: f64| {
            require(name, (least..=most).contains(&value), format!("{least} … {most}"))
        };
        let (shortest, longest) = (limits.shortest_bytes, limits.longest_bytes);
        require("packet_bytes", (shortest..=longest).contains(&self.packet_bytes), format!("{shortest} … {longest}"))?;
        require("lowest_bps", self.lowest_bps >= 1e4 && self.lowest_bps < self.highest_bps, "1e4 … highest_bps")?;
        require("highest_bps", self.highest_bps <= 1e12, "lowest_bps … 1e12")?;
        let trains = 100_000..=1_000_000_000;
        require("short_train_ns", trains.contains(&self.short_train_ns), "1e5 … 1e9")?;
        require("long_train_ns", trains.contains(&self.long_train_ns), "1e5 … 1e9")?;
        require("fewest_packets", (20..=self.most_packets).contains(&self.fewest_packets), "20 … most_packets")?;
        let most = limits.most_packets;
        require("most_packets", self.most_packets <= most, format!("fewest_packets … {most}"))?;
        share("rate_tolerance", self.rate_tolerance, 0.0, 0.5)?;
        share("slope_errors", self.slope_errors, 0.0, 100.0)?;
        share("slope_tolerance", self.slope_tolerance, 0.0, 0.5)?;
        share("loss_tolerance", self.loss_tolerance, 0.0, 0.5)?;
        share("resolution_share", self.resolution_share, 1e-4, 0.5)?;
        share("probing_share", self.probing_share, 1e-3, 1.0)
    }

    /// The mean rest before a train of this duration.
    fn mean_rest_ns(&self, train_ns: u64) -> f64 {
        train_ns as f64 * (1.0 / self.probing_share - 1.0)
    }
}
