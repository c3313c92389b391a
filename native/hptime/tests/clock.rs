//! The clock on a simulated machine whose true time is known, and on this one.

mod simulation;

use hptime::{Clock, Fallback};
use simulation::{Machine, Simulated};

/// Lets `seconds` pass with a reading every 10 ms; each reading is checked against the last one and given to `look`.
fn run(clock: &Clock<&Simulated>, seconds: f64, mut look: impl FnMut(i64, i64)) {
    let mut last = 0;
    for _ in 0..(seconds * 100.0) as u32 {
        clock.source().pass(1e7);
        let shown = clock.now_ns() as i64;
        assert!(shown >= last, "went back by {} ns", last - shown);
        last = shown;
        look(shown, clock.source().monotonic());
    }
}

#[test]
fn the_kernels_clock_answers_first_then_the_counter() {
    let machine = Simulated::default();
    let clock = Clock::on(&machine);
    clock.now_ns();
    assert!(!clock.status().running);
    run(&clock, 0.05, |shown, truth| assert!((shown - truth).abs() < 200));
    let status = clock.status();
    assert!(status.running && status.fallback_reason.is_none());
    assert!((status.frequency_hz / 2.6e9 - 1.0).abs() * 1e6 <= status.difference_error_ppm);
}

#[test]
fn the_difference_clock_is_within_a_tenth_of_a_ppm_after_a_minute_and_its_bound_holds() {
    let machine = Simulated::default();
    let clock = Clock::on(&machine);
    let difference = clock.difference();
    run(&clock, 60.0, |_, _| ());
    let (began, from) = (machine.with(|machine| machine.now), difference.read());
    machine.pass(1e10);
    let (ended, to) = (machine.with(|machine| machine.now), difference.read());
    let error_ppm = (difference.nanoseconds(from, to) as f64 / (ended - began) - 1.0).abs() * 1e6;
    assert!(error_ppm < 0.1, "{error_ppm}");
    assert!(clock.status().difference_error_ppm < 0.1);
}

#[test]
fn the_absolute_clock_follows_a_slew_and_its_error_bar_holds() {
    let machine = Simulated::default();
    let clock = Clock::on(&machine);
    for slew_ppm in [0.0, 20.0, -30.0, 400.0, 0.0] {
        machine.with(|machine| machine.slew_ppm = slew_ppm);
        // The change itself is seen at the next anchors; afterwards the bar has to hold at every reading.
        run(&clock, 4.0, |_, _| ());
        run(&clock, 20.0, |shown, truth| {
            let bar = clock.status().absolute_error.expect("a running clock").ns;
            let error = (shown - truth).abs() as f64;
            assert!(error <= bar + 60.0, "slew {slew_ppm}: {error} ns, bar {bar} ns");
        });
        let bar = clock.status().absolute_error.unwrap();
        assert!(bar.ns < 500.0 && bar.ppm < 1.0, "slew {slew_ppm}: {bar:?}");
    }
}

#[test]
fn a_slew_does_not_reach_the_difference_clock() {
    let machine = Simulated::new(Machine { slew_ppm: 300.0, ..Machine::default() });
    let clock = Clock::on(&machine);
    run(&clock, 30.0, |_, _| ());
    assert!((clock.status().frequency_hz / 2.6e9 - 1.0).abs() < 1e-7);
    assert_eq!(clock.status().alarm, None);
}

#[test]
fn readings_between_anchors_keep_to_the_line_and_anchors_do_not_jump() {
    let machine = Simulated::default();
    let clock = Clock::on(&machine);
    run(&clock, 10.0, |_, _| ());
    let (mut last_shown, mut last_truth) = (clock.now_ns() as i64, machine.monotonic());
    run(&clock, 30.0, |shown, truth| {
        let apart = (shown - last_shown) - (truth - last_truth);
        // A reading costs 9 ns and an anchor some 200, which pass between the two looks.
        assert!(apart.abs() < 400, "{apart} ns");
        (last_shown, last_truth) = (shown, truth);
    });
}

