/* What clock reads and sleeps promise, one topic to a run; prints lines that must not depend on the shim. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define US 1000L
#define MS 1000000L
#define S 1000000000L

/* The kernel's clock, past any library. */
static long kernel_ns(int clock) {
    struct timespec time;
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(SYS_clock_gettime), "D"((long)clock), "S"(&time) : "rcx", "r11", "memory");
    return time.tv_sec * S + time.tv_nsec;
}

static long ns_of(struct timespec time) { return time.tv_sec * S + time.tv_nsec; }
static struct timespec spec(long ns) { return (struct timespec){ns / S, ns % S}; }

static volatile sig_atomic_t handled;
static void handler(int number) { (void)number; handled++; }

static void handle(int number, int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    sigaction(number, &action, NULL);
}

static void signal_after(long us) {
    struct itimerval timer = {.it_value = {us / 1000000, us % 1000000}};
    setitimer(ITIMER_REAL, &timer, NULL);
}

static void say(const char *what, long result, int error) { printf("%s: %ld %s\n", what, result, error ? strerrorname_np(error) : "-"); }

#define CALL(expression) (errno = 0, result = (expression), say(#expression, result, errno))

static void errors(void) {
    long result;
    struct timespec time, left = {7, 7}, ok = {0, 1000};
    struct timespec negative = {-1, 0}, below = {0, -1}, above = {0, 1000000000}, ancient = {1, 0};
    struct timeval day;
    void *low = (void *)8, *high = (void *)-8;
    CALL(clock_gettime(4242, &time));
    CALL(clock_gettime(-1, &time));
    CALL(nanosleep(&negative, NULL));
    CALL(nanosleep(&below, &left));
    CALL(nanosleep(&above, &left));
    CALL(nanosleep(NULL, NULL));
    int clocks[] = {CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_BOOTTIME, CLOCK_TAI, CLOCK_THREAD_CPUTIME_ID, CLOCK_MONOTONIC_RAW, 4242, -3};
    for (unsigned i = 0; i < sizeof clocks / sizeof *clocks; i++) {
        int clock = clocks[i];
        printf("clock %d\n", clock);
        CALL(clock_nanosleep(clock, 0, &negative, &left));
        CALL(clock_nanosleep(clock, 0, &below, NULL));
        CALL(clock_nanosleep(clock, 0, &above, NULL));
        CALL(clock_nanosleep(clock, TIMER_ABSTIME, &negative, NULL));
        CALL(clock_nanosleep(clock, TIMER_ABSTIME, &above, NULL));
        CALL(clock_nanosleep(clock, TIMER_ABSTIME, &ancient, NULL));
        CALL(clock_nanosleep(clock, 0, NULL, NULL));
        CALL(clock_nanosleep(clock, 0, &ok, &left));
        CALL(clock_gettime(clock, &time));
        CALL(syscall(SYS_clock_nanosleep, clock, 0, &above, NULL));
        CALL(syscall(SYS_clock_nanosleep, clock, TIMER_ABSTIME, &ancient, NULL));
        CALL(syscall(SYS_clock_nanosleep, clock, 0, low, NULL));
        CALL(syscall(SYS_clock_nanosleep, clock, 0, &ok, high));
        CALL(syscall(SYS_clock_gettime, clock, &time));
        CALL(syscall(SYS_clock_gettime, clock, NULL));
        CALL(syscall(SYS_clock_gettime, clock, low));
        CALL(syscall(SYS_clock_gettime, clock, high));
    }
    CALL(syscall(SYS_gettimeofday, high, NULL));
    CALL(syscall(SYS_gettimeofday, NULL, NULL));
    CALL(syscall(SYS_gettimeofday, &day, NULL));
    CALL(syscall(SYS_time, high));
    CALL(syscall(SYS_nanosleep, &below, NULL));
    CALL(syscall(SYS_nanosleep, NULL, NULL));
    CALL(syscall(SYS_nanosleep, &ok, NULL));
    CALL(syscall(-7L));
    CALL(syscall(SYS_close, -1));
    printf("remaining untouched: %ld %ld\n", left.tv_sec, left.tv_nsec);

    errno = ESRCH; /* success leaves it alone */
    clock_gettime(CLOCK_MONOTONIC, &time), gettimeofday(&day, NULL), nanosleep(&ok, &left), usleep(1), sleep(0);
    syscall(SYS_clock_gettime, CLOCK_REALTIME, &time);
    say("errno after success", 0, errno);

    handle(SIGALRM, 0);
    struct timespec endless = {INT64_MAX, 999999999}, centuries = {1L << 33, 0};
    signal_after(30000), CALL(nanosleep(&endless, &left));
    signal_after(30000), CALL(nanosleep(&centuries, &left));
    signal_after(30000), CALL(clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &endless, NULL));
    signal_after(30000), CALL(usleep(UINT_MAX));
    signal_after(30000), CALL(sleep(UINT_MAX) >= UINT_MAX - 1);
}

