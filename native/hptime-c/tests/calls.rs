//! The functions as C calls them.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::ptr::null_mut;

use hptime_c::{
    HptimeStatus, HptimeWake, hptime_discipline, hptime_fallback_reason, hptime_fallback_reason_text,
    hptime_get_status, hptime_nanoseconds, hptime_now_ns, hptime_read, hptime_settle, hptime_sleep_for,
    hptime_sleep_until,
};

const HIGHPERTIMER_1000: u32 = 2 | 1000 << 4;

#[test]
fn invalid_arguments_are_error_numbers_and_leave_the_result_alone() {
    let mut wake = HptimeWake { lateness_ns: 1, spin_ns: 2, guard_ns: 3, cause: 4, reserved: 5 };
    // SAFETY: `wake` has room, and null is allowed.
    unsafe {
        assert_eq!(hptime_sleep_until(-1, 0, &raw mut wake), libc::EINVAL);
        assert_eq!(hptime_sleep_for(i64::MIN, 0, null_mut()), libc::EINVAL);
        assert_eq!(hptime_sleep_for(i64::MAX, 0, &raw mut wake), libc::EOVERFLOW);
        for how in [3, 15, 1 << 17, 1 << 4, 1 | 1 << 4, u32::MAX] {
            assert_eq!(hptime_sleep_for(1, how, &raw mut wake), libc::EINVAL, "{how:#x}");
        }
        hptime_get_status(null_mut());
    }
    assert_eq!((wake.lateness_ns, wake.spin_ns, wake.guard_ns, wake.cause, wake.reserved), (1, 2, 3, 4, 5));
}

#[test]
fn every_rule_sleeps_until_the_deadline() {
    for how in [0, 1, 2, HIGHPERTIMER_1000, 1 << 16] {
        let deadline = hptime_now_ns() as i64 + 3_000_000;
        let mut wake = MaybeUninit::<HptimeWake>::uninit();
        // SAFETY: `wake` has room and is filled in on success.
        let wake = unsafe {
            assert_eq!(hptime_sleep_until(deadline, how, wake.as_mut_ptr()), 0);
            wake.assume_init()
        };
        assert!(wake.lateness_ns > -1_000, "{how}: {wake:?}");
        assert!(hptime_now_ns() as i64 >= deadline - 1_000);
        assert_eq!(wake.reserved, 0);
    }
}

#[test]
fn the_status_and_the_refusal_agree() {
    let fallback_reason = hptime_settle();
    hptime_discipline();
    let mut status = MaybeUninit::<HptimeStatus>::uninit();
    // SAFETY: `status` has room and is filled in.
    let status = unsafe {
        hptime_get_status(status.as_mut_ptr());
        status.assume_init()
    };
    assert_eq!(status.fallback_reason, fallback_reason);
    assert_eq!(hptime_fallback_reason(), fallback_reason);
    assert_eq!(status.running == 1, fallback_reason == 0);
    assert_eq!(status.frequency_hz > 0.0, fallback_reason == 0);
}

#[test]
fn every_refusal_has_its_words() {
    // SAFETY: constant strings.
    let text = |number| unsafe { CStr::from_ptr(hptime_fallback_reason_text(number)) }.to_str().unwrap();
    assert_eq!(text(0), "not refused");
    assert_eq!(text(99), "not refused");
    for reason in hptime::Fallback::ALL {
        assert_eq!(text(reason as u32), reason.text());
    }
}

#[test]
fn durations_are_the_difference_clocks() {
    let began = hptime_read();
    std::thread::sleep(std::time::Duration::from_millis(5));
    let ended = hptime_read();
    assert!((5_000_000..5_000_000_000).contains(&hptime_nanoseconds(began, ended)));
    assert_eq!(hptime_nanoseconds(ended, began), 0);
}
