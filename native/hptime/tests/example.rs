//! The example keeps its beat.

#[allow(dead_code, reason = "only the beat is tested")]
#[path = "../examples/metronome.rs"]
mod metronome;

#[test]
fn twenty_beats_take_twenty_periods_and_none_is_early() {
    let began_ns = hptime::OsClock::Monotonic.now_ns();
    let wakes = metronome::ticked(20, 2_000_000);
    let took_ns = hptime::OsClock::Monotonic.now_ns() - began_ns;
    assert_eq!(wakes.len(), 20);
    // The clock may differ from the kernel's by a microsecond.
    assert!(wakes.iter().all(|wake| wake.lateness_ns > -1_000), "{wakes:?}");
    assert!((39_990_000..10_000_000_000).contains(&took_ns), "{took_ns}");
}
