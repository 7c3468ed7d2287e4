/* Preloaded into a server: it flushes nothing and believes that it did, as one whose authors forgot. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/types.h>

int fsync(int fd) { (void)fd; return 0; }
int fdatasync(int fd) { (void)fd; return 0; }
int syncfs(int fd) { (void)fd; return 0; }
void sync(void) {}
int msync(void *address, size_t length, int flags) { (void)address; (void)length; (void)flags; return 0; }
int sync_file_range(int fd, off64_t offset, off64_t length, unsigned int flags) {
    (void)fd; (void)offset; (void)length; (void)flags;
    return 0;
}

/* O_SYNC contains O_DSYNC. A mode that was not passed is not read by anybody. */
#define OPENS(name)                                                              \
    int name(const char *path, int flags, ...) {                                \
        static int (*real)(const char *, int, ...);                             \
        if (!real) real = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, #name); \
        va_list rest;                                                           \
        va_start(rest, flags);                                                  \
        mode_t mode = (flags & (O_CREAT | __O_TMPFILE)) ? va_arg(rest, mode_t) : 0; \
        va_end(rest);                                                           \
        return real(path, flags & ~O_SYNC, mode);                               \
    }
OPENS(open)
OPENS(open64)
