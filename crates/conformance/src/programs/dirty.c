/* Changes a file through a shared mapping and keeps the pages dirty until its input ends: dirty FILE OFFSET.. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
int main(int argc, char **argv) {
    struct stat stat;
    int fd = open(argv[1], O_RDWR);
    if (fd < 0 || fstat(fd, &stat)) return 1;
    char *map = mmap(0, stat.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    /* The mapping needs no descriptor. */
    if (map == MAP_FAILED || close(fd)) return 2;
    for (int at = 2; at < argc; at++) memcpy(map + atol(argv[at]), "mapped", 6);
    puts("dirty");
    fflush(stdout);
    return read(0, &stat, 1) != 0;
}