/* One way to sleep for `ns`; what remains, if it says so, else -1. */
typedef int (*sleeper)(long ns, long *left);

static int by_nanosleep(long ns, long *left) {
    struct timespec request = spec(ns), remaining = {-1, 0};
    int result = nanosleep(&request, &remaining);
    *left = result ? ns_of(remaining) : 0;
    return result ? errno : 0;
}
static int by_clock_nanosleep(long ns, long *left) {
    struct timespec request = spec(ns), remaining = {-1, 0};
    int result = clock_nanosleep(CLOCK_MONOTONIC, 0, &request, &remaining);
    *left = result ? ns_of(remaining) : 0;
    return result;
}
static int by_realtime(long ns, long *left) {
    struct timespec request = spec(ns), remaining = {-1, 0};
    int result = clock_nanosleep(CLOCK_REALTIME, 0, &request, &remaining);
    *left = result ? ns_of(remaining) : 0;
    return result;
}
static int by_deadline(long ns, long *left) {
    struct timespec now, untouched = {7, 7};
    clock_gettime(CLOCK_MONOTONIC, &now);
    struct timespec request = spec(ns_of(now) + ns);
    int result = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &request, &untouched);
    *left = untouched.tv_sec == 7 && untouched.tv_nsec == 7 ? -1 : -2;
    return result;
}
static int by_date(long ns, long *left) {
    struct timespec now, untouched = {7, 7};
    clock_gettime(CLOCK_REALTIME, &now);
    struct timespec request = spec(ns_of(now) + ns);
    int result = clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &request, &untouched);
    *left = untouched.tv_sec == 7 && untouched.tv_nsec == 7 ? -1 : -2;
    return result;
}
static int by_usleep(long ns, long *left) {
    *left = -1;
    return usleep(ns / US) ? errno : 0;
}
static int by_syscall(long ns, long *left) {
    struct timespec request = spec(ns), remaining = {-1, 0};
    int result = (int)syscall(SYS_nanosleep, &request, &remaining);
    *left = result ? ns_of(remaining) : 0;
    return result ? errno : 0;
}
static int by_clock_syscall(long ns, long *left) {
    struct timespec request = spec(ns), remaining = {-1, 0};
    int result = (int)syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &request, &remaining);
    *left = result ? ns_of(remaining) : 0;
    return result ? errno : 0;
}

static const struct { const char *name; sleeper sleep; } sleepers[] = {
    {"nanosleep", by_nanosleep}, {"clock_nanosleep", by_clock_nanosleep}, {"realtime", by_realtime},
    {"deadline", by_deadline}, {"date", by_date}, {"usleep", by_usleep},
    {"syscall", by_syscall}, {"clock syscall", by_clock_syscall},
};
#define SLEEPERS (sizeof sleepers / sizeof *sleepers)

/* Timer slack, and what lies between two readings. */
#define TOLERANCE (200 * US)

/* Sleeps `ns`, with a signal at `at_us`; prints what has to hold. On a busy machine the signal may come when the time is
   already up, or the sleep begin late: then it is tried again. */
