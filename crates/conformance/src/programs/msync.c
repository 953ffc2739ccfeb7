/* Changes a file through a shared mapping and waits until that is durable: msync FILE TEXT */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int argc, char **argv) {
    int fd = open(argv[1], O_RDWR);
    if (argc != 3 || fd < 0) return 1;
    char *map = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED || close(fd)) return 2;
    memcpy(map, argv[2], strlen(argv[2]));
    return msync(map, 4096, MS_SYNC) ? 3 : 0;
}
