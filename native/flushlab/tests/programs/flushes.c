/* Makes a known number of flushes, and says what each call returned.  The first word says which. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SAY(call)                                                                  \
    do {                                                                           \
        errno = 0;                                                                 \
        long result = (long)(call);                                                \
        printf("%s: %ld %s\n", #call, result, result < 0 ? strerrorname_np(errno) : "-"); \
    } while (0)

static int file, synced, dsynced;
static char *memory;
static char text[512] = "flushed";
static struct iovec parts[2] = {{text, 256}, {text + 256, 256}};

static void open_all(const char *folder)
{
    if (chdir(folder) != 0)
        abort();
    file = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600);
    synced = open("synced", O_RDWR | O_CREAT | O_SYNC, 0600);
    dsynced = openat(AT_FDCWD, "dsynced", O_RDWR | O_CREAT | O_DSYNC | O_APPEND, 0600);
    if (ftruncate(file, 16384) != 0)
        abort();
    memory = mmap(NULL, 16384, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
}

/* fsync 4, fdatasync 3, msync 3, other 7 */
static void calls(void)
{
    SAY(fsync(file));
    SAY(fsync(open(".", O_RDONLY)));
    SAY(syscall(SYS_fsync, file));
    SAY(syscall(SYS_fsync, dup(file)));
    SAY(fdatasync(file));
    SAY(fdatasync(synced));
    SAY(syscall(SYS_fdatasync, file));
    SAY(msync(memory, 16384, MS_SYNC));
    SAY(msync(memory, 4096, MS_SYNC | MS_INVALIDATE));
    SAY(syscall(SYS_msync, memory, 16384, MS_SYNC));
    SAY(msync(memory, 16384, MS_ASYNC));
    SAY(sync_file_range(file, 0, 0, SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER));
    SAY(sync_file_range(file, 0, 0, SYNC_FILE_RANGE_WRITE));
    SAY(syscall(SYS_sync_file_range, file, 0, 4096, SYNC_FILE_RANGE_WAIT_AFTER));
    SAY(syncfs(file));
    SAY(syscall(SYS_syncfs, file));
    SAY((sync(), 0));
    SAY(syscall(SYS_sync));
    int ends[2];
    if (pipe(ends) != 0)
        abort();
    SAY(syncfs(ends[0]));
}

/* sync_writes 12, of which 4 by their own flag */
static void writes(void)
{
    SAY(write(file, text, 512));
    SAY(write(synced, text, 512));
    SAY(write(dsynced, text, 512));
    SAY(write(dup(dsynced), text, 512));
    SAY(pwrite(synced, text, 512, 512));
    SAY(pwrite64(synced, text, 512, 512));
    SAY(writev(synced, parts, 2));
    SAY(pwritev(synced, parts, 2, 0));
    SAY(pwritev64(synced, parts, 2, 0));
    SAY(pwritev2(file, parts, 2, 0, 0));
    SAY(pwritev2(file, parts, 2, 0, RWF_DSYNC));
    SAY(pwritev2(file, parts, 2, -1, RWF_SYNC));
    SAY(pwritev64v2(file, parts, 2, 0, RWF_DSYNC));
    SAY(syscall(SYS_pwritev2, file, parts, 2, 4096L, 0L, RWF_DSYNC));
    SAY(write(synced, text, 0));
    SAY(lseek(synced, 0, SEEK_END));
    SAY(lseek(dsynced, 0, SEEK_END));
    SAY(lseek(file, 0, SEEK_END));
    int closed = dup(file);
    close(dsynced);
    SAY(dup2(closed, dsynced) == dsynced);
    SAY(write(dsynced, text, 512));
}

