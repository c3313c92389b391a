//! The traffic of others, which enters at a hop and leaves after it.

use crate::random::Random;

/// What others send through a hop.  Rates count packets as the hop's capacity counts them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CrossTraffic {
    /// Nothing.
    None,
    /// A fluid: no packets, so that nothing is random.  What the theory of probe rates assumes.
    Fluid {
        /// Its rate, in bit/s.
        rate_bps: f64,
    },
    /// A packet in every equal interval.
    Constant {
        /// Mean rate, in bit/s.
        rate_bps: f64,
        /// Length of each packet as the hop counts it, in bytes.
        packet_bytes: u32,
    },
    /// Packets at random, independent of one another.
    Poisson {
        /// Mean rate, in bit/s.
        rate_bps: f64,
        /// Length of each packet as the hop counts it, in bytes.
        packet_bytes: u32,
    },
}

impl CrossTraffic {
    /// The mean rate, in bit/s.
    #[must_use]
    pub fn offered_bps(&self) -> f64 {
        match *self {
            Self::None => 0.0,
            Self::Fluid { rate_bps } | Self::Constant { rate_bps, .. } | Self::Poisson { rate_bps, .. } => rate_bps,
        }
    }

    /// What of it is a fluid, in bit/s.
    pub(super) fn fluid_bps(&self) -> f64 {
        if let Self::Fluid { rate_bps } = *self { rate_bps } else { 0.0 }
    }

    /// The time from one packet to the next, in nanoseconds, and the packet's length in bytes; `None` without packets.
    pub(super) fn next_packet(&self, random: &mut Random) -> Option<(f64, u32)> {
        let mean_ns = |rate_bps: f64, packet_bytes: u32| f64::from(packet_bytes) * 8e9 / rate_bps;
        match *self {
            Self::Constant { rate_bps, packet_bytes } if rate_bps > 0.0 => {
                Some((mean_ns(rate_bps, packet_bytes), packet_bytes))
            }
            Self::Poisson { rate_bps, packet_bytes } if rate_bps > 0.0 => {
                Some((random.exponential(mean_ns(rate_bps, packet_bytes)), packet_bytes))
            }
            _ => None,
        }
    }
}
