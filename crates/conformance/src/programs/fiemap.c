/* What FS_IOC_FIEMAP tells of a file: a line for each extent with its place in the file, its place on the device, its length, all
 * bytes, and its flags. fiemap FILE [START LENGTH] */
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>

#define ROOM 500

int main(int count, char **words)
{
	unsigned long long start = count > 3 ? strtoull(words[2], NULL, 10) : 0;
	unsigned long long length = count > 3 ? strtoull(words[3], NULL, 10) : FIEMAP_MAX_OFFSET;
	unsigned long long end = length > FIEMAP_MAX_OFFSET - start ? FIEMAP_MAX_OFFSET : start + length;
	struct fiemap *map = malloc(sizeof(*map) + ROOM * sizeof(struct fiemap_extent));
	int file = count > 1 ? open(words[1], O_RDONLY) : -1;

	if (file < 0 || !map) {
		perror(count > 1 ? words[1] : "a file");
		return 1;
	}
	while (start < end) {
		*map = (struct fiemap){ .fm_start = start, .fm_length = end - start, .fm_extent_count = ROOM };
		if (ioctl(file, FS_IOC_FIEMAP, map) != 0) {
			perror("FS_IOC_FIEMAP");
			return 1;
		}
		if (map->fm_mapped_extents == 0)
			return 0;
		for (unsigned i = 0; i < map->fm_mapped_extents; i++) {
			struct fiemap_extent *extent = &map->fm_extents[i];
			printf("%llu %llu %llu %u\n", extent->fe_logical, extent->fe_physical, extent->fe_length,
			       extent->fe_flags);
			if (extent->fe_flags & FIEMAP_EXTENT_LAST)
				return 0;
			start = extent->fe_logical + extent->fe_length;
		}
	}
	return 0;
}