/* failures only: 17 */
static void errors(void)
{
    int ends[2], pair[2], path = open("file", O_PATH);
    if (pipe(ends) != 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0)
        abort();
    SAY(fsync(-1));
    SAY(fsync(999));
    SAY(fsync(path));
    SAY(fsync(ends[0]));
    SAY(fdatasync(ends[1]));
    SAY(fdatasync(pair[0]));
    SAY(syscall(SYS_fdatasync, 999));
    SAY(syscall(SYS_fsync, pair[1]));
    SAY(msync(memory + 1, 4096, MS_SYNC));
    SAY(msync((void *)4096, 4096, MS_SYNC));
    SAY(msync(memory, 4096, MS_SYNC | MS_ASYNC));
    SAY(msync(memory, 4096, MS_SYNC | 0x4000));
    SAY(syncfs(-1));
    SAY(syncfs(path));
    SAY(sync_file_range(ends[0], 0, 0, SYNC_FILE_RANGE_WAIT_AFTER));
    SAY(sync_file_range(file, -1, 0, SYNC_FILE_RANGE_WAIT_AFTER));
    SAY(sync_file_range(file, 0, 0, SYNC_FILE_RANGE_WAIT_AFTER | 64));
    errno = 4711;
    fsync(file);
    printf("errno kept: %d\n", errno == 4711);
}

static void *flush_often(void *times)
{
    for (int i = 0; i < *(int *)times; i++)
        fdatasync(file);
    return NULL;
}

/* fdatasync: 4 processes of 4 threads, 5 each */
static void crowd(void)
{
    int times = 5;
    for (int child = 0; child < 4; child++) {
        if (fork() != 0)
            continue;
        pthread_t threads[4];
        for (int i = 0; i < 4; i++)
            pthread_create(&threads[i], NULL, flush_often, &times);
        for (int i = 0; i < 4; i++)
            pthread_join(threads[i], NULL);
        _exit(0);
    }
    while (wait(NULL) > 0)
        ;
}

static int cleaned;
static void clean(void *nothing) { cleaned = 1; }

static void *flush_for_ever(void *nothing)
{
    pthread_cleanup_push(clean, NULL);
    for (;;)
        fdatasync(file);
    pthread_cleanup_pop(0);
    return NULL;
}

static void cancellation(void)
{
    pthread_t thread;
    void *result;
    pthread_create(&thread, NULL, flush_for_ever, NULL);
    usleep(50000);
    pthread_cancel(thread);
    pthread_join(thread, &result);
    printf("cancelled %d cleaned %d\n", result == PTHREAD_CANCELED, cleaned);
}

static volatile int handled;
static void handle(int number) { handled++; fsync(file); }

/* A flush in the midst of which a handler flushes is over no sooner than its disk says: fdatasync 10. */
static void signals(void)
{
    struct sigaction action = {.sa_handler = handle};
    struct timespec begin, end;
    pid_t self = getpid();
    sigaction(SIGUSR1, &action, NULL);
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 20; i++) {
            usleep(10000);
            kill(self, SIGUSR1);
        }
        _exit(0);
    }
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 0; i < 10; i++)
        if (fdatasync(file) != 0)
            printf("failed %s\n", strerrorname_np(errno));
    clock_gettime(CLOCK_MONOTONIC, &end);
    while (waitpid(child, NULL, 0) < 0)
        ;
    long us = (end.tv_sec - begin.tv_sec) * 1000000 + (end.tv_nsec - begin.tv_nsec) / 1000;
    printf("handled %d\nus %ld\n", handled > 0, us);
}

/* So many flushes one after another, and how long they took. */
static void row(int times)
{
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    flush_often(&times);
    clock_gettime(CLOCK_MONOTONIC, &end);
    printf("us %ld\n", (end.tv_sec - begin.tv_sec) * 1000000 + (end.tv_nsec - begin.tv_nsec) / 1000);
}

int main(int count, char **words)
{
    const char *what = words[1];
    open_all(words[2]);
    if (!strcmp(what, "calls"))
        calls();
    else if (!strcmp(what, "writes"))
        writes();
    else if (!strcmp(what, "errors"))
        errors();
    else if (!strcmp(what, "crowd"))
        crowd();
    else if (!strcmp(what, "cancellation"))
        cancellation();
    else if (!strcmp(what, "signals"))
        signals();
    else if (!strcmp(what, "row"))
        row(atoi(words[3]));
    else if (!strcmp(what, "kill"))
        kill(getpid(), SIGKILL);
    else if (!strcmp(what, "children"))
        printf("children %d\n", (int)waitpid(-1, NULL, 0));
    return count > 4 ? atoi(words[4]) : 0;
}
