/* The controls of linux/btrfs.h about subvolumes and devices, one a run: COMMAND PATH [ARGUMENTS]. What it answers, or its error, goes to stdout. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/btrfs.h>
#include <linux/btrfs_tree.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

static int told(int result)
{
	if (result < 0)
		printf("error %d\n", errno);
	else
		printf("ok %d\n", result);
	return 0;
}

static void put_bytes(const char *what, const void *bytes, int count)
{
	printf("%s", what);
	for (int at = 0; at < count; at++)
		printf("%02x", ((const unsigned char *)bytes)[at]);
	printf("\n");
}

static int named(int dir, unsigned long number, const char *name)
{
	static struct btrfs_ioctl_vol_args args;
	strncpy(args.name, name, sizeof args.name - 1);
	return told(ioctl(dir, number, &args));
}

static int named_v2(int dir, unsigned long number, const char *name, uint64_t flags)
{
	static struct btrfs_ioctl_vol_args_v2 args;
	args.flags = flags;
	if (flags & BTRFS_SUBVOL_SPEC_BY_ID)
		args.subvolid = strtoull(name, NULL, 10);
	else
		strncpy(args.name, name, sizeof args.name - 1);
	return told(ioctl(dir, number, &args));
}

static int snapshot(int dir, const char *source, const char *name)
{
	static struct btrfs_ioctl_vol_args_v2 args;
	args.fd = open(source, O_RDONLY);
	strncpy(args.name, name, sizeof args.name - 1);
	return told(ioctl(dir, BTRFS_IOC_SNAP_CREATE_V2, &args));
}

static int info(int file)
{
	static struct btrfs_ioctl_get_subvol_info_args args;
	int result = ioctl(file, BTRFS_IOC_GET_SUBVOL_INFO, &args);
	if (result < 0)
		return told(result);
	printf("%llu '%s' in %llu %llu, generation %llu, flags %llu\n", args.treeid, args.name, args.parent_id,
	       args.dirid, args.generation, args.flags);
	put_bytes("uuid ", args.uuid, 16);
	put_bytes("parent ", args.parent_uuid, 16);
	put_bytes("received ", args.received_uuid, 16);
	printf("%llu %llu %llu %llu\n", args.ctransid, args.otransid, args.stransid, args.rtransid);
	printf("%llu.%u %llu.%u %llu.%u %llu.%u\n", args.ctime.sec, args.ctime.nsec, args.otime.sec,
	       args.otime.nsec, args.stime.sec, args.stime.nsec, args.rtime.sec, args.rtime.nsec);
	return 0;
}

static int lookup(int file, const char *tree, const char *inode)
{
	static struct btrfs_ioctl_ino_lookup_args args;
	args.treeid = strtoull(tree, NULL, 10);
	args.objectid = strtoull(inode, NULL, 10);
	int result = ioctl(file, BTRFS_IOC_INO_LOOKUP, &args);
	if (result < 0)
		return told(result);
	printf("%llu %llu '%s'\n", args.treeid, args.objectid, args.name);
	return 0;
}

static int filesystem(int file)
{
	static struct btrfs_ioctl_fs_info_args args;
	int result = ioctl(file, BTRFS_IOC_FS_INFO, &args);
	if (result < 0)
		return told(result);
	printf("%llu %llu %u %u %u\n", args.max_id, args.num_devices, args.nodesize, args.sectorsize,
	       args.clone_alignment);
	put_bytes("fsid ", args.fsid, 16);
	return 0;
}

/* All items of a tree, COUNT at a time, as such programs go on: behind the last key. */
static int search(int file, const char *tree, const char *count)
{
	static struct btrfs_ioctl_search_args args;
	struct btrfs_ioctl_search_key *key = &args.key;
	key->tree_id = strtoull(tree, NULL, 10);
	key->max_objectid = key->max_offset = key->max_transid = (uint64_t)-1;
	key->max_type = 255;
	for (;;) {
		key->nr_items = strtoul(count, NULL, 10);
		int result = ioctl(file, BTRFS_IOC_TREE_SEARCH, &args);
		if (result < 0)
			return told(result);
		printf("%u items\n", key->nr_items);
		if (key->nr_items == 0)
			return 0;
		const char *at = args.buf;
		struct btrfs_ioctl_search_header head;
		for (unsigned number = 0; number < key->nr_items; number++) {
			memcpy(&head, at, sizeof head);
			at += sizeof head;
			printf("%llu %u %llu of %llu ", head.objectid, head.type, head.offset, head.transid);
			put_bytes("", at, head.len);
			at += head.len;
		}
		key->min_objectid = head.objectid;
		key->min_type = head.type;
		key->min_offset = head.offset + 1;
		if (key->min_offset == 0 && ++key->min_type > 255 && ++key->min_objectid == 0)
			return 0;
	}
}

/* One answer: TREE OBJECT MIN_TYPE MAX_TYPE COUNT; without an object of all. */
static int search_once(int file, char **words)
{
	static struct btrfs_ioctl_search_args args;
	struct btrfs_ioctl_search_key *key = &args.key;
	key->tree_id = strtoull(words[0], NULL, 10);
	key->max_offset = key->max_transid = (uint64_t)-1;
	key->min_objectid = strtoull(words[1], NULL, 10);
	key->max_objectid = key->min_objectid ? key->min_objectid : (uint64_t)-1;
	key->min_type = strtoul(words[2], NULL, 10);
	key->max_type = strtoul(words[3], NULL, 10);
	key->nr_items = strtoul(words[4], NULL, 10);
	int result = ioctl(file, BTRFS_IOC_TREE_SEARCH, &args);
	if (result < 0)
		return told(result);
	printf("%u items\n", key->nr_items);
	const char *at = args.buf;
	for (unsigned number = 0; number < key->nr_items; number++) {
		struct btrfs_ioctl_search_header head;
		memcpy(&head, at, sizeof head);
		at += sizeof head + head.len;
		printf("%llu %u %llu\n", head.objectid, head.type, head.offset);
	}
	return 0;
}