#[test]
fn an_hour_without_a_reading_is_made_good_at_once() {
    let machine = Simulated::default();
    let clock = Clock::on(&machine);
    run(&clock, 2.0, |_, _| ());
    machine.with(|machine| machine.slew_ppm = 100.0);
    machine.pass(3.6e12);
    let (shown, truth) = (clock.now_ns() as i64, machine.monotonic());
    assert!((shown - truth).abs() < 1_000, "{} ns", shown - truth);
}

#[test]
fn a_clock_that_ran_ahead_waits_by_slewing() {
    let machine = Simulated::default();
    let clock = Clock::on(&machine);
    run(&clock, 3.0, |_, _| ());
    // The kernel's clock runs 500 ppm slower: until the next anchor ours gets ahead of it.
    machine.with(|machine| machine.slew_ppm = -500.0);
    let mut worst = 0;
    run(&clock, 2.0, |shown, truth| worst = worst.max(shown - truth));
    assert!(worst > 10_000, "{worst}");
    run(&clock, 20.0, |_, _| ());
    let error = clock.now_ns() as i64 - machine.monotonic();
    assert!(error.abs() < 1_000, "{error}");
}

#[test]
fn realtime_is_steady_to_the_nanosecond_and_a_step_is_seen_within_a_second() {
    let machine = Simulated::default();
    let clock = Clock::on(&machine);
    run(&clock, 3.0, |_, _| ());
    let mut last = clock.realtime_ns();
    run(&clock, 10.0, |_, _| {
        let now = clock.realtime_ns();
        assert!(now >= last);
        last = now;
    });
    machine.with(|machine| machine.realtime_offset -= 3.6e12);
    run(&clock, 1.2, |_, _| ());
    let error = clock.realtime_ns() as f64 - machine.with(|machine| machine.monotonic + machine.realtime_offset);
    assert!(error.abs() < 2_000.0, "{error}");
}

#[test]
fn preempted_brackets_do_no_harm() {
    let machine = Simulated::new(Machine { preempt_every: 7, ..Machine::default() });
    let clock = Clock::on(&machine);
    run(&clock, 20.0, |_, _| ());
    assert!((clock.status().frequency_hz / 2.6e9 - 1.0).abs() < 1e-7);
    assert_eq!(clock.status().alarm, None);
}

#[test]
fn slow_readings_widen_the_bars_and_these_hold() {
    let machine = Simulated::new(Machine { clock_cost: 8_000.0, counter_cost: 80.0, ..Machine::default() });
    let clock = Clock::on(&machine);
    run(&clock, 5.0, |_, _| ());
    let status = clock.status();
    assert!(status.running);
    assert!(status.absolute_error.unwrap().ns > 3_000.0);
    assert!((status.frequency_hz / 2.6e9 - 1.0).abs() * 1e6 <= status.difference_error_ppm);
}

#[test]
fn a_change_of_the_rate_raises_the_alarm_and_is_followed() {
    let machine = Simulated::default();
    let clock = Clock::on(&machine);
    run(&clock, 10.0, |_, _| ());
    assert_eq!(clock.status().alarm, None);
    machine.with(|machine| machine.set_ghz(2.6 * (1.0 + 50e-6)));
    run(&clock, 10.0, |_, _| ());
    let status = clock.status();
    let alarm = status.alarm.expect("an alarm");
    assert!(alarm.departure_ppm.abs() > 1.0 && alarm.count <= 2, "{alarm:?}");
    assert!((status.frequency_hz / (2.6e9 * (1.0 + 50e-6)) - 1.0).abs() < 1e-7);
    assert!(status.running);
}

#[test]
fn a_jump_of_the_counter_is_healed_by_a_new_calibration_and_time_never_goes_back() {
    for ticks in [2.6e9 * 5.0, -2.6e9 * 5.0, 2.6e9 * 3600.0] {
        let machine = Simulated::default();
        let clock = Clock::on(&machine);
        run(&clock, 10.0, |_, _| ());
        let mut last = clock.now_ns();
        machine.with(|machine| machine.jump(ticks));
        for _ in 0..1_000 {
            machine.pass(1e7);
            let now = clock.now_ns();
            assert!(now >= last);
            last = now;
        }
        let error = last as i64 - machine.monotonic();
        assert!(error.abs() < 2_000, "jump {ticks}: {error} ns");
        let status = clock.status();
        assert!(status.running && status.alarm.is_some(), "jump {ticks}: {status:?}");
    }
}

