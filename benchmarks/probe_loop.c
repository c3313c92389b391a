/* A probe loop: so many readings or sleeps of one kind, and the nanoseconds of each. usage: probe_loop KIND COUNT */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* Past any library: the loop is timed by the same clock with and without the shim. */
static long kernel_ns(void) {
    struct timespec time;
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"((long)SYS_clock_gettime), "D"(1L), "S"(&time) : "rcx", "r11", "memory");
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

int main(int words, char **word) {
    if (words != 3) return 64;
    long count = atol(word[2]);
    struct timespec now, pause = {0, 50000};
    struct timeval day;
    usleep(30000); /* past the calibration */
    clock_gettime(CLOCK_MONOTONIC, &now);
    long begin = kernel_ns();
#define LOOP(name, call) else if (!strcmp(word[1], name)) for (long i = 0; i < count; i++) call
    if (0) {}
    LOOP("monotonic", clock_gettime(CLOCK_MONOTONIC, &now));
    LOOP("realtime", clock_gettime(CLOCK_REALTIME, &now));
    LOOP("gettimeofday", gettimeofday(&day, NULL));
    LOOP("time", time(NULL));
    LOOP("syscall", syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now));
    LOOP("other", clock_gettime(CLOCK_MONOTONIC_COARSE, &now));
    LOOP("sleep", nanosleep(&pause, NULL));
    else return 64;
    printf("%.3f\n", (double)(kernel_ns() - begin) / (double)count);
    return 0;
}
