/*
 * Preloaded into a server, or needed by a copy of it: makes each answer to a client later, by
 *   PLIMSOLL_SLOW_CPU_US    so many microseconds of cpu,
 *   PLIMSOLL_SLOW_SLEEP_US  so many microseconds asleep,
 *   PLIMSOLL_SLOW_LOCK_US   so many microseconds of cpu under a lock that all sessions of the server share,
 *   PLIMSOLL_SLOW_FSYNC_EVERY    a write with fsync at each so-many-th answer of a session, to a file of its own in the
 *                                working directory (the data directory); 0 is never.
 * An answer is the first that is sent on an accepted socket after something was read from it, however many calls send it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#ifndef CPU_US
#define CPU_US 0
#endif
#ifndef SLEEP_US
#define SLEEP_US 0
#endif
#ifndef LOCK_US
#define LOCK_US 0
#endif
#ifndef FSYNC_EVERY
#define FSYNC_EVERY 0
#endif

static long cpu_us = CPU_US, sleep_us = SLEEP_US, lock_us = LOCK_US, fsync_every = FSYNC_EVERY;

/* What is known of a descriptor. PostgreSQL's sessions are processes that inherit it. */
enum { NOT_A_CLIENT, CLIENT, ASKED };
enum { DESCRIPTORS = 1 << 16 };
static unsigned char state[DESCRIPTORS];

/* Shared with the processes that this one forks. */
static pthread_mutex_t *lock;

static void setting(const char *name, long *value) {
    const char *text = getenv(name);
    if (!text) return;
    char *end;
    errno = 0;
    *value = strtol(text, &end, 10);
    if (errno || end == text || *end || *value < 0 || *value > 10000000) {
        fprintf(stderr, "%s=%s is not a number from 0 to 10000000\n", name, text);
        _exit(1);
    }
}

__attribute__((constructor)) static void begin(void) {
    setting("PLIMSOLL_SLOW_CPU_US", &cpu_us);
    setting("PLIMSOLL_SLOW_SLEEP_US", &sleep_us);
    setting("PLIMSOLL_SLOW_LOCK_US", &lock_us);
    setting("PLIMSOLL_SLOW_FSYNC_EVERY", &fsync_every);
    lock = mmap(NULL, sizeof *lock, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (lock == MAP_FAILED) _exit(1);
    pthread_mutexattr_t shared;
    pthread_mutexattr_init(&shared);
    pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    /* A session that is killed while it holds the lock does not stop the others. */
    pthread_mutexattr_setrobust(&shared, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(lock, &shared);
}

/* By the thread's own clock: time in which it was not let run does not count. */
static void burn(long us) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    long long until = now.tv_sec * 1000000000LL + now.tv_nsec + us * 1000LL;
    do clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    while (now.tv_sec * 1000000000LL + now.tv_nsec < until);
}

static void slow_down(void) {
    if (cpu_us) burn(cpu_us);
    if (sleep_us) {
        static __thread int is_exact;
        /* The kernel would add up to 50 us of slack. */
        if (!is_exact) prctl(PR_SET_TIMERSLACK, 1UL), is_exact = 1;
        struct timespec pause = {sleep_us / 1000000, sleep_us % 1000000 * 1000};
        while (clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, &pause) == EINTR) {}
    }
    if (lock_us) {
        if (pthread_mutex_lock(lock) == EOWNERDEAD) pthread_mutex_consistent(lock);
        burn(lock_us);
        pthread_mutex_unlock(lock);
    }
    static __thread long answers;
    if (fsync_every && ++answers % fsync_every == 0) {
        static __thread int file = -1;
        static const char block[512];
        if (file < 0) file = open("plimsoll-slow.tmp", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        if (file < 0 || pwrite(file, block, sizeof block, 0) != sizeof block || fsync(file)) {
            perror("plimsoll-slow.tmp");
            abort();
        }
    }
}

static void note(int fd, unsigned char what) {
    if (fd >= 0 && fd < DESCRIPTORS) state[fd] = what;
}

static void read_from(int fd, ssize_t bytes) {
    if (bytes > 0 && fd < DESCRIPTORS && state[fd] == CLIENT) state[fd] = ASKED;
}

static void before_sending(int fd) {
    if (fd < 0 || fd >= DESCRIPTORS || state[fd] != ASKED) return;
    state[fd] = CLIENT;
    int kept = errno;
    slow_down();
    errno = kept;
}

#define REAL(name) static __typeof__(&name) real; if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

int accept(int fd, struct sockaddr *restrict address, socklen_t *restrict length) {
    REAL(accept);
    int client = real(fd, address, length);
    note(client, CLIENT);
    return client;
}
int accept4(int fd, struct sockaddr *restrict address, socklen_t *restrict length, int flags) {
    REAL(accept4);
    int client = real(fd, address, length, flags);
    note(client, CLIENT);
    return client;
}
/* Before it is closed: another thread may get the number at once. */
int close(int fd) { REAL(close); note(fd, NOT_A_CLIENT); return real(fd); }

#define READS(result, name, declared, passed) \
    result name declared { REAL(name); result bytes = real passed; read_from(fd, bytes); return bytes; }
READS(ssize_t, read, (int fd, void *to, size_t size), (fd, to, size))
READS(ssize_t, readv, (int fd, const struct iovec *to, int count), (fd, to, count))
READS(ssize_t, recv, (int fd, void *to, size_t size, int flags), (fd, to, size, flags))
READS(ssize_t, recvmsg, (int fd, struct msghdr *to, int flags), (fd, to, flags))
READS(ssize_t, recvfrom,
      (int fd, void *restrict to, size_t size, int flags, struct sockaddr *restrict from, socklen_t *restrict length),
      (fd, to, size, flags, from, length))

#define SENDS(name, declared, passed) \
    ssize_t name declared { REAL(name); before_sending(fd); return real passed; }
SENDS(write, (int fd, const void *from, size_t size), (fd, from, size))
SENDS(writev, (int fd, const struct iovec *from, int count), (fd, from, count))
SENDS(send, (int fd, const void *from, size_t size, int flags), (fd, from, size, flags))
SENDS(sendmsg, (int fd, const struct msghdr *from, int flags), (fd, from, flags))
SENDS(sendto, (int fd, const void *from, size_t size, int flags, const struct sockaddr *to, socklen_t length),
      (fd, from, size, flags, to, length))
