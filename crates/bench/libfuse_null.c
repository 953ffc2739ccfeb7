/* The null server of crates/fuse/examples/null.rs once more, over libfuse: what the same answers cost with that library.
 *
 *     cc -O2 libfuse_null.c $(pkg-config --cflags --libs fuse3) -o libfuse-null
 *     libfuse-null THREADS DIR
 */
#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const double valid = 3600;
static _Atomic fuse_ino_t next_node = 2;

/* Names that were made, in chains with a lock each. */
#define CHAINS (1 << 16)

struct name {
	struct name *next;
	fuse_ino_t parent, node;
	mode_t mode;
	char text[];
};

static struct name *chains[CHAINS];
static pthread_mutex_t locks[64];

static unsigned chain_of(fuse_ino_t parent, const char *text)
{
	uint64_t hash = 0xcbf29ce484222325 ^ parent;

	for (; *text; text++)
		hash = (hash ^ (unsigned char)*text) * 0x100000001b3;
	return (hash ^ hash >> 32) % CHAINS;
}

static struct stat attributes(fuse_ino_t node, mode_t mode)
{
	struct stat attr;

	memset(&attr, 0, sizeof(attr));
	attr.st_ino = node;
	attr.st_mode = mode;
	attr.st_nlink = 1;
	attr.st_blksize = 4096;
	attr.st_uid = getuid();
	attr.st_gid = getgid();
	return attr;
}

/* Fills in what the name stands for; with a mode in `make` it must stand for nothing, and that is made. */
static int find(fuse_ino_t parent, const char *text, mode_t make, struct fuse_entry_param *entry)
{
	unsigned chain = chain_of(parent, text);
	pthread_mutex_t *lock = &locks[chain % 64];
	struct name *name;
	int error = 0;

	pthread_mutex_lock(lock);
	for (name = chains[chain]; name; name = name->next)
		if (name->parent == parent && !strcmp(name->text, text))
			break;
	if (name && make) {
		error = EEXIST;
	} else if (!name && !make) {
		error = ENOENT;
	} else if (!name) {
		name = malloc(sizeof(*name) + strlen(text) + 1);
		if (!name)
			abort();
		name->next = chains[chain];
		name->parent = parent;
		name->node = atomic_fetch_add(&next_node, 1);
		name->mode = make;
		strcpy(name->text, text);
		chains[chain] = name;
	}
	if (!error) {
		memset(entry, 0, sizeof(*entry));
		entry->ino = name->node;
		entry->attr = attributes(name->node, name->mode);
		entry->attr_timeout = valid;
		entry->entry_timeout = valid;
	}
	pthread_mutex_unlock(lock);
	return error;
}

static void reply_entry(fuse_req_t req, fuse_ino_t parent, const char *text, mode_t make)
{
	struct fuse_entry_param entry;
	int error = find(parent, text, make, &entry);

	if (error)
		fuse_reply_err(req, error);
	else
		fuse_reply_entry(req, &entry);
}

static void null_lookup(fuse_req_t req, fuse_ino_t parent, const char *text)
{
	reply_entry(req, parent, text, 0);
}

static void null_mkdir(fuse_req_t req, fuse_ino_t parent, const char *text, mode_t mode)
{
	reply_entry(req, parent, text, S_IFDIR | mode);
}

static void null_create(fuse_req_t req, fuse_ino_t parent, const char *text, mode_t mode, struct fuse_file_info *file)
{
	struct fuse_entry_param entry;
	int error = find(parent, text, S_IFREG | mode, &entry);

	if (error)
		fuse_reply_err(req, error);
	else
		fuse_reply_create(req, &entry, file);
}

static void null_getattr(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *file)
{
	struct stat attr = attributes(node, node == FUSE_ROOT_ID ? S_IFDIR | 0777 : S_IFREG | 0644);

	(void)file;
	fuse_reply_attr(req, &attr, valid);
}

static void null_release(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *file)
{
	(void)node;
	(void)file;
	fuse_reply_err(req, 0);
}

static void null_forget(fuse_req_t req, fuse_ino_t node, uint64_t lookups)
{
	(void)node;
	(void)lookups;
	fuse_reply_none(req);
}

static void null_statfs(fuse_req_t req, fuse_ino_t node)
{
	struct statvfs figures;

	(void)node;
	memset(&figures, 0, sizeof(figures));
	fuse_reply_statfs(req, &figures);
}

static const struct fuse_lowlevel_ops operations = {
	.lookup = null_lookup,
	.forget = null_forget,
	.getattr = null_getattr,
	.mkdir = null_mkdir,
	.create = null_create,
	.release = null_release,
	.statfs = null_statfs,
};

int main(int argc, char **argv)
{
	char *words[] = { argv[0], "-o", "fsname=null,subtype=libfuse-null" };
	struct fuse_args args = FUSE_ARGS_INIT(3, words);
	struct fuse_loop_config *config;
	struct fuse_session *session;
	int threads, failed, lock;

	if (argc != 3 || (threads = atoi(argv[1])) < 1) {
		fprintf(stderr, "usage: libfuse-null THREADS DIR\n");
		return 2;
	}
	for (lock = 0; lock < 64; lock++)
		pthread_mutex_init(&locks[lock], NULL);
	session = fuse_session_new(&args, &operations, sizeof(operations), NULL);
	if (!session || fuse_set_signal_handlers(session) || fuse_session_mount(session, argv[2]))
		return 1;
	printf("mounted on %s\n", argv[2]);
	fflush(stdout);
	config = fuse_loop_cfg_create();
	fuse_loop_cfg_set_clone_fd(config, 1);
	fuse_loop_cfg_set_max_threads(config, (unsigned)threads);
	fuse_loop_cfg_set_idle_threads(config, (unsigned)threads);
	failed = threads == 1 ? fuse_session_loop(session) : fuse_session_loop_mt(session, config);
	fuse_loop_cfg_destroy(config);
	fuse_session_unmount(session);
	fuse_remove_signal_handlers(session);
	fuse_session_destroy(session);
	return failed < 0;
}
