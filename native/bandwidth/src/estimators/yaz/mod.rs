//! Yaz with its limits removed: our correction of [`super::yaz_original`].
//!
//! The rule is the same — a train whose gaps grew is congested, and half of the growth is added to the gap — but
//!
//! * gaps are nanoseconds and deadlines absolute;
//! * the first gap is a setting;
//! * a congested train is repeated before its gap is given up;
//! * the gap moves both ways, between the longest that was congested and the shortest that was not, until their rates
//!   agree;
//! * growth is judged by how much the path's own traffic makes of it, not by a microsecond, which at 1 Gbit/s is a
//!   twelfth of the gap;
//! * trains during which the sender stood still are sent again.

mod search;

use serde::{Deserialize, Serialize};

use crate::failure::Failure;
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
    /// Packets in a train.
    pub packets: u32,
    /// Length of the first packets, in bytes.
    pub packet_bytes: u32,
    /// Length below which packets are not halved, in bytes.
    pub shortest_bytes: u32,
    /// The first and shortest gap, in nanoseconds: 8·L by it is the most that can be found.
    pub floor_gap_ns: u32,
    /// Rates that differ by less agree, in bit/s: ρ.
    pub resolution_bps: f64,
    /// The same as a share of the rate; the larger one holds.
    pub resolution_share: f64,
    /// Growth of less than so many standard errors is noise.
    pub growth_errors: f64,
    /// Growth of the gap, as a share of it, that two clocks may show between them: no less is called growth.
    pub growth_tolerance: f64,
    /// Mean rest between trains, in nanoseconds.
    pub mean_rest_ns: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            effort: Effort::default(),
            packets: 50,
            packet_bytes: 1500,
            shortest_bytes: 200,
            floor_gap_ns: 10_000,
            resolution_bps: 500e3,
            resolution_share: 0.01,
            growth_errors: 1.0,
            growth_tolerance: 5e-4,
            mean_rest_ns: 50_000_000,
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
    let mut search = Search::new(settings);
    probing.search_on(|probing| search.run(probing))?;
    probing.finish(search.highest_received_bps())
}

impl Settings {
    fn check(&self, limits: &Limits) -> Result<(), Failure> {
        let (most, longest, shortest) = (limits.most_packets, limits.longest_bytes, limits.shortest_bytes);
        require("packets", (20..=most).contains(&self.packets), format!("20 … {most}"))?;
        require(
            "packet_bytes",
            (self.shortest_bytes..=longest).contains(&self.packet_bytes),
            format!("shortest_bytes … {longest}"),
        )?;
        require("shortest_bytes", self.shortest_bytes >= shortest, format!("{shortest} … packet_bytes"))?;
        require("floor_gap_ns", (100..1_000_000).contains(&self.floor_gap_ns), "100 … 999999")?;
        require("resolution_bps", (1e3..1e9).contains(&self.resolution_bps), "1e3 … 1e9")?;
        require("resolution_share", (0.0..=0.5).contains(&self.resolution_share), "0 … 0.5")?;
        require("growth_errors", (0.0..=100.0).contains(&self.growth_errors), "0 … 100")?;
        require("growth_tolerance", (0.0..=0.5).contains(&self.growth_tolerance), "0 … 0.5")
    }

    /// The widest bracket that counts as found, in bit/s.
    fn resolution_at(&self, rate_bps: f64) -> f64 {
        self.resolution_bps.max(self.resolution_share * rate_bps)
    }
}