static int flags(int file, const char *wanted)
{
	__u64 word = 0;
	if (wanted) {
		word = strtoull(wanted, NULL, 10);
		return told(ioctl(file, BTRFS_IOC_SUBVOL_SETFLAGS, &word));
	}
	int result = ioctl(file, BTRFS_IOC_SUBVOL_GETFLAGS, &word);
	if (result < 0)
		return told(result);
	printf("flags %llu\n", word);
	return 0;
}

/* That it was not received. */
static int received(int file)
{
	static struct btrfs_ioctl_received_subvol_args args;
	return told(ioctl(file, BTRFS_IOC_SET_RECEIVED_SUBVOL, &args));
}

/* How many numbers are told, and the first six, which are 7 where they are not told. */
static int device_stats(int file, char **words)
{
	static struct btrfs_ioctl_get_dev_stats args;
	args.devid = strtoull(words[0], NULL, 10);
	args.nr_items = strtoull(words[1], NULL, 10);
	args.flags = strtoull(words[2], NULL, 10);
	for (int at = 0; at < 6; at++)
		((__u64 *)args.values)[at] = 7;
	int result = ioctl(file, BTRFS_IOC_GET_DEV_STATS, &args);
	if (result < 0)
		return told(result);
	printf("device %llu, %llu numbers, flags %llu:", args.devid, args.nr_items, args.flags);
	for (int at = 0; at < 6; at++)
		printf(" %llu", ((__u64 *)args.values)[at]);
	printf("\n");
	return 0;
}

/* The control of ours that has the server connect to a socket: the length of its name, then the name. */
static int watch(int dir, const char *name)
{
	static char page[8192];
	page[0] = strlen(name);
	strcpy(page + 1, name);
	return told(ioctl(dir, _IOWR(0xe6, 3, char[8192]), page));
}

/* What an open file answers when the subvolume it is in, NAME of the working directory, NUMBER, was deleted. */
static int gone(int file, const char *name, const char *number)
{
	int dir = open(".", O_RDONLY);
	char *inside[] = {"0", "0", "0", "255", "1"}, *by_number[] = {(char *)number, "0", "0", "255", "1"};
	if (dir < 0)
		return told(dir);
	named(dir, BTRFS_IOC_SNAP_DESTROY, name);
	info(file);
	lookup(file, "0", "256");
	search_once(file, inside);
	search_once(file, by_number);
	search_once(dir, by_number);
	flags(file, NULL);
	flags(file, "2");
	flags(file, NULL);
	flags(file, "0");
	return flags(file, "4");
}

int main(int count, char **words)
{
	if (count < 3)
		return 2;
	int file = open(words[2], O_RDONLY);
	if (file < 0)
		return told(file);
	const char *what = words[1], *first = count > 3 ? words[3] : NULL, *second = count > 4 ? words[4] : NULL;
	if (!strcmp(what, "create"))
		return named(file, BTRFS_IOC_SUBVOL_CREATE, first);
	if (!strcmp(what, "create-v2"))
		return named_v2(file, BTRFS_IOC_SUBVOL_CREATE_V2, first, second ? strtoull(second, NULL, 10) : 0);
	if (!strcmp(what, "destroy"))
		return named(file, BTRFS_IOC_SNAP_DESTROY, first);
	if (!strcmp(what, "destroy-v2"))
		return named_v2(file, BTRFS_IOC_SNAP_DESTROY_V2, first, 0);
	if (!strcmp(what, "destroy-id"))
		return named_v2(file, BTRFS_IOC_SNAP_DESTROY_V2, first, BTRFS_SUBVOL_SPEC_BY_ID);
	if (!strcmp(what, "snapshot"))
		return snapshot(file, first, second);
	if (!strcmp(what, "info"))
		return info(file);
	if (!strcmp(what, "lookup"))
		return lookup(file, first, second);
	if (!strcmp(what, "label")) {
		char label[FSLABEL_MAX] = "";
		strncpy(label, first, sizeof label - 1);
		return told(ioctl(file, FS_IOC_SETFSLABEL, label));
	}
	if (!strcmp(what, "filesystem"))
		return filesystem(file);
	if (!strcmp(what, "search"))
		return search(file, first, second);
	if (!strcmp(what, "search-once"))
		return search_once(file, words + 3);
	if (!strcmp(what, "device-stats") && count > 5)
		return device_stats(file, words + 3);
	if (!strcmp(what, "received"))
		return received(file);
	if (!strcmp(what, "watch"))
		return watch(file, first);
	if (!strcmp(what, "gone"))
		return gone(file, first, second);
	if (!strcmp(what, "flags"))
		return flags(file, first);
	if (!strcmp(what, "default")) {
		__u64 id = strtoull(first, NULL, 10);
		return told(ioctl(file, BTRFS_IOC_DEFAULT_SUBVOL, &id));
	}
	return 2;
}
