//! How long a flush takes.

use std::fmt;
use std::str::FromStr;

const MINUTE_NS: u128 = 60_000_000_000;

/// What stands in for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// The disk that is there: flushes are counted and timed, and happen.
    AsIs,
    /// A disk of so many revolutions per minute, whose head never moves.  A flush completes when the platter has come round: at the next point
    /// of a grid on `CLOCK_MONOTONIC` that all threads and processes share, so that those that wait together tie.
    Rotational {
        /// Revolutions per minute.
        rpm: u64,
    },
    /// A disk whose head was elsewhere before each flush: it seeks, and then waits for the place to come round, half a
    /// revolution on average (C. Ruemmler, J. Wilkes 1994, "An Introduction to Disk Drive Modeling", IEEE Computer
    /// 27(3); the transfer of some blocks takes microseconds and is left out).
    RotationalSeek {
        /// Revolutions per minute.
        rpm: u64,
        /// The average seek, which every flush takes.
        seek_us: u64,
    },
    /// A disk that takes the same time for every flush, any number at once.
    Latency {
        /// That time.
        us: u64,
    },
    /// A disk, or a VMM, that acknowledges without doing anything.
    AtOnce,
}

impl Profile {
    /// When a flush completes that begins now; `None` where the real disk says it.
    #[must_use]
    pub fn completes_at_ns(self, now_ns: u64) -> Option<u64> {
        match self {
            Self::AsIs => None,
            Self::Rotational { rpm } => {
                let revolution = u128::from(now_ns) * u128::from(rpm) / MINUTE_NS + 1;
                Some((revolution * MINUTE_NS).div_ceil(u128::from(rpm)) as u64)
            }
            Self::RotationalSeek { rpm, seek_us } => {
                let seek_ns = seek_us * 1000;
                // In units of which MINUTE_NS are a revolution, so that nothing is rounded before the end.
                let arrived = u128::from(now_ns + seek_ns) * u128::from(rpm);
                // The clock is cut into spans of a seek: what begins in one is of one place, that of the next is anywhere.
                let angle = (u128::from(mix(now_ns / seek_ns)) * MINUTE_NS) >> 64;
                let revolution = (arrived + MINUTE_NS - angle).div_ceil(MINUTE_NS) - 1;
                Some((revolution * MINUTE_NS + angle).div_ceil(u128::from(rpm)) as u64)
            }
            Self::Latency { us } => Some(now_ns + us * 1000),
            Self::AtOnce => Some(now_ns),
        }
    }

    /// As two numbers, for the counters' file.
    #[must_use]
    pub fn encoded(self) -> [u64; 2] {
        match self {
            Self::AsIs => [1, 0],
            Self::Rotational { rpm } => [2, rpm],
            Self::Latency { us } => [3, us],
            Self::AtOnce => [4, 0],
            Self::RotationalSeek { rpm, seek_us } => [5, (seek_us << RPM_BITS) | rpm],
        }
    }

    /// The reverse; `None` if the numbers are nobody's.
    #[must_use]
    pub fn decoded(numbers: [u64; 2]) -> Option<Self> {
        match numbers {
            [1, 0] => Some(Self::AsIs),
            [2, rpm @ 1..=MOST_RPM] => Some(Self::Rotational { rpm }),
            [3, us @ 1..=LONGEST_US] => Some(Self::Latency { us }),
            [4, 0] => Some(Self::AtOnce),
            [5, both] => match (both & ((1 << RPM_BITS) - 1), both >> RPM_BITS) {
                (rpm @ 1..=MOST_RPM, seek_us @ 1..=LONGEST_US) => Some(Self::RotationalSeek { rpm, seek_us }),
                _ => None,
            },
            _ => None,
        }
    }
}

const MOST_RPM: u64 = 1_000_000;
const LONGEST_US: u64 = 100_000_000;
/// As many as hold the most revolutions.
const RPM_BITS: u32 = 20;

/// The finalizer of splitmix64 (Steele, Lea, Flood 2014): spreads a counter over all 64 bits.
fn mix(counter: u64) -> u64 {
    let mut bits = counter.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

impl fmt::Display for Profile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AsIs => formatter.write_str("as-is"),
            Self::Rotational { rpm } => write!(formatter, "rotational:{rpm}"),
            Self::RotationalSeek { rpm, seek_us } => write!(formatter, "rotational-seek:{rpm}:{seek_us}"),
            Self::Latency { us } => write!(formatter, "latency:{us}"),
            Self::AtOnce => formatter.write_str("at-once"),
        }
    }
}

