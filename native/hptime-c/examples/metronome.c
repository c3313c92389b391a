/* Ticks on time: sleeps until one deadline after another and says how late each wake was.
 *
 *     cc metronome.c $(pkg-config --cflags --libs hptime) -o metronome && ./metronome 10 1000000
 */
#include <errno.h>
#include <hptime.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    long beats = argc > 1 ? strtol(argv[1], NULL, 10) : 10;
    int64_t period_ns = argc > 2 ? strtoll(argv[2], NULL, 10) : 1000000;

    uint32_t fallback_reason = hptime_settle();
    if (fallback_reason != HPTIME_NOT_REFUSED)
        printf("clock: the kernel's, because %s\n", hptime_fallback_reason_text(fallback_reason));
    else {
        struct hptime_status status;
        hptime_get_status(&status);
        printf("clock: %.0f Hz, within %.3f ppm\n", status.frequency_hz, status.difference_error_ppm);
    }

    uint64_t began = hptime_read();
    int64_t deadline = (int64_t)hptime_now_ns();
    for (long beat = 1; beat <= beats; beat++) {
        struct hptime_wake wake;
        deadline += period_ns;
        int error = hptime_sleep_until(deadline, HPTIME_ADAPTIVE, &wake);
        if (error != 0) {
            fprintf(stderr, "metronome: %s\n", strerror(error));
            return 1;
        }
        printf("beat %ld: late by %" PRId64 " ns, awake for %" PRIu64 " ns\n", beat, wake.lateness_ns, wake.spin_ns);
    }
    printf("took %" PRIu64 " ns\n", hptime_nanoseconds(began, hptime_read()));
    return 0;
}
