/*
 * A neighbour on a shared machine: it works in random bursts on some of the cpus, with memory traffic, and writes a
 * little with fdatasync. neighbour SEED SECONDS CPUS ON_MS OFF_MS DIRECTORY
 *
 * Bursts and pauses have exponential lengths of the means given, cut to between a fifth and four times of that; a burst
 * takes 1 to CPUS cpus. Each is a line on standard output: start and length in milliseconds as planned, and cpus. The same
 * seed gives the same lines. It ends after SECONDS, or as soon as its standard input ends: with its owner, however that ends.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { CPUS_MAX = 256, BUFFER_BYTES = 16 << 20, WRITE_BYTES = 64 << 10, WRITE_EACH_MS = 50, FILE_BYTES = 32 << 20 };

static atomic_int busy; /* Workers with a lower number are to work. */

static double now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

static void pause_ms(double ms) {
    struct timespec pause = {(time_t)(ms / 1e3), (long)(fmod(ms, 1e3) * 1e6)};
    nanosleep(&pause, NULL);
}

/* splitmix64 */
static uint64_t next(uint64_t *seed) {
    uint64_t z = *seed += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static double length_ms(uint64_t *seed, double mean) {
    double uniform = (next(seed) >> 11) * 0x1p-53;
    return fmin(fmax(-log1p(-uniform) * mean, mean / 5), mean * 4);
}

static void *work(void *number) {
    int mine = (int)(intptr_t)number;
    uint64_t *buffer = malloc(BUFFER_BYTES);
    if (!buffer) abort();
    memset(buffer, 1, BUFFER_BYTES);
    uint64_t sum = 0;
    for (;;) {
        if (atomic_load(&busy) <= mine) { pause_ms(2); continue; }
        for (size_t i = 0; i < BUFFER_BYTES / sizeof *buffer; i += 8) {
            for (int turn = 0; turn < 8; turn++) sum = sum * 6364136223846793005u + buffer[i];
            buffer[i] = sum;
            if (i % 8192 == 0 && atomic_load(&busy) <= mine) break;
        }
    }
}

static void *write_some(void *path) {
    int file = open(path, O_WRONLY | O_TMPFILE, 0600);
    static char bytes[WRITE_BYTES];
    if (file < 0) { perror(path); exit(1); }
    for (off_t at = 0;; at = (at + WRITE_BYTES) % FILE_BYTES) {
        pause_ms(WRITE_EACH_MS);
        if (!atomic_load(&busy)) continue;
        if (pwrite(file, bytes, sizeof bytes, at) != sizeof bytes || fdatasync(file)) { perror(path); exit(1); }
    }
}

/* Waits so long, and ends the program when its owner is gone. */
static void wait_until(double until_ms) {
    for (double left; (left = until_ms - now_ms()) > 0;) {
        struct pollfd input = {0, POLLIN, 0};
        char byte;
        if (poll(&input, 1, (int)ceil(left)) > 0 && read(0, &byte, 1) <= 0) exit(0);
    }
}

int main(int count, char **given) {
    if (count != 7) { fprintf(stderr, "neighbour SEED SECONDS CPUS ON_MS OFF_MS DIRECTORY\n"); return 2; }
    uint64_t seed = strtoull(given[1], NULL, 10);
    double seconds = atof(given[2]), on_ms = atof(given[4]), off_ms = atof(given[5]);
    int cpus = atoi(given[3]);
    if (cpus < 1 || cpus > CPUS_MAX || seconds <= 0 || on_ms <= 0 || off_ms <= 0) return 2;
    pthread_t thread;
    for (intptr_t i = 0; i < cpus; i++)
        if (pthread_create(&thread, NULL, work, (void *)i)) return 1;
    if (pthread_create(&thread, NULL, write_some, given[6])) return 1;
    double begun = now_ms(), at = 0, end = seconds * 1e3;
    while (at < end) {
        at = fmin(at + length_ms(&seed, off_ms), end);
        wait_until(begun + at);
        double length = fmin(length_ms(&seed, on_ms), end - at);
        int taken = 1 + next(&seed) % cpus;
        printf("%.0f %.0f %d\n", at, length, taken);
        fflush(stdout);
        atomic_store(&busy, taken);
        wait_until(begun + (at += length));
        atomic_store(&busy, 0);
    }
    return 0;
}
