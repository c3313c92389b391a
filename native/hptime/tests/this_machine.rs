//! The clock and the sleep on the machine at hand, with bounds that hold on a busy one too.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hptime::{Cause, Clock, Fallback, OsClock, Sleeper};

/// A clock between two readings of the kernel's, which bound it but for its error.
fn between(clock: &Clock) -> (u64, u64, u64) {
    (OsClock::Monotonic.now_ns(), clock.now_ns(), OsClock::Monotonic.now_ns())
}

#[test]
fn the_clock_shows_the_kernels_time() {
    let clock = Clock::calibrated();
    for _ in 0..50 {
        std::thread::sleep(Duration::from_millis(5));
        let (before, shown, after) = between(&clock);
        let bar = clock.status().absolute_error.map_or(0.0, |error| error.ns) as u64 + 1_000;
        assert!(shown + bar >= before && shown <= after + bar, "{before} {shown} {after}, bar {bar}");
    }
    let realtime = OsClock::Realtime.now_ns();
    assert!(clock.realtime_ns().abs_diff(realtime) < 1_000_000_000);
    assert!(clock.raw_ns().abs_diff(OsClock::MonotonicRaw.now_ns()) < 1_000_000_000);
}

#[test]
fn time_never_goes_back_between_threads_while_anchors_are_set() {
    let clock = Clock::calibrated();
    let (latest, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let seen = latest.load(Ordering::SeqCst);
                    let now = clock.now_ordered_ns();
                    assert!(now >= seen, "{} ns back", seen - now);
                    latest.fetch_max(now, Ordering::SeqCst);
                }
            });
        }
        let end = Instant::now() + Duration::from_millis(400);
        while Instant::now() < end {
            clock.discipline();
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(latest.load(Ordering::SeqCst) > 0);
}

#[test]
fn in_one_thread_time_never_goes_back_while_another_one_sets_anchors() {
    let clock = Clock::calibrated();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                clock.discipline();
            }
        });
        let end = Instant::now() + Duration::from_millis(300);
        let (mut last, mut last_raw) = (clock.now_ns(), clock.raw_ns());
        while Instant::now() < end {
            for _ in 0..1000 {
                let (now, raw) = (clock.now_ns(), clock.raw_ns());
                assert!(now >= last && raw >= last_raw, "{last} then {now}, {last_raw} then {raw}");
                (last, last_raw) = (now, raw);
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_child_of_fork_goes_on_with_the_clock_whatever_the_other_threads_did() {
    let clock = Clock::calibrated();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                clock.discipline();
            }
        });
        for _ in 0..50 {
            let before = clock.now_ns();
            // SAFETY: the child reads the clock and takes anchors, which neither allocate nor lock, and leaves by _exit.
            unsafe {
                let child = libc::fork();
                assert!(child >= 0);
                if child == 0 {
                    clock.discipline();
                    let (early, shown, late) = between(&clock);
                    let right = shown >= before && shown + 5_000_000 > early && shown < late + 5_000_000;
                    libc::_exit(i32::from(!right));
                }
                let mut status = 0;
                assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
                assert_eq!(status, 0);
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_signal_handler_can_read_and_set_anchors_in_the_middle_of_one() {
    static LAST: AtomicU64 = AtomicU64::new(0);
    static HANDLED: AtomicU64 = AtomicU64::new(0);
    extern "C" fn handler(_: libc::c_int) {
        hptime::clock().discipline();
        LAST.store(hptime::clock().now_ns(), Ordering::SeqCst);
        HANDLED.fetch_add(1, Ordering::SeqCst);
    }
    let clock = hptime::clock();
    clock.settle();
    // SAFETY: the handler calls what is safe in handlers; the timer is taken off again.
    unsafe {
        libc::signal(libc::SIGALRM, handler as *const () as libc::sighandler_t);
        let every = libc::timeval { tv_sec: 0, tv_usec: 200 };
        let timer = libc::itimerval { it_interval: every, it_value: every };
        libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut());
    }
    let end = Instant::now() + Duration::from_secs(20);
    while HANDLED.load(Ordering::SeqCst) < 200 && Instant::now() < end {
        clock.discipline();
        let seen = LAST.load(Ordering::SeqCst);
        assert!(clock.now_ordered_ns() >= seen); // the signal may have gone to another test's thread
    }
    // SAFETY: takes the timer and the handler off.
    unsafe {
        let none: libc::itimerval = std::mem::zeroed();
        libc::setitimer(libc::ITIMER_REAL, &raw const none, std::ptr::null_mut());
        libc::signal(libc::SIGALRM, libc::SIG_IGN);
    }
    assert!(HANDLED.load(Ordering::SeqCst) >= 200);
}

#[test]
fn a_forbidden_counter_is_refused_in_place_of_a_crash() {
    // SAFETY: the child changes only itself, and leaves by _exit.
    unsafe {
        let child = libc::fork();
        assert!(child >= 0);
        if child == 0 {
            if libc::prctl(libc::PR_SET_TSC, libc::PR_TSC_SIGSEGV) != 0 {
                libc::_exit(0);
            }
            let clock = Clock::new();
            let (before, shown, after) = (OsClock::Realtime.now_ns(), clock.realtime_ns(), OsClock::Realtime.now_ns());
            let right = clock.fallback_reason() == Some(Fallback::Forbidden) && before <= shown && shown <= after;
            libc::_exit(i32::from(!right));
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        // The kernel's vDSO reads the counter as well: where it does, the process dies of the kernel's clock.
        assert!(status == 0 || libc::WTERMSIG(status) == libc::SIGSEGV, "{status:#x}");
    }
}

#[test]
fn the_sleep_ends_at_the_deadline_and_leaves_the_slack_as_it_was() {
    let clock = Clock::calibrated();
    let sleeper = Sleeper::new(&clock);
    // SAFETY: concerns the calling thread's slack only.
    let slack = || unsafe { libc::prctl(libc::PR_GET_TIMERSLACK, 0, 0, 0, 0) };
    let before = slack();
    for _ in 0..50 {
        let deadline = clock.now_ns() as i64 + 1_500_000;
        let wake = sleeper.sleep_until(deadline).unwrap();
        assert!(wake.lateness_ns >= 0 && clock.now_ns() as i64 >= deadline);
        assert!(matches!(wake.cause, Cause::Slept | Cause::LateWake | Cause::SpunOnly | Cause::Past), "{wake:?}");
    }
    assert_eq!(slack(), before);
}