static void interrupted(unsigned which, const char *how, long ns, long at_us) {
    long left, elapsed;
    int error, expected = strstr(how, "handler") ? EINTR : 0, tries = 0;
    do {
        handled = 0;
        long begin = kernel_ns(CLOCK_MONOTONIC);
        if (at_us) signal_after(at_us);
        error = sleepers[which].sleep(ns, &left);
        elapsed = kernel_ns(CLOCK_MONOTONIC) - begin;
        signal_after(0);
    } while ((error != expected || (error && elapsed >= ns)) && ++tries < 10);
    printf("%s, %s: %s handled %d", sleepers[which].name, how, error ? strerrorname_np(error) : "-", (int)handled);
    if (error == EINTR) {
        printf(" %s", elapsed < ns && elapsed >= at_us * US - TOLERANCE ? "early" : "late");
        if (left >= 0) printf(" remaining %s", left > 0 && left <= ns - at_us * US + TOLERANCE && elapsed + left >= ns - TOLERANCE ? "right" : "wrong");
        else printf(" remaining %s", left == -1 ? "untouched" : "touched");
    } else {
        printf(" %s", elapsed >= ns - 20 * US ? "full" : "short");
    }
    printf("\n");
}

/* `argument`: how long to sleep, us. With a rule that spins for 1/HZ, 3 ms are all spin. */
static void signals(long us) {
    for (unsigned which = 0; which < SLEEPERS; which++) {
        handle(SIGALRM, 0);
        interrupted(which, "handler", us * US, us / 3);
        handle(SIGALRM, SA_RESTART);
        interrupted(which, "handler with SA_RESTART", us * US, us / 3);
        interrupted(which, "no signal", us * US, 0);
        signal(SIGALRM, SIG_IGN);
        interrupted(which, "ignored", us * US, us / 3);
        sigset_t alarm, before;
        sigemptyset(&alarm), sigaddset(&alarm, SIGALRM);
        handle(SIGALRM, 0);
        sigprocmask(SIG_BLOCK, &alarm, &before);
        interrupted(which, "blocked", us * US, us / 3);
        sigset_t pending;
        sigpending(&pending);
        printf("still pending %d\n", sigismember(&pending, SIGALRM));
        sigprocmask(SIG_SETMASK, &before, NULL);
        sigset_t after;
        sigprocmask(SIG_BLOCK, NULL, &after);
        printf("mask restored %d, handled %d\n", memcmp(&before, &after, 8) == 0, (int)handled);
        if (fork() == 0) usleep(us / 3), _exit(0); /* SIGCHLD, which is discarded by default */
        interrupted(which, "child ended", us * US, 0);
        wait(NULL);
    }
    handle(SIGALRM, 0);
    signal_after(300000);
    unsigned left = sleep(2);
    printf("sleep: %u remaining\n", left);
}

static void *cancelled(void *argument);
static int cleaned;
static void cleanup(void *argument) { (void)argument; cleaned++; }

static void *cancelled(void *argument) {
    unsigned which = (unsigned)(uintptr_t)argument;
    long left;
    pthread_cleanup_push(cleanup, NULL);
    if (which < 100) sleepers[which].sleep(20 * S, &left);
    else if (which == 100) sleep(20);
    else for (;;) sleepers[which - 200].sleep(900 * US, &left);
    pthread_cleanup_pop(0);
    return NULL;
}

static void cancellation(void) {
    unsigned ways[] = {0, 1, 2, 3, 4, 5, 100, 200, 201, 205};
    for (unsigned i = 0; i < sizeof ways / sizeof *ways; i++) {
        pthread_t thread;
        void *result;
        cleaned = 0;
        long begin = kernel_ns(CLOCK_MONOTONIC);
        pthread_create(&thread, NULL, cancelled, (void *)(uintptr_t)ways[i]);
        usleep(20000);
        pthread_cancel(thread);
        pthread_join(thread, &result);
        printf("way %u: cancelled %d cleaned %d at once %d\n", ways[i], result == PTHREAD_CANCELED, cleaned, kernel_ns(CLOCK_MONOTONIC) - begin < 10 * S);
    }
}

