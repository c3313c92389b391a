//! Ticks to nanoseconds by one multiplication and one shift.

/// A counter's period as a fixed-point number: nanoseconds a tick, in units of 2⁻⁵⁴ ns.
///
/// The product of a 64-bit number of ticks is taken in 128 bits, so that a conversion is exact to the multiplier:
/// 2⁻⁵⁵ ns a tick, which for a 3 GHz counter is 0.03 ns after a year.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    multiplier: u64,
}

impl Scale {
    /// Bits behind the point.  54 leaves room for counters from 1 MHz up.
    pub const FRACTION_BITS: u32 = 54;

    /// One nanosecond a tick.
    pub const NANOSECONDS: Self = Self { multiplier: 1 << Self::FRACTION_BITS };

    /// For a period in nanoseconds a tick; `None` unless it is above zero and below 1024.
    #[must_use]
    pub fn new(period_ns: f64) -> Option<Self> {
        let multiplier = (period_ns * (1u64 << Self::FRACTION_BITS) as f64).round();
        // 2⁶⁴ itself does not fit; a NaN is not in the range.
        (1.0..18_446_744_073_709_551_616.0).contains(&multiplier).then_some(Self { multiplier: multiplier as u64 })
    }

    /// From the multiplier itself.
    #[inline(always)]
    #[must_use]
    pub const fn from_multiplier(multiplier: u64) -> Self {
        Self { multiplier }
    }

    /// The multiplier: nanoseconds a tick, times 2⁵⁴.
    #[inline(always)]
    #[must_use]
    pub const fn multiplier(self) -> u64 {
        self.multiplier
    }

    /// The period in nanoseconds a tick.
    #[must_use]
    pub fn period_ns(self) -> f64 {
        self.multiplier as f64 / (1u64 << Self::FRACTION_BITS) as f64
    }

    /// Nanoseconds of a number of ticks, rounded down.  The result must be below 2⁶⁴ (584 years).
    #[inline(always)]
    #[must_use]
    pub const fn nanoseconds(self, ticks: u64) -> u64 {
        ((ticks as u128 * self.multiplier as u128) >> Self::FRACTION_BITS) as u64
    }

    /// The least number of ticks that lasts at least `ns`; the greatest number where that does not fit.  This divides:
    /// it is for deadlines, not for readings.
    #[must_use]
    pub const fn ticks(self, ns: u64) -> u64 {
        if self.multiplier == 0 {
            return u64::MAX;
        }
        let ticks = ((ns as u128) << Self::FRACTION_BITS).div_ceil(self.multiplier as u128);
        if ticks > u64::MAX as u128 { u64::MAX } else { ticks as u64 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Counters from 1 MHz to 100 GHz.
    fn frequencies() -> impl Strategy<Value = f64> {
        (6.0f64..11.0).prop_map(|exponent| 10f64.powf(exponent))
    }

    proptest! {
        #[test]
        fn nanoseconds_are_the_exact_product_rounded_down(hz in frequencies(), ticks: u64) {
            let scale = Scale::new(1e9 / hz).unwrap();
            let exact = (u128::from(ticks) * u128::from(scale.multiplier())) >> Scale::FRACTION_BITS;
            prop_assert_eq!(u128::from(scale.nanoseconds(ticks)), exact & u128::from(u64::MAX));
            prop_assume!(exact <= u128::from(u64::MAX));
            prop_assert_eq!(u128::from(scale.nanoseconds(ticks)), exact);
        }

        #[test]
        fn nanoseconds_are_within_one_and_the_multipliers_rounding_of_the_ratio(hz in 1_000_000u64..100_000_000_000, seconds in 0u64..86_400) {
            let scale = Scale::new(1e9 / hz as f64).unwrap();
            // A whole number of seconds is known exactly.
            let error = scale.nanoseconds(hz * seconds).abs_diff(seconds * 1_000_000_000) as f64;
            prop_assert!(error <= 1.0 + seconds as f64 * 1e9 * 4e-16 + hz as f64 * seconds as f64 / 2f64.powi(55), "{}", error);
        }

        #[test]
        fn a_longer_time_never_converts_to_a_shorter_one(hz in frequencies(), ticks in 0u64..1 << 52, more in 0u64..1 << 40) {
            let scale = Scale::new(1e9 / hz).unwrap();
            prop_assert!(scale.nanoseconds(ticks + more) >= scale.nanoseconds(ticks));
        }

        #[test]
        fn ticks_are_the_least_that_last_so_long(hz in frequencies(), ns in 1u64..1 << 50) {
            let scale = Scale::new(1e9 / hz).unwrap();
            let ticks = scale.ticks(ns);
            prop_assert!(scale.nanoseconds(ticks) >= ns);
            prop_assert!(scale.nanoseconds(ticks - 1) < ns);
        }
    }

    #[test]
    fn periods_that_do_not_fit_are_refused() {
        for period in [0.0, -1.0, 1024.0, 1e300, f64::NAN, f64::INFINITY] {
            assert_eq!(Scale::new(period), None, "{period}");
        }
        assert_eq!(Scale::new(1.0), Some(Scale::NANOSECONDS));
        assert!(Scale::new(1023.9).is_some());
        assert_eq!(Scale::from_multiplier(0).ticks(1), u64::MAX);
        assert_eq!(Scale::from_multiplier(1).ticks(u64::MAX), u64::MAX);
    }
}
