/* Writes to holes of a file around the page cache, sixteen requests at once, until there is no room: each is written whole, or ends with
   "no space". The same with pwrite(2), which may write less. direct FILE */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#define LONGEST 655360
#define AT_ONCE 16
#define PLACES 2048
static char *data;
/* How many were refused for want of space; less than 0 where something else happened. */
static int batch(int file, aio_context_t context, size_t len, long first) {
    struct iocb writes[AT_ONCE] = {0}, *list[AT_ONCE];
    struct io_event events[AT_ONCE];
    int full = 0;
    for (int at = 0; at < AT_ONCE; at++) {
        writes[at] = (struct iocb){.aio_lio_opcode = IOCB_CMD_PWRITE, .aio_fildes = file, .aio_buf = (uintptr_t)data,
                                   .aio_nbytes = len, .aio_offset = (first + at) * LONGEST};
        list[at] = &writes[at];
    }
    if (syscall(SYS_io_submit, context, AT_ONCE, list) != AT_ONCE) return perror("io_submit"), -1;
    if (syscall(SYS_io_getevents, context, AT_ONCE, AT_ONCE, events, NULL) != AT_ONCE) return perror("io_getevents"), -1;
    for (int at = 0; at < AT_ONCE; at++) {
        if (events[at].res == -ENOSPC) full++;
        else if (events[at].res != (long long)len) return fprintf(stderr, "%zu bytes: %lld\n", len, (long long)events[at].res), -1;
    }
    return full;
}
int main(int argc, char **argv) {
    int file = open(argv[1], O_RDWR | O_DIRECT), only = open(argv[1], O_WRONLY | O_DIRECT), full, ends = 0;
    aio_context_t context = 0;
    data = aligned_alloc(4096, LONGEST);
    if (argc != 2 || file < 0 || only < 0 || !data || ftruncate(file, (off_t)PLACES * LONGEST)) return 1;
    if (syscall(SYS_io_setup, AT_ONCE, &context)) return 1;
    for (size_t at = 0; at < LONGEST; at++) data[at] = (char)(at * 7 + (at >> 11) * 31);
    long place = 0;
    for (size_t len = LONGEST; len >= 20480; len = len / 2 & ~4095UL) {
        do {
            if ((full = batch(place / AT_ONCE % 2 ? file : only, context, len, place)) < 0) return 2;
            if ((place += AT_ONCE) > PLACES - AT_ONCE) return 3;
        } while (!full);
        ends++;
    }
    if (pwrite(file, data, LONGEST, place * LONGEST) != -1 || errno != ENOSPC) return perror("pwrite"), 4;
    return ends > 3 ? 0 : 5;
}
