/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * preload_paths.c: libc calls that take a path, in front of libc. A path below
 * /sys/class/infiniband, /sys/class/infiniband_verbs or /dev/infiniband that names one of our
 * devices leads into a tree that this process writes on first use; all other paths are passed on
 * untouched. Calls inside libc do not come here (fopen() to open()), so each entry point counts.
 *
 * These functions must carry no symbol version, or they do not match stat@GLIBC_2.33.
 */
/* stat() and stat64() are both defined here: they must not be one */
#undef _FILE_OFFSET_BITS
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "front/preload.h"
#include "front/sysfs_tree.h"

#define EXPORT __attribute__((visibility("default")))

struct ibv_device **softhca_ibv_get_device_list(int *num);
void softhca_ibv_free_device_list(struct ibv_device **list);

/* ---- the tree ------------------------------------------------------------- */

static struct {
	char root[64]; /* "" until made, or if it could not be */
	pid_t owner;
} tree;
static pthread_once_t tree_once = PTHREAD_ONCE_INIT;
/* the tree is being written by this thread: its own calls go straight through */
static __thread bool writing_tree;

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *where)
{
	return remove(path);
}

/* a process's tree goes with it, not with a forked child */
static void __attribute__((destructor)) remove_tree(void)
{
	if (!*tree.root || tree.owner != getpid())
		return;
	writing_tree = true;
	nftw(tree.root, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

/* real devices appear beside ours when the class directory is listed */
static void link_real_devices(const char *class)
{
	char from[PATH_MAX], to[PATH_MAX];
	struct dirent *entry;
	DIR *dir;

	snprintf(from, sizeof(from), "/sys/class/%s", class);
	dir = opendir(from);
	if (!dir)
		return;
	while ((entry = readdir(dir))) {
		if (entry->d_name[0] == '.')
			continue;
		if (snprintf(from, sizeof(from), "/sys/class/%s/%s", class, entry->d_name) >=
			    (int)sizeof(from) ||
		    snprintf(to, sizeof(to), "%s/%s/%s", tree.root, class, entry->d_name) >=
			    (int)sizeof(to))
			continue;
		if (symlink(from, to) && errno != EEXIST)
			break;
	}
	closedir(dir);
}

static void make_tree(void)
{
	char root[sizeof(tree.root)] = "/tmp/softhca-sysfs-XXXXXX";
	int saved = errno;

	writing_tree = true;
	if (!mkdtemp(root))
		goto out;
	strcpy(tree.root, root);
	tree.owner = getpid();
	if (softhca_sysfs_tree(root))
		goto out;
	link_real_devices("infiniband");
	link_real_devices("infiniband_verbs");
out:
	writing_tree = false;
	errno = saved;
}

/* ---- from a path to ours -------------------------------------------------- */

/* the part of @path behind directory @dir: "" for itself, "/..." below it; NULL: elsewhere */
static const char *below(const char *path, const char *dir)
{
	size_t len = strlen(dir);

	if (strncmp(path, dir, len) || (path[len] && path[len] != '/'))
		return NULL;
	return path + len;
}

/* @rest ("/name" or "/name/...") begins with a device's name, or with its dev_name */
static bool names_our_device(const char *rest, bool dev_name)
{
	struct ibv_device **list = softhca_ibv_get_device_list(NULL);
	size_t len = strcspn(rest + 1, "/");
	bool found = false;

	if (!list)
		return false;
	for (int i = 0; list[i] && !found; i++) {
		const char *name = dev_name ? list[i]->dev_name : list[i]->name;

		found = strlen(name) == len && !memcmp(name, rest + 1, len);
	}
	softhca_ibv_free_device_list(list);
	return found;
}

/* @rest of /sys/class/@class in the tree, if it is about us */
static const char *in_tree(const char *class, const char *rest, bool dev_name, char buf[PATH_MAX])
{
	if (*rest && rest[1] && !names_our_device(rest, dev_name))
		return NULL;
	pthread_once(&tree_once, make_tree);
	if (!*tree.root)
		return NULL;
	if (snprintf(buf, PATH_MAX, "%s/%s%s", tree.root, class, rest) >= PATH_MAX)
		return NULL;
	return buf;
}

static const char *map_path(const char *path, char buf[PATH_MAX])
{
	const char *rest;

	rest = below(path, "/dev/infiniband");
	if (rest)
		/* clients want a character device that can be read and written; none opens it */
		return *rest && names_our_device(rest, true) ? "/dev/null" : NULL;
	rest = below(path, "/sys/class/infiniband");
	if (rest)
		return in_tree("infiniband", rest, false, buf);
	rest = below(path, "/sys/class/infiniband_verbs");
	if (rest)
		return in_tree("infiniband_verbs", rest, true, buf);
	return NULL;
}

/* the path to use for @path */
static const char *our_path(const char *path, char buf[PATH_MAX])
{
	const char *mapped;
	int saved = errno;

	if (!path || path[0] != '/' || writing_tree ||
	    (!below(path, "/dev/infiniband") && !below(path, "/sys/class/infiniband") &&
	     !below(path, "/sys/class/infiniband_verbs")))
		return path;
	writing_tree = true; /* what listing our devices looks up is not meant for us */
	mapped = map_path(path, buf);
	writing_tree = false;
	errno = saved;
	return mapped ? mapped : path;
}

/* ---- the entry points ----------------------------------------------------- */

/* name(path, ...) without us; @type is the function's */
#define NEXT(name)                                                                                 \
	({                                                                                         \
		static typeof(name) *next;                                                         \
		if (!next)                                                                         \
			next = (typeof(name) *)preload_next(#name);                                \
		next;                                                                              \
	})

/* a function whose first argument is the path */
#define PATH_FIRST(ret, name, params, ...)                                                         \
	EXPORT ret name params;                                                                    \
	EXPORT ret name params                                                                     \
	{                                                                                          \
		char buf[PATH_MAX];                                                                \
                                                                                                   \
		path = our_path(path, buf);                                                        \
		return NEXT(name)(__VA_ARGS__);                                                    \
	}

PATH_FIRST(int, stat, (const char *restrict path, struct stat *restrict st), path, st)
PATH_FIRST(int, stat64, (const char *restrict path, struct stat64 *restrict st), path, st)
PATH_FIRST(int, lstat, (const char *restrict path, struct stat *restrict st), path, st)
PATH_FIRST(int, lstat64, (const char *restrict path, struct stat64 *restrict st), path, st)
PATH_FIRST(int, access, (const char *path, int mode), path, mode)
PATH_FIRST(FILE *, fopen, (const char *restrict path, const char *restrict mode), path, mode)
PATH_FIRST(FILE *, fopen64, (const char *restrict path, const char *restrict mode), path, mode)
PATH_FIRST(DIR *, opendir, (const char *path), path)
PATH_FIRST(ssize_t, readlink, (const char *restrict path, char *restrict to, size_t len), path, to,
	   len)
PATH_FIRST(int, scandir,
	   (const char *restrict path, struct dirent ***restrict list,
	    int (*filter)(const struct dirent *),
	    int (*order)(const struct dirent **, const struct dirent **)),
	   path, list, filter, order)
PATH_FIRST(int, scandir64,
	   (const char *restrict path, struct dirent64 ***restrict list,
	    int (*filter)(const struct dirent64 *),
	    int (*order)(const struct dirent64 **, const struct dirent64 **)),
	   path, list, filter, order)
PATH_FIRST(char *, realpath, (const char *restrict path, char *restrict to), path, to)
char *__realpath_chk(const char *path, char *to, size_t len);
PATH_FIRST(char *, __realpath_chk, (const char *path, char *to, size_t len), path, to, len)
int __open_2(const char *path, int flags);
PATH_FIRST(int, __open_2, (const char *path, int flags), path, flags)
int __open64_2(const char *path, int flags);
PATH_FIRST(int, __open64_2, (const char *path, int flags), path, flags)

/* before glibc 2.33 stat() was an inline call of these */
#define PATH_SECOND(name, stat_type)                                                               \
	int name(int version, const char *path, struct stat_type *st);                             \
	EXPORT int name(int version, const char *path, struct stat_type *st)                       \
	{                                                                                          \
		char buf[PATH_MAX];                                                                \
                                                                                                   \
		return NEXT(name)(version, our_path(path, buf), st);                               \
	}
PATH_SECOND(__xstat, stat)
PATH_SECOND(__xstat64, stat64)
PATH_SECOND(__lxstat, stat)
PATH_SECOND(__lxstat64, stat64)

EXPORT int fstatat(int dir, const char *restrict path, struct stat *restrict st, int flags)
{
	char buf[PATH_MAX];

	return NEXT(fstatat)(dir, our_path(path, buf), st, flags);
}

EXPORT int fstatat64(int dir, const char *restrict path, struct stat64 *restrict st, int flags)
{
	char buf[PATH_MAX];

	return NEXT(fstatat64)(dir, our_path(path, buf), st, flags);
}

EXPORT int statx(int dir, const char *restrict path, int flags, unsigned int mask,
		 struct statx *restrict st)
{
	char buf[PATH_MAX];

	return NEXT(statx)(dir, our_path(path, buf), flags, mask, st);
}

EXPORT int faccessat(int dir, const char *path, int mode, int flags)
{
	char buf[PATH_MAX];

	return NEXT(faccessat)(dir, our_path(path, buf), mode, flags);
}

/* open() has a third argument when it may create a file */
#define MODE(flags, last)                                                                          \
	({                                                                                         \
		mode_t mode_ = 0;                                                                  \
		if ((flags) & (O_CREAT | __O_TMPFILE)) {                                           \
			va_list args;                                                              \
                                                                                                   \
			va_start(args, last);                                                      \
			mode_ = va_arg(args, mode_t);                                              \
			va_end(args);                                                              \
		}                                                                                  \
		mode_;                                                                             \
	})

EXPORT int open(const char *path, int flags, ...)
{
	mode_t mode = MODE(flags, flags);
	char buf[PATH_MAX];

	return NEXT(open)(our_path(path, buf), flags, mode);
}

EXPORT int open64(const char *path, int flags, ...)
{
	mode_t mode = MODE(flags, flags);
	char buf[PATH_MAX];

	return NEXT(open64)(our_path(path, buf), flags, mode);
}

EXPORT int openat(int dir, const char *path, int flags, ...)
{
	mode_t mode = MODE(flags, flags);
	char buf[PATH_MAX];

	return NEXT(openat)(dir, our_path(path, buf), flags, mode);
}

EXPORT int openat64(int dir, const char *path, int flags, ...)
{
	mode_t mode = MODE(flags, flags);
	char buf[PATH_MAX];

	return NEXT(openat64)(dir, our_path(path, buf), flags, mode);
}
