/* Records every change that a process makes to files under PVDM_RECORD_ROOT, in order, for
 * tests/support/ledger/power_loss.py.
 *
 * Loaded with LD_PRELOAD. Each record in PVDM_RECORD_TO is: kind (1 byte), descriptor (4), offset (8), length (8), data;
 * numbers are little-endian. The process under test changes those files from one thread at a time. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DESCRIPTORS 4096
static char tracked[DESCRIPTORS];
static const char *root;
static int out = -1;

__attribute__((constructor)) static void begin(void) {
    const char *to = getenv("PVDM_RECORD_TO");
    root = getenv("PVDM_RECORD_ROOT");
    if (root && to) out = syscall(SYS_openat, AT_FDCWD, to, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

static void put(const void *data, size_t length) {
    const char *at = data;
    while (length > 0) {
        ssize_t done = syscall(SYS_write, out, at, length);
        if (done <= 0) abort();
        at += done;
        length -= done;
    }
}

static void record(char kind, int32_t descriptor, int64_t offset, const void *data, int64_t length) {
    char head[21];
    head[0] = kind;
    memcpy(head + 1, &descriptor, 4);
    memcpy(head + 5, &offset, 8);
    memcpy(head + 13, &length, 8);
    put(head, sizeof head);
    if (length > 0) put(data, length);
}

static int under(const char *path) { return out >= 0 && path && strncmp(path, root, strlen(root)) == 0; }
static int known(int fd) { return out >= 0 && fd >= 0 && fd < DESCRIPTORS && tracked[fd]; }
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int opened(int fd, const char *path, int flags) {
    if (fd >= 0 && fd < DESCRIPTORS) {
        tracked[fd] = under(path);
        if (tracked[fd]) record('o', fd, flags & (O_CREAT | O_TRUNC | O_APPEND), path, strlen(path));
    }
    return fd;
}

#define MODE(flags, mode) mode_t mode = 0; if ((flags) & (O_CREAT | O_TMPFILE)) { va_list list; va_start(list, flags); mode = va_arg(list, int); va_end(list); }
int open(const char *path, int flags, ...) { MODE(flags, mode) return opened(REAL(open)(path, flags, mode), path, flags); }
int open64(const char *path, int flags, ...) { MODE(flags, mode) return opened(REAL(open64)(path, flags, mode), path, flags); }
int openat(int at, const char *path, int flags, ...) { MODE(flags, mode) return opened(REAL(openat)(at, path, flags, mode), path, flags); }
int openat64(int at, const char *path, int flags, ...) { MODE(flags, mode) return opened(REAL(openat64)(at, path, flags, mode), path, flags); }

int close(int fd) {
    if (known(fd)) { record('c', fd, 0, NULL, 0); tracked[fd] = 0; }
    return REAL(close)(fd);
}

ssize_t pwrite(int fd, const void *data, size_t length, off_t offset) {
    ssize_t done = REAL(pwrite)(fd, data, length, offset);
    if (done > 0 && known(fd)) record('w', fd, offset, data, done);
    return done;
}
ssize_t pwrite64(int fd, const void *data, size_t length, off64_t offset) {
    ssize_t done = REAL(pwrite64)(fd, data, length, offset);
    if (done > 0 && known(fd)) record('w', fd, offset, data, done);
    return done;
}
ssize_t write(int fd, const void *data, size_t length) {
    off_t before = known(fd) ? lseek(fd, 0, SEEK_CUR) : 0;
    ssize_t done = REAL(write)(fd, data, length);
    if (done > 0 && known(fd)) record('w', fd, before, data, done);
    return done;
}
int ftruncate(int fd, off_t length) {
    int result = REAL(ftruncate)(fd, length);
    if (result == 0 && known(fd)) record('t', fd, length, NULL, 0);
    return result;
}
int ftruncate64(int fd, off64_t length) {
    int result = REAL(ftruncate64)(fd, length);
    if (result == 0 && known(fd)) record('t', fd, length, NULL, 0);
    return result;
}
int fsync(int fd) {
    int result = REAL(fsync)(fd);
    if (result == 0 && known(fd)) record('s', fd, 0, NULL, 0);
    return result;
}
int fdatasync(int fd) {
    int result = REAL(fdatasync)(fd);
    if (result == 0 && known(fd)) record('s', fd, 0, NULL, 0);
    return result;
}
int unlink(const char *path) {
    int result = REAL(unlink)(path);
    if (result == 0 && under(path)) record('u', -1, 0, path, strlen(path));
    return result;
}
int mkdir(const char *path, mode_t mode) {
    int result = REAL(mkdir)(path, mode);
    if (result == 0 && under(path)) record('m', -1, 0, path, strlen(path));
    return result;
}
int rename(const char *from, const char *to) {
    if (under(from) != under(to)) abort(); /* what the recorder cannot follow must not pass in silence */
    int result = REAL(rename)(from, to);
    if (result == 0 && under(from)) {
        record('r', -1, 0, from, strlen(from));
        record('R', -1, 0, to, strlen(to));
    }
    return result;
}