static struct timespec last_in_handler;
static volatile long went_back, in_handler;
static void busy_handler(int number) {
    (void)number;
    int before = errno;
    struct timespec now, pause = {0, 20000};
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (ns_of(now) < ns_of(last_in_handler)) went_back++;
    last_in_handler = now;
    nanosleep(&pause, NULL);
    in_handler++;
    errno = before;
}

/* A timer's handler that reads and sleeps, in a program that reads and sleeps. */
static void handlers(void) {
    struct sigaction action = {.sa_handler = busy_handler};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval timer = {{0, 500}, {0, 500}};
    setitimer(ITIMER_REAL, &timer, NULL);
    long last = 0, ends = kernel_ns(CLOCK_MONOTONIC) + 1 * S;
    struct timespec now, pause = {0, 100000};
    do {
        for (int i = 0; i < 100; i++) {
            clock_gettime(CLOCK_MONOTONIC, &now);
            if (ns_of(now) < last) went_back++;
            last = ns_of(now);
        }
        nanosleep(&pause, NULL);
    } while (kernel_ns(CLOCK_MONOTONIC) < ends);
    signal_after(0);
    printf("went back %ld, handlers ran %d\n", went_back, in_handler > 100);
}

static void child_reads(const char *who) {
    long before = kernel_ns(CLOCK_MONOTONIC);
    struct timespec now, pause = {0, 2 * MS};
    clock_gettime(CLOCK_MONOTONIC, &now);
    long after = kernel_ns(CLOCK_MONOTONIC);
    int sleeps = nanosleep(&pause, NULL) == 0 && kernel_ns(CLOCK_MONOTONIC) >= after + 2 * MS - 20 * US;
    printf("%s reads %d sleeps %d\n", who, ns_of(now) > before - 20 * US && ns_of(now) < after + 20 * US, sleeps);
    fflush(stdout);
}

static void *reads_until(void *stop) {
    struct timespec now;
    while (!*(volatile int *)stop) clock_gettime(CLOCK_MONOTONIC, &now);
    return NULL;
}

static void forks(void) {
    int stop = 0;
    pthread_t thread;
    pthread_create(&thread, NULL, reads_until, &stop);
    fflush(stdout);
    for (int i = 0; i < 50; i++) {
        pid_t child = fork();
        if (child == 0) {
            child_reads("child");
            if (fork() == 0) child_reads("grandchild"), _exit(0);
            wait(NULL);
            exit(3);
        }
        int status;
        waitpid(child, &status, 0);
        if (WEXITSTATUS(status) != 3) printf("child ended with %d\n", status);
    }
    pid_t child = vfork();
    if (child == 0) _exit(5);
    int status;
    waitpid(child, &status, 0);
    printf("vfork %d\n", WEXITSTATUS(status));
    child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (child == 0) child_reads("clone"), _exit(6);
    waitpid(child, &status, 0);
    printf("clone %d\n", WEXITSTATUS(status));
    stop = 1;
    pthread_join(thread, NULL);
    child_reads("parent");
}

