/* Writes a sector that begins with TEXT directly and durably, and does not wait for it in the call: aio FILE TEXT */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#define SECTOR 4096
int main(int argc, char **argv) {
    int fd = open(argv[1], O_WRONLY | O_DIRECT | O_DSYNC);
    char *sector = aligned_alloc(SECTOR, SECTOR);
    aio_context_t context = 0;
    if (argc != 3 || fd < 0 || !sector || ftruncate(fd, SECTOR) || syscall(SYS_io_setup, 1, &context)) return 1;
    memset(sector, 0, SECTOR);
    memcpy(sector, argv[2], strlen(argv[2]));
    struct iocb write = {.aio_lio_opcode = IOCB_CMD_PWRITE, .aio_fildes = fd, .aio_buf = (uintptr_t)sector, .aio_nbytes = SECTOR};
    struct iocb *list = &write;
    struct io_event event;
    if (syscall(SYS_io_submit, context, 1, &list) != 1) return 2;
    return syscall(SYS_io_getevents, context, 1, 1, &event, NULL) == 1 && event.res == SECTOR ? 0 : 3;
}
