/* Writes a file around the page cache, without waiting for it in the call, while two others read it through the cache: what a
   write has brought is read after its end. direct FILE ROUNDS */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#define LEN 655360
static int rounds(int direct, int cached, aio_context_t context, unsigned char *out, unsigned char *in, long count) {
    for (long round = 1; round <= count; round++) {
        memset(out, (int)(round % 251), LEN);
        struct iocb write = {.aio_lio_opcode = IOCB_CMD_PWRITE, .aio_fildes = direct,
                             .aio_buf = (uintptr_t)out, .aio_nbytes = LEN};
        struct iocb *list = &write;
        struct io_event event;
        if (syscall(SYS_io_submit, context, 1, &list) != 1) return 2;
        if (syscall(SYS_io_getevents, context, 1, 1, &event, NULL) != 1 || event.res != LEN) return 3;
        if (pread(cached, in, LEN, 0) != LEN) return 4;
        if (memcmp(in, out, LEN)) return fprintf(stderr, "old content is read after write %ld\n", round), 5;
    }
    return 0;
}
int main(int argc, char **argv) {
    int direct = open(argv[1], O_RDWR | O_CREAT | O_DIRECT, 0644), cached = open(argv[1], O_RDONLY);
    unsigned char *out = aligned_alloc(4096, LEN), *in = malloc(LEN);
    aio_context_t context = 0;
    pid_t readers[2];
    if (argc != 3 || direct < 0 || cached < 0 || !out || !in || ftruncate(direct, LEN)) return 1;
    if (syscall(SYS_io_setup, 1, &context)) return 1;
    for (int at = 0; at < 2; at++) {
        if ((readers[at] = fork()) < 0) return 1;
        if (readers[at]) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (pread(cached, in, LEN, 0) >= 0) {}
        _exit(1);
    }
    int result = rounds(direct, cached, context, out, in, atol(argv[2]));
    for (int at = 0; at < 2; at++) {
        kill(readers[at], SIGKILL);
        waitpid(readers[at], NULL, 0);
    }
    return result;
}
