//! The sleep on a simulated machine whose kernel is late in a known way.

mod simulation;

use std::time::Duration;

use hptime::{Cause, Clock, Rule, SleepError, Sleeper};
use simulation::{Machine, Simulated};

/// Nineteen of twenty wakes are 18 to 30 µs late, one is 55 µs.
fn usual_lateness() -> Vec<u64> {
    (0..20).map(|index| if index == 13 { 55_000 } else { 18_000 + index * 600 }).collect()
}

fn machine(lateness: Vec<u64>) -> Simulated {
    Simulated::new(Machine { lateness, ..Machine::default() })
}

#[test]
fn the_adaptive_sleep_is_on_time_for_a_small_part_of_the_papers_spin_time() {
    let machine = machine(usual_lateness());
    let clock = Clock::on(&machine);
    clock.settle();
    let (adaptive, paper) = (Sleeper::new(&clock), Sleeper::new(&clock).by(Rule::HIGHPERTIMER));
    let spent = |sleeper: &Sleeper<&Simulated>| {
        (0..500).map(|_| sleeper.sleep_for(10_000_000).unwrap()).fold((0, 0), |(late, spin), wake| {
            assert_eq!(wake.cause, Cause::Slept);
            (late.max(wake.lateness_ns), spin + wake.spin_ns)
        })
    };
    // The first thousand sleeps also cover what may come.
    for _ in 0..3 {
        spent(&adaptive);
    }
    let ((late, spin), (_, paper_spin)) = (spent(&adaptive), spent(&paper));
    assert!(late <= 60, "{late}");
    assert!(spin * 5 < paper_spin, "{spin} of {paper_spin}");
    assert!((55_000..65_000).contains(&adaptive.guard_ns()), "{}", adaptive.guard_ns());
}

#[test]
fn the_sleep_ends_by_the_true_clock_and_says_how_late() {
    let machine = machine(usual_lateness());
    let clock = Clock::on(&machine);
    clock.settle();
    let sleeper = Sleeper::new(&clock);
    for step in 1..200 {
        let deadline = machine.monotonic() + step * 50_000;
        let wake = sleeper.sleep_until(deadline).unwrap();
        let truth = machine.monotonic() - deadline;
        assert!((wake.lateness_ns - truth).abs() < 120, "{wake:?}, truly {truth}");
        assert!(wake.lateness_ns >= 0);
        assert!(wake.spin_ns <= wake.guard_ns + 100, "{wake:?}");
    }
}

#[test]
fn a_deadline_within_the_guard_is_only_spun_for_and_teaches_nothing() {
    let machine = machine(usual_lateness());
    let clock = Clock::on(&machine);
    clock.settle();
    let sleeper = Sleeper::new(&clock);
    let before = sleeper.guard_ns();
    let wake = sleeper.sleep_for(20_000).unwrap();
    assert_eq!((wake.cause, sleeper.guard_ns()), (Cause::SpunOnly, before));
    assert!((19_900..=20_100).contains(&wake.spin_ns));
}

#[test]
fn a_wake_beyond_the_guard_is_told_and_lengthens_the_guard() {
    let machine = machine(vec![20_000]);
    let clock = Clock::on(&machine);
    clock.settle();
    let sleeper = Sleeper::new(&clock);
    for _ in 0..1_500 {
        sleeper.sleep_for(1_000_000).unwrap();
    }
    let before = sleeper.guard_ns();
    assert!((20_000..25_000).contains(&before), "{before}");
    machine.with(|machine| machine.lateness = vec![300_000]);
    let wake = sleeper.sleep_for(1_000_000).unwrap();
    assert_eq!(wake.cause, Cause::LateWake);
    assert!((270_000..300_000).contains(&wake.lateness_ns), "{wake:?}");
    // One in fifteen hundred is no p99.9; three are.
    assert!(sleeper.guard_ns() < 300_000);
    sleeper.sleep_for(1_000_000).unwrap();
    sleeper.sleep_for(1_000_000).unwrap();
    assert!(sleeper.guard_ns() >= 300_000);
}

