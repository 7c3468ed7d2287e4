/* The floor: the least CPU that a client can use for sysbench's transactions with one statement in flight per session.
 * One thread, edge-triggered epoll, a unix socket, statements packed by hand, rows skipped by length, no latency taken,
 * no error told apart. No password (mysql_native_password with an empty one; trust).
 *
 *   cc -O2 -o floor floor.c
 *   ./floor WORKLOAD mysql SOCKET USER SESSIONS SECONDS ROWS
 *   ./floor WORKLOAD postgres DIRECTORY/.s.PGSQL.PORT USER SESSIONS SECONDS ROWS
 *
 * WORKLOAD: oltp_point_select, or oltp_read_write (BEGIN, 10 point selects, 4 range selects of 100 rows: plain, SUM,
 * ORDER BY, DISTINCT; 2 updates, DELETE and INSERT of one id, COMMIT); for postgres also pgbench_simple and
 * pgbench_prepared, pgbench's select-only in either protocol. Database sbtest, table sbtest1 with ids 1..ROWS, or
 * pgbench_accounts with ROWS rows.
 * Prints one JSON object. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { POINT, RANGE, SUM, ORDER, DISTINCT, INDEX_UPDATE, NON_INDEX_UPDATE, DELETE, INSERT, ACCOUNT, PREPARED, BEGIN, COMMIT, ROLLBACK, ACCOUNT_TEXT };

static const char *sql_of[PREPARED][2] = { /* MySQL, PostgreSQL */
    {"SELECT c FROM sbtest1 WHERE id=?", "SELECT c FROM sbtest1 WHERE id=$1"},
    {"SELECT c FROM sbtest1 WHERE id BETWEEN ? AND ?", "SELECT c FROM sbtest1 WHERE id BETWEEN $1 AND $2"},
    {"SELECT SUM(k) FROM sbtest1 WHERE id BETWEEN ? AND ?", "SELECT SUM(k) FROM sbtest1 WHERE id BETWEEN $1 AND $2"},
    {"SELECT c FROM sbtest1 WHERE id BETWEEN ? AND ? ORDER BY c", "SELECT c FROM sbtest1 WHERE id BETWEEN $1 AND $2 ORDER BY c"},
    {"SELECT DISTINCT c FROM sbtest1 WHERE id BETWEEN ? AND ? ORDER BY c", "SELECT DISTINCT c FROM sbtest1 WHERE id BETWEEN $1 AND $2 ORDER BY c"},
    {"UPDATE sbtest1 SET k=k+1 WHERE id=?", "UPDATE sbtest1 SET k=k+1 WHERE id=$1"},
    {"UPDATE sbtest1 SET c=? WHERE id=?", "UPDATE sbtest1 SET c=$1 WHERE id=$2"},
    {"DELETE FROM sbtest1 WHERE id=?", "DELETE FROM sbtest1 WHERE id=$1"},
    {"INSERT INTO sbtest1 (id, k, c, pad) VALUES (?, ?, ?, ?)", "INSERT INTO sbtest1 (id, k, c, pad) VALUES ($1, $2, $3, $4)"},
    {"", "SELECT abalance FROM pgbench_accounts WHERE aid = $1;"}};
static const char *text_of[] = {[BEGIN] = "BEGIN", [COMMIT] = "COMMIT", [ROLLBACK] = "ROLLBACK"};
static const uint8_t point_select[] = {POINT}, account[] = {ACCOUNT}, account_text[] = {ACCOUNT_TEXT};
static const uint8_t read_write[] = {BEGIN, POINT, POINT, POINT, POINT, POINT, POINT, POINT, POINT, POINT, POINT,
                                         RANGE, SUM, ORDER, DISTINCT, INDEX_UPDATE, NON_INDEX_UPDATE, DELETE, INSERT, COMMIT};
/* the one that runs, and its length */
static const uint8_t *script;
static int statements_of_one;

struct session {
    int fd, len, at, step, eofs, packets, failed;
    uint32_t deleted;
    uint64_t rng;
    uint32_t statement[PREPARED];
    uint8_t buf[16384];
};
struct out { uint8_t b[1024]; int n; };

static int is_pg, rows;

/* A session prepares what its transaction needs. */
static int is_used(int op) { return memchr(script, op, statements_of_one) != NULL; }

static void die(const char *what) { perror(what); exit(1); }
static uint64_t now_ns(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000000000ull + t.tv_nsec; }
static uint32_t draw(struct session *s) { s->rng = s->rng * 6364136223846793005ull + 1442695040888963407ull; return s->rng >> 33; }
static void put(struct out *o, const void *data, int n) { memcpy(o->b + o->n, data, n); o->n += n; }
static void put8(struct out *o, uint8_t v) { o->b[o->n++] = v; }
static void put32(struct out *o, uint32_t v) { if (is_pg) v = htonl(v); put(o, &v, 4); }
static void put16be(struct out *o, uint16_t v) { v = htons(v); put(o, &v, 2); }

