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