#[test]
fn the_papers_rule_sleeps_until_one_tick_of_hz_before() {
    let machine = machine(vec![20_000]);
    let clock = Clock::on(&machine);
    clock.settle();
    let sleeper = Sleeper::new(&clock).by(Rule::HighPerTimer { hz: 1000 });
    let wake = sleeper.sleep_for(5_000_000).unwrap();
    assert_eq!((wake.cause, wake.guard_ns), (Cause::Slept, 1_000_000));
    assert!((975_000..985_000).contains(&wake.spin_ns), "{wake:?}");
    // Phase 1 is skipped below 1/HZ.
    assert_eq!(sleeper.sleep_for(999_000).unwrap().cause, Cause::SpunOnly);
    assert_eq!(Sleeper::new(&clock).by(Rule::HIGHPERTIMER).guard_ns(), 4_000_000);
    let Rule::HighPerTimer { hz } = Rule::highpertimer() else { panic!("another rule") };
    assert!((100..=1000).contains(&hz), "the running kernel's tick is {hz} Hz");
    // The paper limits HZ to 1000; nothing divides by zero.
    assert_eq!(Sleeper::new(&clock).by(Rule::HighPerTimer { hz: 0 }).guard_ns(), 1_000_000_000);
    assert_eq!(Sleeper::new(&clock).by(Rule::HighPerTimer { hz: 5000 }).guard_ns(), 1_000_000);
}

#[test]
fn the_kernels_sleep_never_spins() {
    let machine = machine(vec![33_000]);
    let clock = Clock::on(&machine);
    clock.settle();
    let wake = Sleeper::new(&clock).by(Rule::Os).sleep_for(1_000_000).unwrap();
    assert_eq!((wake.cause, wake.spin_ns, wake.guard_ns), (Cause::LateWake, 0, 0));
    assert!((32_900..33_200).contains(&wake.lateness_ns), "{wake:?}");
}

#[test]
fn the_kernels_sleep_does_not_spin_either_where_the_clock_is_behind_the_kernels() {
    let machine = machine(vec![5_000]);
    let clock = Clock::on(&machine);
    clock.settle();
    machine.with(|machine| machine.monotonic += 50_000.0);
    let wake = Sleeper::new(&clock).by(Rule::Os).sleep_for(1_000_000).unwrap();
    assert_eq!((wake.cause, wake.spin_ns), (Cause::LateWake, 0));
    assert!((-45_200..-44_800).contains(&wake.lateness_ns), "{wake:?}");
}

#[test]
fn a_signal_ends_the_sleep_only_where_it_is_asked_to() {
    let machine = machine(vec![20_000]);
    let clock = Clock::on(&machine);
    clock.settle();
    machine.with(|machine| machine.signals = 3);
    let wake = Sleeper::new(&clock).sleep_for(10_000_000).unwrap();
    assert_eq!(wake.cause, Cause::Slept);
    assert!(wake.lateness_ns >= 0);
    machine.with(|machine| machine.signals = 1);
    let wake = Sleeper::new(&clock).returning_on_signals().sleep_for(10_000_000).unwrap();
    assert_eq!(wake.cause, Cause::Interrupted);
    assert!((-6_000_000..-4_000_000).contains(&wake.lateness_ns), "{wake:?}");
}

#[test]
fn times_that_make_no_sense_are_errors_and_the_past_is_not_waited_for() {
    let machine = machine(vec![0]);
    let clock = Clock::on(&machine);
    let sleeper = Sleeper::new(&clock);
    assert_eq!(sleeper.sleep_for(-1), Err(SleepError::Negative { ns: -1 }));
    assert_eq!(sleeper.sleep_until(i64::MIN), Err(SleepError::Negative { ns: i64::MIN }));
    assert_eq!(sleeper.sleep_for(i64::MAX), Err(SleepError::Overflow));
    assert_eq!(sleeper.sleep(Duration::MAX), Err(SleepError::Overflow));
    assert_eq!(sleeper.sleep_until(1).unwrap().cause, Cause::Past);
    assert_eq!(sleeper.sleep_for(0).unwrap().cause, Cause::Past);
    assert!(SleepError::Negative { ns: -5 }.to_string().contains("-5 ns"));
}

#[test]
fn a_refused_counter_leaves_the_sleep_as_it_is() {
    let refused = Machine { verdict: Err(hptime::Fallback::Trapped), lateness: vec![20_000], ..Machine::default() };
    let machine = Simulated::new(refused);
    let clock = Clock::on(&machine);
    let sleeper = Sleeper::new(&clock);
    for _ in 0..50 {
        let wake = sleeper.sleep_for(2_000_000).unwrap();
        assert!((0..100).contains(&wake.lateness_ns), "{wake:?}");
    }
}
