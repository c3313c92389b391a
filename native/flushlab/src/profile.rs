//! How long a flush takes.

use std::fmt;
use std::str::FromStr;

const MINUTE_NS: u128 = 60_000_000_000;

/// What stands in for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// The disk that is there: flushes are counted and timed, and happen.
    AsIs,
    /// A disk of so many revolutions per minute.  A flush completes when the platter has come round: at the next point
    /// of a grid on `CLOCK_MONOTONIC` that all threads and processes share, so that those that wait together tie.
    Rotational {
        /// Revolutions per minute.
        rpm: u64,
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
            _ => None,
        }
    }
}

const MOST_RPM: u64 = 1_000_000;
const LONGEST_US: u64 = 100_000_000;

impl fmt::Display for Profile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AsIs => formatter.write_str("as-is"),
            Self::Rotational { rpm } => write!(formatter, "rotational:{rpm}"),
            Self::Latency { us } => write!(formatter, "latency:{us}"),
            Self::AtOnce => formatter.write_str("at-once"),
        }
    }
}

impl FromStr for Profile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, number) = text.split_once(':').map_or((text, None), |(name, number)| (name, Some(number)));
        let encoded = match (name, number.map(str::parse)) {
            ("as-is", None) => [1, 0],
            ("rotational", Some(Ok(rpm))) => [2, rpm],
            ("latency", Some(Ok(us))) => [3, us],
            ("at-once", None) => [4, 0],
            _ => [0, 0],
        };
        Self::decoded(encoded).ok_or_else(|| {
            format!(
                "profile {text}: it is as-is, at-once, rotational:RPM (1 to {MOST_RPM} revolutions per minute), or \
                 latency:US (1 to {LONGEST_US} microseconds)"
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
        for text in ["as-is", "rotational:7200", "latency:100", "at-once"] {
            let profile: Profile = text.parse().unwrap();
            assert_eq!(profile.to_string(), text);
            assert_eq!(Profile::decoded(profile.encoded()), Some(profile));
        }
        for text in ["", "as-is:1", "rotational", "rotational:0", "rotational:-1", "latency:", "latency:1e3", "ssd"] {
            let error = text.parse::<Profile>().unwrap_err();
            assert!(error.contains("latency:US"), "{error}");
        }
        assert_eq!(Profile::decoded([0, 0]), None);
        assert_eq!(Profile::decoded([3, u64::MAX]), None);
    }
}
