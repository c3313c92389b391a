//! At which layer a rate is counted.
//!
//! Every rate of this crate is of **IP packets**: 8·L/T, with L the length of the IP packet with its headers, as both
//! published estimators count.  A packet of 1500 B occupies 1538 B of an Ethernet wire, so a link of 1 Gbit/s carries
//! at most 975.3 Mbit/s of such packets, and far less of short ones.

/// What Ethernet adds to an IP packet on the wire: preamble 8, header 14, check sequence 4, interframe gap 12 bytes
/// (IEEE 802.3).
pub const ETHERNET_BYTES: u32 = 38;

/// What Linux's HTB and TBF add to an IP packet when they count: the Ethernet header, unless they are told otherwise
/// (tc-stab(8)).
pub const LINUX_SHAPER_BYTES: u32 = 14;

/// The rate of IP packets, of one length, that fills a capacity which counts so many bytes more for each.
///
/// Rates in bit/s, `packet_bytes` of the IP packet.
#[must_use]
pub fn ip_rate_bps(capacity_bps: f64, packet_bytes: u32, overhead_bytes: u32) -> f64 {
    capacity_bps * f64::from(packet_bytes) / f64::from(packet_bytes + overhead_bytes)
}

/// The inverse of [`ip_rate_bps`]: what packets of a length occupy of a capacity.
#[must_use]
pub fn occupied_bps(ip_bps: f64, packet_bytes: u32, overhead_bytes: u32) -> f64 {
    ip_bps * f64::from(packet_bytes + overhead_bytes) / f64::from(packet_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_packets_fill_975_3_mbit_of_a_gigabit() {
        assert!((ip_rate_bps(1e9, 1500, ETHERNET_BYTES) - 975_292_587.8).abs() < 1.0);
        assert!((occupied_bps(ip_rate_bps(1e9, 200, 38), 200, 38) - 1e9).abs() < 1e-3);
    }
}
