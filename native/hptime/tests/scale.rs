//! The conversion against exact arithmetic.

use hptime::Scale;
use proptest::prelude::*;

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
