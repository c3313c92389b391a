/* A library whose constructor runs before the shim's: what a program needs comes before what is preloaded. */
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static struct timespec first;
static int slept;

__attribute__((constructor)) static void begin(void) {
    struct timespec pause = {0, 1000000};
    clock_gettime(CLOCK_MONOTONIC, &first);
    slept = nanosleep(&pause, NULL) == 0 && usleep(10) == 0;
}

void tell(void) { printf("read %d slept %d\n", first.tv_sec > 0, slept); }
