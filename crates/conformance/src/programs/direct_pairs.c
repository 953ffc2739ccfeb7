/* Pairs of openers of one file, of which each sees at once what the other has written; what a descriptor of O_DIRECT can be mapped
   as; what a direct write takes away. direct_pairs FILE, which is there and has LEN bytes. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>
#define PAGE 4096
#define LEN (64 * PAGE)
enum { BUFFERED, MAPPED, DIRECT, ONLY_WRITES, KINDS };
static const char *const names[KINDS] = {"buffered", "mapped", "direct", "direct, only writes"};
static int open_as[KINDS];
static unsigned char *map, *room;
static int fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    return 1;
}
static int put(int kind, unsigned char value, long at, long len) {
    if (kind == MAPPED) return memset(map + at, value, len), 0;
    memset(room, value, len);
    return pwrite(open_as[kind], room, len, at) != len;
}
static int has(int kind, unsigned char value, long at, long len) {
    const unsigned char *found = map + at;
    if (kind != MAPPED) {
        if (pread(open_as[kind], room, len, at) != len) return 0;
        found = room;
    }
    for (long byte = 0; byte < len; byte++)
        if (found[byte] != value) return 0;
    return 1;
}
static int pairs(void) {
    unsigned char value = 0;
    for (int round = 0; round < 40; round++)
        for (int writer = 0; writer < KINDS; writer++)
            for (int reader = 0; reader < ONLY_WRITES; reader++) {
                long pages = 1 + round % 7, at = (round * 11 + writer * 3 + reader) % (64 - pages) * PAGE;
                unsigned char before = ++value, after = ++value;
                /* The reader looks before, too: it may keep what it has seen. */
                int other = (writer + 1) % KINDS;
                if (put(other, before, at, pages * PAGE)) return fail(names[other]);
                if (!has(reader, before, at, pages * PAGE)) return fprintf(stderr, "%s wrote first: ", names[other]), fail(names[reader]);
                if (put(writer, after, at, pages * PAGE)) return fail(names[writer]);
                if (!has(reader, after, at, pages * PAGE)) return fprintf(stderr, "%s wrote: ", names[writer]), fail(names[reader]);
            }
    return 0;
}
static int can_map(int fd, int protection, int how) {
    void *at = mmap(0, PAGE, protection, how, fd, 0);
    return at != MAP_FAILED && !munmap(at, PAGE);
}
static int mappings(const char *path) {
    int only_read = open(path, O_RDONLY | O_DIRECT), both = PROT_READ | PROT_WRITE, append = FS_APPEND_FL, none = 0;
    if (!can_map(open_as[DIRECT], both, MAP_SHARED) || !can_map(open_as[DIRECT], both, MAP_PRIVATE)) return fail("map of O_RDWR");
    if (!can_map(only_read, PROT_READ, MAP_SHARED) || !can_map(only_read, both, MAP_PRIVATE)) return fail("map of O_RDONLY");
    if (can_map(only_read, both, MAP_SHARED) || can_map(open_as[ONLY_WRITES], PROT_WRITE, MAP_SHARED)) return fail("too much is mapped");
    unsigned char *own = mmap(0, PAGE, both, MAP_SHARED, open_as[DIRECT], 0);
    if (own == MAP_FAILED) return fail("map");
    memset(own, 77, PAGE);
    if (!has(DIRECT, 77, 0, PAGE) || !has(BUFFERED, 77, 0, PAGE) || !has(MAPPED, 77, 0, PAGE)) return fail("what the map wrote");
    if (put(DIRECT, 78, 0, PAGE) || own[5] != 78) return fail("what the map reads");
    int flags = fcntl(open_as[BUFFERED], F_GETFL);
    if (fcntl(open_as[BUFFERED], F_SETFL, flags | O_DIRECT) || put(BUFFERED, 79, 0, PAGE) || own[5] != 79) return fail("F_SETFL");
    if (fcntl(open_as[BUFFERED], F_SETFL, flags) || put(BUFFERED, 80, 0, 100) || own[99] != 80) return fail("F_SETFL back");
    if (munmap(own, PAGE) || ioctl(only_read, FS_IOC_SETFLAGS, &append)) return fail("append-only");
    for (int direct = 0; direct < 2; direct++) {
        int appends = open(path, O_RDWR | O_APPEND | (direct ? O_DIRECT : 0));
        if (appends < 0 || can_map(appends, both, MAP_SHARED)) return fail("an append-only file is mapped");
        if (!can_map(appends, PROT_READ, MAP_PRIVATE)) return fail("a private map of an append-only file");
        memset(room, 81, LEN);
        if (write(appends, room, LEN) != LEN || close(appends)) return fail("append");
    }
    struct stat stat;
    if (fstat(only_read, &stat) || stat.st_size != 3 * LEN) return fail("the end");
    if (open(path, O_WRONLY | O_DIRECT) >= 0 || errno != EPERM) return fail("an append-only file is opened to be written anywhere");
    return ioctl(only_read, FS_IOC_SETFLAGS, &none) ? fail("no longer append-only") : 0;
}
/* As an ordinary user. */
static int loses_privileges(const char *path, int how) {
    static const unsigned char may_set_time[20] = {1, 0, 0, 2, 0, 0, 0, 2};
    struct stat stat;
    if (chmod(path, 06777)) return fail("chmod");
    if (setxattr(path, "security.capability", may_set_time, sizeof may_set_time, 0)) return fail("setxattr");
    pid_t user = fork();
    if (!user) {
        if (setgid(1000) || setuid(1000)) _exit(2);
        int fd = open(path, how | O_DIRECT);
        memset(room, 82, PAGE);
        _exit(fd < 0 || pwrite(fd, room, PAGE, 0) != PAGE);
    }
    int status;
    if (user < 0 || waitpid(user, &status, 0) != user || status) return fail("the user's write");
    if (lstat(path, &stat) || (stat.st_mode & 07777) != 0777) return fprintf(stderr, "mode %o ", stat.st_mode), fail("set-user-id stays");
    if (getxattr(path, "security.capability", room, LEN) >= 0 || errno != ENODATA) return fprintf(stderr, "capabilities stay\n"), 1;
    return 0;
}
int main(int argc, char **argv) {
    static const int how[KINDS] = {O_RDWR, O_RDWR, O_RDWR | O_DIRECT, O_WRONLY | O_DIRECT};
    if (argc != 2) return 1;
    for (int kind = 0; kind < KINDS; kind++)
        if ((open_as[kind] = open(argv[1], how[kind])) < 0) return fail(names[kind]);
    map = mmap(0, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, open_as[MAPPED], 0);
    room = aligned_alloc(PAGE, LEN);
    if (map == MAP_FAILED || !room) return fail("map");
    return pairs() || mappings(argv[1]) || loses_privileges(argv[1], O_RDWR) || loses_privileges(argv[1], O_WRONLY) ||
           loses_privileges(argv[1], O_WRONLY);
}