/* groups of 11 digits joined by "-": 10 make c, 5 make pad */
static void put_groups(struct session *s, struct out *o, int groups) {
    for (int g = 0; g < groups; g++) {
        if (g) put8(o, '-');
        uint64_t v = (uint64_t)draw(s) << 31 | draw(s);
        for (int i = 0; i < 11; i++, v /= 10) put8(o, '0' + v % 10);
    }
}
/* parameters: an int, or a string of so many groups */
struct param { int groups; uint32_t number; };

static int params_of(struct session *s, int op, struct param *p) {
    uint32_t id = 1 + draw(s) % rows;
    switch (op) {
    case RANGE: case SUM: case ORDER: case DISTINCT: p[0] = (struct param){0, id}; p[1] = (struct param){0, id + 99}; return 2;
    case NON_INDEX_UPDATE: p[0] = (struct param){10, 0}; p[1] = (struct param){0, id}; return 2;
    case DELETE: s->deleted = id; p[0] = (struct param){0, id}; return 1;
    case INSERT:
        p[0] = (struct param){0, s->deleted}; p[1] = (struct param){0, id};
        p[2] = (struct param){10, 0}; p[3] = (struct param){5, 0}; return 4;
    default: p[0] = (struct param){0, id}; return 1;
    }
}
static void send_all(int fd, const struct out *o) { if (write(fd, o->b, o->n) != o->n) die("write"); }

static void send_mysql(struct session *s, int op) {
    struct out o = {.n = 4};
    if (op > PREPARED) {
        put8(&o, 3); put(&o, text_of[op], strlen(text_of[op]));
    } else {
        struct param p[4];
        int n = params_of(s, op, p);
        put8(&o, 0x17); put32(&o, s->statement[op]); put8(&o, 0); put32(&o, 1); put8(&o, 0); put8(&o, 1);
        for (int i = 0; i < n; i++) { put8(&o, p[i].groups ? 0xfd : 3); put8(&o, 0); }
        for (int i = 0; i < n; i++)
            if (p[i].groups) { put8(&o, p[i].groups * 12 - 1); put_groups(s, &o, p[i].groups); } else put32(&o, p[i].number);
    }
    int body = o.n - 4;
    o.b[0] = body; o.b[1] = body >> 8; o.b[2] = body >> 16; o.b[3] = 0;
    send_all(s->fd, &o);
}
static void end_message(struct out *o, int start) { uint32_t v = htonl(o->n - start); memcpy(o->b + start, &v, 4); }

static void send_pg(struct session *s, int op) {
    struct out o = {.n = 0};
    if (op == ACCOUNT_TEXT) {
        char sql[64];
        int n = sprintf(sql, "SELECT abalance FROM pgbench_accounts WHERE aid = %u;", 1 + draw(s) % rows);
        put8(&o, 'Q'); put32(&o, 0); put(&o, sql, n + 1); end_message(&o, 1);
    } else if (op > PREPARED) {
        put8(&o, 'Q'); put32(&o, 0); put(&o, text_of[op], strlen(text_of[op]) + 1); end_message(&o, 1);
    } else {
        struct param p[4];
        int n = params_of(s, op, p);
        char name[3] = {'s', 'a' + op, 0};
        put8(&o, 'B'); put32(&o, 0); put8(&o, 0); put(&o, name, 3); put16be(&o, n);
        for (int i = 0; i < n; i++) put16be(&o, p[i].groups ? 0 : 1);
        put16be(&o, n);
        for (int i = 0; i < n; i++)
            if (p[i].groups) { put32(&o, p[i].groups * 12 - 1); put_groups(s, &o, p[i].groups); } else { put32(&o, 4); put32(&o, p[i].number); }
        put16be(&o, 0);
        end_message(&o, 1);
        put(&o, "E\0\0\0\x09\0\0\0\0\0S\0\0\0\x04", 15);
    }
    send_all(s->fd, &o);
}
static void send_next(struct session *s) {
    int op = s->failed ? ROLLBACK : script[s->step];
    s->packets = s->eofs = 0;
    if (is_pg) send_pg(s, op); else send_mysql(s, op);
}
/* Skips what has arrived; 1 when the answer is complete. Packet: 3-byte length, number. EOF packets end columns and rows. */
static int skip_mysql(struct session *s) {
    while (s->at + 5 <= s->len) {
        const uint8_t *h = s->buf + s->at;
        int len = h[0] | h[1] << 8 | h[2] << 16;
        if (s->at + 4 + len > s->len) return 0;
        s->at += 4 + len;
        if (h[4] == 0xff) { s->failed = 1; return 1; }
        if (s->packets++ == 0 && h[4] == 0) return 1;
        if (h[4] == 0xfe && len < 9 && ++s->eofs == 2) return 1;
    }
    return 0;
}
static int skip_pg(struct session *s) {
    while (s->at + 5 <= s->len) {
        const uint8_t *h = s->buf + s->at;
        int len = 1 + (h[1] << 24 | h[2] << 16 | h[3] << 8 | h[4]);
        if (s->at + len > s->len) return 0;
        s->at += len;
        if (h[0] == 'E') s->failed = 1;
        if (h[0] == 'Z') return 1;
    }
    return 0;
}
/* One read; 1 when the answer is complete. */
static int take(struct session *s) {
    if (s->at == s->len) s->at = s->len = 0;
    else if (s->len == sizeof s->buf) { memmove(s->buf, s->buf + s->at, s->len - s->at); s->len -= s->at; s->at = 0; }
    int got = read(s->fd, s->buf + s->len, sizeof s->buf - s->len);
    if (got < 0 && errno == EAGAIN) return -1;
    if (got <= 0) die("read");
    s->len += got;
    return is_pg ? skip_pg(s) : skip_mysql(s);
}