/* Exactly so many calls of each, in two threads. */
static void *counted(void *unused) {
    (void)unused;
    struct timespec now, pause = {0, 50000};
    struct timeval day;
    for (int i = 0; i < 1001; i++) clock_gettime(i % 2 ? CLOCK_MONOTONIC : CLOCK_REALTIME, &now);
    for (int i = 0; i < 102; i++) gettimeofday(&day, NULL);
    for (int i = 0; i < 103; i++) time(NULL);
    for (int i = 0; i < 4; i++) nanosleep(&pause, NULL);
    for (int i = 0; i < 5; i++) clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
    for (int i = 0; i < 6; i++) usleep(50);
    sleep(1);
    for (int i = 0; i < 107; i++) syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    for (int i = 0; i < 108; i++) syscall(SYS_gettimeofday, &day, NULL);
    for (int i = 0; i < 109; i++) syscall(SYS_time, NULL);
    for (int i = 0; i < 10; i++) syscall(SYS_nanosleep, &pause, NULL);
    for (int i = 0; i < 11; i++) syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &pause, NULL);
    /* and these are not the shim's */
    int others[] = {CLOCK_PROCESS_CPUTIME_ID, CLOCK_THREAD_CPUTIME_ID, CLOCK_TAI, CLOCK_BOOTTIME, CLOCK_MONOTONIC_COARSE, CLOCK_REALTIME_COARSE, CLOCK_MONOTONIC_RAW};
    for (unsigned i = 0; i < sizeof others / sizeof *others; i++) clock_gettime(others[i], &now);
    usleep(0);
    return NULL;
}

static void counts(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, counted, NULL);
    counted(NULL);
    pthread_join(thread, NULL);
    if (fork() == 0) time(NULL), _exit(0); /* counted apart */
    wait(NULL);
}

/* Largest distance, ns, by which a reading lies outside the kernel's readings before and after it. */
static void agreement(long seconds) {
    int clocks[] = {CLOCK_MONOTONIC, CLOCK_REALTIME};
    long worst[2] = {0, 0}, back = 0, last = 0;
    long ends = kernel_ns(CLOCK_MONOTONIC) + seconds * S;
    for (unsigned round = 0; kernel_ns(CLOCK_MONOTONIC) < ends; round++) {
        for (int i = 0; i < 2; i++) {
            struct timespec now;
            long before = kernel_ns(clocks[i]);
            clock_gettime(clocks[i], &now);
            long after = kernel_ns(clocks[i]);
            long out = before - ns_of(now) > ns_of(now) - after ? before - ns_of(now) : ns_of(now) - after;
            if (out > worst[i]) worst[i] = out;
            if (i == 0 && ns_of(now) < last) back++;
            if (i == 0) last = ns_of(now);
        }
        if (round % 1000 == 0) usleep(round % 7000);
    }
    printf("monotonic %ld realtime %ld back %ld\n", worst[0], worst[1], back);
    struct timeval day;
    gettimeofday(&day, NULL);
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    time_t second = time(NULL);
    printf("in step %d\n", labs(precise.tv_sec - day.tv_sec) <= 1 && labs(second - precise.tv_sec) <= 1);
}

/* Six arguments through syscall(), as mmap has. */
static void six(void) {
    FILE *file = tmpfile();
    ftruncate(fileno(file), 3 * 4096);
    fseek(file, 2 * 4096, SEEK_SET), fputc('x', file), fflush(file);
    char *page = (char *)syscall(SYS_mmap, NULL, 4096L, PROT_READ, MAP_PRIVATE, fileno(file), 2L * 4096);
    printf("%c\n", *page);
}

static void verdict_on_slack(void) {
    prctl(PR_SET_TIMERSLACK, 77000);
    usleep(3000);
    printf("slack %d\n", prctl(PR_GET_TIMERSLACK));
}

int main(int count, char **words) {
    const char *topic = count > 1 ? words[1] : "";
    long argument = count > 2 ? atol(words[2]) : 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!strcmp(topic, "errors")) errors();
    else if (!strcmp(topic, "signals")) signals(argument);
    else if (!strcmp(topic, "cancellation")) cancellation();
    else if (!strcmp(topic, "handlers")) handlers();
    else if (!strcmp(topic, "forks")) forks();
    else if (!strcmp(topic, "counts")) counts();
    else if (!strcmp(topic, "agreement")) agreement(argument);
    else if (!strcmp(topic, "six")) six();
    else if (!strcmp(topic, "slack")) verdict_on_slack();
    else if (!strcmp(topic, "killed")) { struct timespec now; clock_gettime(CLOCK_MONOTONIC, &now); raise(SIGTERM); }
    else if (!strcmp(topic, "nothing")) return 0;
    else return 64;
    return 0;
}