impl FromStr for Profile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, number) = text.split_once(':').map_or((text, None), |(name, number)| (name, Some(number)));
        if let ("rotational-seek", Some((rpm, us))) = (name, number.and_then(|numbers| numbers.split_once(':'))) {
            if let (Ok(rpm @ 1..=MOST_RPM), Ok(seek_us @ 1..=LONGEST_US)) = (rpm.parse(), us.parse()) {
                return Ok(Self::RotationalSeek { rpm, seek_us });
            }
        }
        let encoded = match (name, number.map(str::parse)) {
            ("as-is", None) => [1, 0],
            ("rotational", Some(Ok(rpm))) => [2, rpm],
            ("latency", Some(Ok(us))) => [3, us],
            ("at-once", None) => [4, 0],
            _ => [0, 0],
        };
        Self::decoded(encoded).ok_or_else(|| {
            format!(
                "profile {text}: it is as-is, at-once, rotational:RPM (1 to {MOST_RPM} revolutions per minute), \
                 rotational-seek:RPM:US or latency:US (1 to {LONGEST_US} microseconds)"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_platter_comes_round_120_times_a_second_at_7200_rpm_without_drift() {
        let disk = Profile::Rotational { rpm: 7200 };
        let mut now = 987_654_321_987_654_321;
        let begin = disk.completes_at_ns(now).unwrap();
        for _ in 0..1200 {
            now = disk.completes_at_ns(now).unwrap();
        }
        assert!((now - begin).abs_diff(10_000_000_000 - 8_333_333) <= 1);
    }

    #[test]
    fn flushes_of_one_revolution_complete_together_and_one_at_the_boundary_takes_a_whole_one() {
        let disk = Profile::Rotational { rpm: 6000 };
        assert_eq!(disk.completes_at_ns(0), Some(10_000_000));
        assert_eq!(disk.completes_at_ns(1), Some(10_000_000));
        assert_eq!(disk.completes_at_ns(9_999_999), Some(10_000_000));
        assert_eq!(disk.completes_at_ns(10_000_000), Some(20_000_000));
    }

    #[test]
    fn a_flush_with_a_seek_takes_it_and_half_a_revolution_on_average() {
        for (rpm, seek_us) in [(7200, 8500), (7200, 1000), (15_000, 3500), (5400, 12_000)] {
            let disk = Profile::RotationalSeek { rpm, seek_us };
            let revolution_ns = 60e9 / rpm as f64;
            let (mut now, begin, flushes) = (987_654_321_987_654_321, 987_654_321_987_654_321_u64, 20_000);
            for _ in 0..flushes {
                let after = disk.completes_at_ns(now).unwrap();
                let rotation_ns = (after - now - seek_us * 1000) as f64;
                assert!((0.0..=revolution_ns + 1.0).contains(&rotation_ns), "{rotation_ns} at {rpm} rpm");
                now = after + 20_000; // what a writer does in between
            }
            let mean_ns = (now - begin) as f64 / f64::from(flushes) - 20e3;
            let expected_ns = seek_us as f64 * 1e3 + revolution_ns / 2.0;
            // Of uniform waits the mean has a standard error of a revolution / √12 / √20,000: 0.2 % of it.
            assert!((mean_ns - expected_ns).abs() < 0.01 * revolution_ns, "{mean_ns} ns, and not {expected_ns}");
        }
    }

    #[test]
    fn flushes_that_begin_together_complete_together_but_for_those_the_place_has_just_passed() {
        let disk = Profile::RotationalSeek { rpm: 7200, seek_us: 8500 };
        let begin = 8_500_000 * 1_000_000;
        let ends: std::collections::BTreeSet<_> =
            (0..100).map(|number| disk.completes_at_ns(begin + number * 1000).unwrap()).collect();
        assert!(ends.len() <= 2, "{ends:?}");
    }

    #[test]
    fn flushes_of_one_span_of_a_seek_are_whole_revolutions_apart_and_those_of_the_next_anywhere() {
        let (disk, seek_ns) = (Profile::RotationalSeek { rpm: 6000, seek_us: 25_000 }, 25_000_000);
        let end = |began_ns| disk.completes_at_ns(began_ns).unwrap();
        let (mut most, mut elsewhere) = (0, 0);
        for span in 1000..1100 {
            let first = end(span * seek_ns);
            for place in 1..25 {
                let apart = end(span * seek_ns + place * 1_000_000) - first;
                assert!(apart % 10_000_000 <= 1, "{apart} ns");
                most = most.max(apart / 10_000_000);
            }
            let border = (span + 1) * seek_ns;
            elsewhere += u32::from(end(border).abs_diff(end(border - 1)) % 10_000_000 > 1);
        }
        assert_eq!(most, 3);
        assert!(elsewhere > 90, "of 100 spans {elsewhere} were of another place than the next");
    }

    #[test]
    fn a_grid_point_that_is_no_whole_nanosecond_is_never_waited_for_twice() {
        for rpm in [7, 5400, 7200, 999_983] {
            let disk = Profile::Rotational { rpm };
            let mut now = 123_456_789_123;
            for _ in 0..1000 {
                let next = disk.completes_at_ns(now).unwrap();
                assert!((next - now).abs_diff(60_000_000_000 / rpm) <= 60_000_000_000 / rpm);
                assert!(next > now);
                now = next;
            }
        }
    }

    #[test]
    fn a_profile_is_what_its_text_and_its_numbers_say() {
        for text in ["as-is", "rotational:7200", "rotational-seek:7200:8500", "latency:100", "at-once"] {
            let profile: Profile = text.parse().unwrap();
            assert_eq!(profile.to_string(), text);
            assert_eq!(Profile::decoded(profile.encoded()), Some(profile));
        }
        for text in ["", "as-is:1", "rotational", "rotational:0", "rotational:-1", "latency:", "latency:1e3", "ssd"] {
            let error = text.parse::<Profile>().unwrap_err();
            assert!(error.contains("latency:US"), "{error}");
        }
        for text in
            ["rotational-seek:7200", "rotational-seek:7200:0", "rotational-seek:0:8500", "rotational-seek:1:2:3"]
        {
            assert!(text.parse::<Profile>().unwrap_err().contains("rotational-seek:RPM:US"));
        }
        assert_eq!(Profile::decoded([0, 0]), None);
        assert_eq!(Profile::decoded([5, 7200]), None);
        assert_eq!(Profile::decoded([3, u64::MAX]), None);
    }
}