/* ---- log-in, blocking ---- */
static void read_exactly(int fd, void *to, int n) {
    for (int have = 0, got; have < n; have += got) if ((got = read(fd, (char *)to + have, n - have)) <= 0) die("read");
}
static uint8_t scratch[65536];
static int read_packet(int fd, int *number) {
    uint8_t h[4];
    read_exactly(fd, h, 4);
    int len = h[0] | h[1] << 8 | h[2] << 16;
    *number = h[3];
    read_exactly(fd, scratch, len);
    return len;
}
static void write_packet(int fd, const struct out *body, int number) {
    struct out o = {.n = 0};
    put8(&o, body->n); put8(&o, body->n >> 8); put8(&o, 0); put8(&o, number); put(&o, body->b, body->n);
    send_all(fd, &o);
}
static void log_in_mysql(struct session *s, const char *user) {
    int number;
    struct out o = {.n = 0};
    read_packet(s->fd, &number);
    put32(&o, 0x1 | 0x8 | 0x200 | 0x2000 | 0x8000 | 0x80000); put32(&o, 1 << 24); put8(&o, 33);
    memset(o.b + o.n, 0, 23); o.n += 23;
    put(&o, user, strlen(user) + 1); put8(&o, 0); put(&o, "sbtest", 7); put(&o, "mysql_native_password", 22);
    write_packet(s->fd, &o, number + 1);
    read_packet(s->fd, &number);
    if (scratch[0] == 0xfe) { o.n = 0; write_packet(s->fd, &o, number + 1); read_packet(s->fd, &number); }
    if (scratch[0]) { fprintf(stderr, "log in: %.80s\n", scratch + 9); exit(1); }
    for (int op = 0; op < PREPARED; op++) {
        if (!is_used(op)) continue;
        o.n = 0; put8(&o, 0x16); put(&o, sql_of[op][0], strlen(sql_of[op][0]));
        write_packet(s->fd, &o, 0);
        read_packet(s->fd, &number);
        if (scratch[0]) { fprintf(stderr, "prepare: %.80s\n", scratch + 9); exit(1); }
        memcpy(&s->statement[op], scratch + 1, 4);
        for (int k = (scratch[5] ? scratch[5] + 1 : 0) + (scratch[7] ? scratch[7] + 1 : 0); k > 0; k--) read_packet(s->fd, &number);
    }
}
static void await_ready(int fd) {
    for (;;) {
        uint8_t h[5];
        read_exactly(fd, h, 5);
        int len = (h[1] << 24 | h[2] << 16 | h[3] << 8 | h[4]) - 4;
        read_exactly(fd, scratch, len);
        if (h[0] == 'E') { fprintf(stderr, "server: %.200s\n", scratch); exit(1); }
        if (h[0] == 'Z') return;
    }
}
static void log_in_pg(struct session *s, const char *user) {
    struct out o = {.n = 0};
    put32(&o, 0); put32(&o, 196608);
    put(&o, "user", 5); put(&o, user, strlen(user) + 1); put(&o, "database\0sbtest", 16); put8(&o, 0);
    end_message(&o, 0);
    send_all(s->fd, &o);
    await_ready(s->fd);
    for (int op = 0; op < PREPARED; op++) {
        if (!is_used(op)) continue;
        char name[3] = {'s', 'a' + op, 0};
        o.n = 0; put8(&o, 'P'); put32(&o, 0); put(&o, name, 3); put(&o, sql_of[op][1], strlen(sql_of[op][1]) + 1);
        /* integers are declared (oid 23), strings left to the server */
        if (op == NON_INDEX_UPDATE) { put16be(&o, 2); put32(&o, 0); put32(&o, 23); }
        else if (op == INSERT) { put16be(&o, 4); put32(&o, 23); put32(&o, 23); put32(&o, 0); put32(&o, 0); }
        else { int n = op >= RANGE && op <= DISTINCT ? 2 : 1; put16be(&o, n); while (n--) put32(&o, 23); }
        end_message(&o, 1);
        put(&o, "S\0\0\0\x04", 5);
        send_all(s->fd, &o);
        await_ready(s->fd);
    }
}
int main(int argc, char **argv) {
    if (argc != 8) { fprintf(stderr, "usage: floor WORKLOAD mysql|postgres SOCKET USER SESSIONS SECONDS ROWS\n"); return 2; }
    if (!strcmp(*++argv, "oltp_point_select")) { script = point_select; statements_of_one = sizeof point_select; }
    else if (!strcmp(*argv, "oltp_read_write")) { script = read_write; statements_of_one = sizeof read_write; }
    else if (!strcmp(*argv, "pgbench_simple")) { script = account_text; statements_of_one = sizeof account_text; }
    else if (!strcmp(*argv, "pgbench_prepared")) { script = account; statements_of_one = sizeof account; }
    else { fprintf(stderr, "no workload %s\n", *argv); return 2; }
    is_pg = !strcmp(argv[1], "postgres");
    rows = atoi(argv[6]);
    int sessions = atoi(argv[4]), ep = epoll_create1(0);
    /* Without it the kernel lets each answer preempt the server: answers are then taken one by one, which costs more. */
    if (sched_setscheduler(0, SCHED_BATCH, &(struct sched_param){0})) die("sched_setscheduler");
    struct session *all = calloc(sessions, sizeof *all);
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    strncpy(addr.sun_path, argv[2], sizeof addr.sun_path - 1);
    for (int i = 0; i < sessions; i++) {
        struct session *s = &all[i];
        s->fd = socket(AF_UNIX, SOCK_STREAM, 0);
        s->rng = i * 7919 + 1;
        if (connect(s->fd, (void *)&addr, sizeof addr)) die("connect");
        if (is_pg) log_in_pg(s, argv[3]); else log_in_mysql(s, argv[3]);
        fcntl(s->fd, F_SETFL, O_NONBLOCK);
        struct epoll_event e = {.events = EPOLLIN | EPOLLET, .data.u32 = i};
        epoll_ctl(ep, EPOLL_CTL_ADD, s->fd, &e);
    }
    struct rusage before, after;
    uint64_t statements = 0, transactions = 0, failed = 0, start = now_ns(), warm = start + 1000000000ull, end = warm + atoi(argv[5]) * 1000000000ull;
    for (int i = 0; i < sessions; i++) send_next(&all[i]);
    for (uint64_t now; (now = now_ns()) < end;) {
        if (warm && now >= warm) { getrusage(RUSAGE_SELF, &before); start = now; statements = transactions = 0; warm = 0; }
        struct epoll_event ready[512];
        int n = epoll_wait(ep, ready, 512, 100);
        for (int k = 0; k < n; k++) {
            struct session *s = &all[ready[k].data.u32];
            int complete;
            /* a full buffer may have left something behind, and nothing would tell */
            do complete = take(s); while (!complete && s->len == sizeof s->buf);
            if (complete <= 0) continue;
            statements++;
            if (s->failed) { failed++; if (s->failed == 2) s->failed = s->step = 0; else s->failed = 2; }
            else if (++s->step == statements_of_one) { s->step = 0; transactions++; }
            send_next(s);
        }
    }
    getrusage(RUSAGE_SELF, &after);
#define SECONDS(f) (after.f.tv_sec - before.f.tv_sec + (after.f.tv_usec - before.f.tv_usec) / 1e6)
    printf("{\"sessions\": %d, \"statements\": %lu, \"transactions\": %lu, \"failed\": %lu, \"duration_s\": %.3f, \"client\": {\"cpu_user_s\": %.4f, \"cpu_sys_s\": %.4f}}\n",
           sessions, statements, transactions, failed, (now_ns() - start) / 1e9, SECONDS(ru_utime), SECONDS(ru_stime));
}
