/* hptime: a calibrated, disciplined clock on the processor's time stamp counter, and a sleep that ends on time.
 *
 * Link with `pkg-config --cflags --libs hptime` (with --static for the archive).  All functions can be called from any
 * thread, in signal handlers, and on both sides of fork(); none allocates memory, takes a lock or changes errno.
 *
 * Licensed under the Apache License, Version 2.0.
 */
#ifndef HPTIME_H
#define HPTIME_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* -- absolute clocks, in nanoseconds ---------------------------------------------------------------------------- */

/* CLOCK_MONOTONIC.  Never goes back in a thread.  The first call checks the counter; for the next 20 ms the kernel's
 * clock answers, then the counter does.  About once a second a call takes a new anchor of the kernel's clocks. */
uint64_t hptime_now_ns(void);

/* The same, never going back between threads either, as the kernel's clock; it costs a fence. */
uint64_t hptime_now_ordered_ns(void);

/* CLOCK_MONOTONIC_RAW.  Never goes back in a thread. */
uint64_t hptime_raw_ns(void);

/* CLOCK_REALTIME.  A step of that clock is seen up to a second later. */
uint64_t hptime_realtime_ns(void);

/* -- difference clock, for durations ---------------------------------------------------------------------------- */

/* A reading: ticks of the counter, or nanoseconds of CLOCK_MONOTONIC_RAW where the counter is refused.  The first call
 * waits for the calibration, 20 ms at most. */
uint64_t hptime_read(void);

/* Nanoseconds from one reading to a later one; 0 when it is not later.  The scale is the rate alone: no step and no slew
 * distorts it. */
uint64_t hptime_nanoseconds(uint64_t from, uint64_t to);

/* -- what the clock knows of itself ----------------------------------------------------------------------------- */

/* Why the kernel's clock answers in place of the counter. */
enum hptime_fallback_reason {
    HPTIME_NOT_REFUSED = 0,
    HPTIME_NO_COUNTER = 1,
    HPTIME_FORBIDDEN = 2,        /* prctl(PR_SET_TSC, PR_TSC_SIGSEGV) */
    HPTIME_NOT_INVARIANT = 3,
    HPTIME_NOT_SYNCHRONIZED = 4, /* between processors */
    HPTIME_TRAPPED = 5,          /* a read takes over 150 ns */
    HPTIME_WENT_BACK = 6,
    HPTIME_DRIFTED = 7
};

struct hptime_status {
    uint32_t running;            /* 1: readings come from the counter */
    uint32_t fallback_reason;            /* enum hptime_fallback_reason */
    double frequency_hz;         /* of the counter, against CLOCK_MONOTONIC_RAW; 0 while not known */
    double difference_error_ppm; /* bound of the difference clock's relative error */
    double absolute_error_ns;    /* bound of the absolute clock's error now, against CLOCK_MONOTONIC */
    double absolute_error_ppm;   /* its growth until the next anchor */
    double alarm_ppm;            /* change of rate at the latest drift alarm; infinite when a clock went back */
    uint64_t alarms;             /* drift alarms of the latest series; 0: none */
    uint64_t quiet;              /* anchors without an alarm since */
    uint64_t measurements;       /* anchors taken */
};

/* Waits until the rate is known, 20 ms at most, or the counter is refused.  Returns an enum hptime_fallback_reason. */
uint32_t hptime_settle(void);

/* Takes a new anchor of the kernel's clocks now. */
void hptime_discipline(void);

/* An enum hptime_fallback_reason; HPTIME_NOT_REFUSED also while the clock has not been read for 20 ms. */
uint32_t hptime_fallback_reason(void);

/* A reason to fall back, in words; a constant string. */
const char *hptime_fallback_reason_text(uint32_t fallback_reason);

/* Fills in *status. */
void hptime_get_status(struct hptime_status *status);

/* -- sleep ------------------------------------------------------------------------------------------------------ */

/* How to sleep: one rule, and HPTIME_RETURN_ON_SIGNAL or nothing. */
#define HPTIME_ADAPTIVE 0u           /* in the kernel until a learnt guard before the deadline, then awake */
#define HPTIME_OS 1u                 /* in the kernel until the deadline, timer slack 1 ns */
#define HPTIME_HIGHPERTIMER 2u       /* in the kernel until 1/HZ before the deadline, then awake; HZ = 250 */
#define HPTIME_HIGHPERTIMER_HZ(hz) (2u | (((hz) & 0xfffu) << 4)) /* the same with the kernel's own HZ, up to 1000 */
#define HPTIME_RETURN_ON_SIGNAL 0x10000u /* a handler that ran during the kernel's part ends the sleep: EINTR */

enum hptime_cause {
    HPTIME_SLEPT = 0,      /* woken in time, and met the deadline awake */
    HPTIME_SPUN_ONLY = 1,  /* the deadline was nearer than the guard */
    HPTIME_LATE_WAKE = 2,  /* the kernel woke the thread after the deadline; always with HPTIME_OS */
    HPTIME_PAST = 3,       /* the deadline had passed before */
    HPTIME_INTERRUPTED = 4
};

struct hptime_wake {
    int64_t lateness_ns; /* the clock at the return less the deadline; negative: so much remained */
    uint64_t spin_ns;    /* time awake before the deadline */
    uint64_t guard_ns;   /* the guard that was in force */
    uint32_t cause;      /* enum hptime_cause */
    uint32_t reserved;   /* 0 */
};

/* Sleeps until hptime_now_ns() shows deadline_ns.  Fills in *wake unless it is null.  Returns 0, or an error number:
 * EINVAL for a negative time or an unknown `how`, EOVERFLOW for an end beyond the clock's range, EINTR. */
int hptime_sleep_until(int64_t deadline_ns, uint32_t how, struct hptime_wake *wake);

/* The same for a number of nanoseconds from now. */
int hptime_sleep_for(int64_t duration_ns, uint32_t how, struct hptime_wake *wake);

#ifdef __cplusplus
}
#endif

#endif
