#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>
#define MARK_APPEND 0x20
#define MARK_IMMUTABLE 0x10
#define TRY(what, call) do { errno = 0; long said = (long)(call); \
    printf("%s %s: %s\n", at, what, said == -1 ? strerrorname_np(errno) : "ok"); } while (0)

static const char *at = "";

static int mark(const char *path, int flags) {
    int fd = open(path, O_RDONLY | O_NONBLOCK);
    int said = ioctl(fd, FS_IOC_SETFLAGS, &flags);
    close(fd);
    return said;
}
static int fill(const char *path) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    int said = write(fd, "0123456789", 10) == 10 ? 0 : -1;
    close(fd);
    return said;
}
static int opened(const char *path, int flags) {
    int fd = open(path, flags, 0644);
    if (fd >= 0) close(fd);
    return fd < 0 ? -1 : 0;
}
static void show(const char *path) {
    char text[64] = "";
    int fd = open(path, O_RDONLY);
    long len = read(fd, text, 63);
    close(fd);
    printf("%s holds %ld %.*s\n", path, len, (int)len, text);
}
static void files(const char *path) {
    at = path;
    struct timespec then[2] = {{1000, 0}, {1000, 0}};
    TRY("open to write", opened(path, O_WRONLY));
    TRY("open to read and write", opened(path, O_RDWR));
    TRY("open to append", opened(path, O_WRONLY | O_APPEND));
    TRY("open to read and append", opened(path, O_RDWR | O_APPEND));
    TRY("open to cut", opened(path, O_RDONLY | O_TRUNC));
    TRY("open to append and cut", opened(path, O_WRONLY | O_APPEND | O_TRUNC));
    TRY("cut", truncate(path, 3));
    TRY("cut to its length", truncate(path, 10));
    TRY("lengthen", truncate(path, 100));
    TRY("chmod", chmod(path, 0600));
    TRY("chown", chown(path, 1, 1));
    TRY("touch", utimensat(AT_FDCWD, path, NULL, 0));
    TRY("touch with a time", utimensat(AT_FDCWD, path, then, 0));
    TRY("set attribute", setxattr(path, "user.a", "x", 1, 0));
    TRY("remove attribute", removexattr(path, "user.b"));
    TRY("link", link(path, "link"));
    TRY("rename", rename(path, "moved"));
    TRY("rename over", rename("other", path));
    TRY("exchange", renameat2(AT_FDCWD, "other", AT_FDCWD, path, RENAME_EXCHANGE));
    TRY("unlink", unlink(path));
    show(path);
}
static void handle(const char *path) {
    at = path;
    struct iovec x = {"x", 1};
    int fd = open(path, O_RDWR | O_APPEND);
    TRY("write", write(fd, "w", 1));
    TRY("write at the start", pwrite(fd, "p", 1, 0));
    TRY("write at the start in spite of appending", pwritev2(fd, &x, 1, 0, RWF_NOAPPEND));
    TRY("cut open", ftruncate(fd, 0));
    TRY("lengthen open", ftruncate(fd, 100000));
    TRY("map shared to write", mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    TRY("map shared to read", mmap(0, 4096, PROT_READ, MAP_SHARED, fd, 0));
    char *own = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    TRY("map privately", own);
    if (own != MAP_FAILED) printf("private %.3s\n", own);
    TRY("cease to append", fcntl(fd, F_SETFL, 0));
    TRY("write after that", pwrite(fd, "q", 1, 0));
    close(fd);
    int reads = open(path, O_RDONLY);
    char *seen = mmap(0, 4096, PROT_READ, MAP_SHARED, reads, 0);
    TRY("map a handle for reading", seen);
    TRY("make it writable", mprotect(seen, 4096, PROT_READ | PROT_WRITE));
    close(reads);
    show(path);
}
/* Opened before it is marked: Linux looks at marks when a file is opened. */
static void old(const char *path, int flags) {
    fill(path);
    int fd = open(path, O_RDWR);
    char *map = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    map[1] = 'A';
    at = path;
    TRY("mark", mark(path, flags));
    TRY("write", pwrite(fd, "W", 1, 2));
    TRY("write at the end", pwrite(fd, "E", 1, 10));
    map[3] = 'M';
    TRY("sync", msync(map, 4096, MS_SYNC));
    TRY("cut", ftruncate(fd, 5));
    TRY("fsync", fsync(fd));
    munmap(map, 4096);
    close(fd);
    show(path);
}
static void folders(const char *path) {
    char inside[64], fresh[64];
    sprintf(inside, "%s/in", path);
    sprintf(fresh, "%s/fresh", path);
    at = path;
    TRY("create", opened(fresh, O_WRONLY | O_CREAT | O_EXCL));
    TRY("mkdir", mkdir(fresh, 0755));
    TRY("nameless file", opened(path, O_RDWR | O_TMPFILE));
    TRY("write below", opened(inside, O_WRONLY));
    TRY("chmod below", chmod(inside, 0600));
    TRY("unlink below", unlink(inside));
    TRY("rename out", rename(inside, "out"));
    TRY("rename in", rename("other", fresh));
    TRY("link in", link("other", fresh));
    TRY("chmod", chmod(path, 0700));
    TRY("rename", rename(path, "moved"));
    TRY("rmdir", rmdir(path));
    TRY("set attribute", setxattr(path, "user.a", "x", 1, 0));
}
int main(int argc, char **argv) {
    if (argc != 2 || chdir(argv[1])) return 1;
    setvbuf(stdout, 0, _IOLBF, 0);
    umask(022);
    fill("log"); fill("stone"); fill("other"); fill("line");
    setxattr("log", "user.b", "x", 1, 0);
    setxattr("stone", "user.b", "x", 1, 0);
    mkdir("grow", 0755); mkdir("rock", 0755);
    fill("grow/in"); fill("rock/in");
    at = "marks";
    TRY("log", mark("log", MARK_APPEND)); TRY("line", mark("line", MARK_APPEND));
    TRY("stone", mark("stone", MARK_IMMUTABLE));
    TRY("grow", mark("grow", MARK_APPEND)); TRY("rock", mark("rock", MARK_IMMUTABLE));
    files("log"); files("stone");
    handle("line");
    folders("grow"); folders("rock");
    old("old log", MARK_APPEND); old("old stone", MARK_IMMUTABLE);
    at = "all";
    TRY("unmark", mark("log", 0) | mark("line", 0) | mark("stone", 0) | mark("grow", 0) | mark("rock", 0) | mark("old log", 0) | mark("old stone", 0));
    return 0;
}