#[test]
fn a_counter_that_is_not_invariant_is_refused_in_the_end() {
    let machine = Simulated::default();
    let clock = Clock::on(&machine);
    for round in 0..40 {
        machine.with(|machine| machine.set_ghz(if round % 2 == 0 { 1.3 } else { 2.6 }));
        run(&clock, 1.0, |_, _| ());
    }
    assert_eq!(clock.fallback_reason(), Some(Fallback::Drifted));
    let error = clock.now_ns() as i64 - machine.monotonic();
    assert!(error.abs() < 200, "{error}");
}

#[test]
fn a_counter_that_stands_still_is_refused_and_the_kernels_clock_goes_on() {
    let machine = Simulated::default();
    let clock = Clock::on(&machine);
    run(&clock, 2.0, |_, _| ());
    machine.with(|machine| machine.set_ghz(0.0));
    // Nothing tells a standing counter from one that is read twice, until somebody asks for an anchor.
    for _ in 0..20 {
        machine.pass(3e7);
        clock.discipline();
    }
    assert_eq!(clock.fallback_reason(), Some(Fallback::WentBack));
    let error = clock.now_ns() as i64 - machine.monotonic();
    assert!(error.abs() < 200, "{error}");
}

#[test]
fn a_refused_counter_is_never_read_for_the_time() {
    for reason in Fallback::ALL {
        let machine = Simulated::new(Machine { verdict: Err(reason), ..Machine::default() });
        let clock = Clock::on(&machine);
        run(&clock, 2.0, |shown, truth| assert!((shown - truth).abs() < 100));
        assert_eq!(clock.fallback_reason(), Some(reason));
        assert_eq!(clock.status().frequency_hz.to_bits(), 0);
        let difference = clock.difference();
        assert!(!difference.uses_counter());
        let from = difference.read();
        machine.pass(1e6);
        let ns = difference.nanoseconds(from, difference.read());
        assert!((1_000_000..1_001_000).contains(&ns), "{ns}");
        assert_eq!(machine.with(|machine| machine.counts), 0);
        assert_eq!(Fallback::from_number(reason as u32), Some(reason));
    }
}

#[test]
fn a_refused_counter_costs_one_reading_of_the_kernels_clock_and_no_more() {
    let machine = Simulated::default();
    let clock = Clock::on(&machine);
    for round in 0..40 {
        machine.with(|machine| machine.set_ghz(if round % 2 == 0 { 1.3 } else { 2.6 }));
        run(&clock, 1.0, |_, _| ());
    }
    assert_eq!(clock.fallback_reason(), Some(Fallback::Drifted));
    let spent = |read: &dyn Fn() -> u64| {
        let before = machine.with(|machine| (machine.readings, machine.counts));
        (0..1000).for_each(|_| _ = read());
        machine.with(|machine| (machine.readings - before.0, machine.counts - before.1))
    };
    assert_eq!(spent(&|| clock.now_ns()), (1000, 0));
    assert_eq!(spent(&|| clock.now_ordered_ns()), (1000, 0));
    assert_eq!(spent(&|| clock.raw_ns()), (1000, 0));
    assert_eq!(spent(&|| clock.realtime_ns()), (1000, 0));
    assert_eq!(spent(&|| clock.realtime_ordered_ns()), (1000, 0));
}

#[test]
fn an_anchor_on_demand_never_takes_time_back() {
    let machine = Simulated::default();
    let clock = Clock::on(&machine);
    clock.settle();
    let mut last = 0;
    for round in 0..2_000 {
        machine.pass(f64::from(round % 97) * 1e4);
        clock.discipline();
        for now in [clock.now_ns(), clock.now_ns()] {
            assert!(now >= last);
            last = now;
        }
    }
    assert!(clock.status().measurements > 2_000);
}
