/* Changes a file through a shared mapping, every second page of it from the front on and again and again, until its input ends: busy FILE */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
int main(int argc, char **argv) {
    struct stat stat;
    struct pollfd in = {0, POLLIN, 0};
    int fd = open(argv[1], O_RDWR);
    if (argc != 2 || fd < 0 || fstat(fd, &stat)) return 1;
    char *map = mmap(0, stat.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED || close(fd)) return 2;
    for (long at = 0; at < stat.st_size; at += 8192) map[at] = 1;
    puts("dirty");
    fflush(stdout);
    for (long at = 0; poll(&in, 1, 0) == 0; at = (at + 8192) % stat.st_size) map[at] += 2;
    return 0;
}
