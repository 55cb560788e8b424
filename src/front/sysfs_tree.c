/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sysfs_tree.c: see sysfs_tree.h. UCX, NCCL, perftest and rdma-core's tests read these files; what
 * each wants and does without them is in no specification, so that the tree follows the layout of
 * a Linux RoCE device.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "front/sysfs_tree.h"
#include "verbs/core_api.h"
#include "verbs/device.h"

/* a path below a root, extended and cut back while the tree is walked */
struct path {
	char text[PATH_MAX];
	size_t len;
};

/* append "/name"; the length to go back to, or 0 if it does not fit */
static size_t enter(struct path *path, const char *name)
{
	size_t old = path->len, len = strlen(name);

	if (old + len + 2 > sizeof(path->text))
		return 0;
	path->text[old] = '/';
	memcpy(path->text + old + 1, name, len + 1);
	path->len = old + 1 + len;
	return old;
}

static void leave(struct path *path, size_t old)
{
	path->len = old;
	path->text[old] = '\0';
}

/* make the directories of @relative below @path; @path is then that directory */
static int directory(struct path *path, const char *relative)
{
	char name[NAME_MAX + 1];
	size_t len;

	for (; *relative; relative += len + (relative[len] == '/')) {
		len = strcspn(relative, "/");
		if (len >= sizeof(name)) {
			errno = ENAMETOOLONG;
			return -1;
		}
		memcpy(name, relative, len);
		name[len] = '\0';
		if (!enter(path, name)) {
			errno = ENAMETOOLONG;
			return -1;
		}
		if (mkdir(path->text, 0755) && errno != EEXIST)
			return -1;
	}
	return 0;
}

static int __attribute__((format(printf, 3, 4)))
file(struct path *path, const char *name, const char *fmt, ...)
{
	size_t old = enter(path, name);
	va_list args;
	FILE *f;
	int ret;

	if (!old) {
		errno = ENAMETOOLONG;
		return -1;
	}
	f = fopen(path->text, "w");
	leave(path, old);
	if (!f)
		return -1;
	va_start(args, fmt);
	ret = vfprintf(f, fmt, args);
	va_end(args);
	return fclose(f) || ret < 0 ? -1 : 0;
}

static int numbered_file(struct path *path, const char *dir, int number, const char *text)
{
	size_t old = path->len;
	char name[16];
	int ret;

	snprintf(name, sizeof(name), "%d", number);
	ret = directory(path, dir) || file(path, name, "%s\n", text);
	leave(path, old);
	return ret ? -1 : 0;
}

/* the GID of an interface's address; 0: not an IP address */
static int address_gid(const struct sockaddr *address, union ibv_gid *gid)
{
	memset(gid, 0, sizeof(*gid));
	if (!address)
		return 0;
	if (address->sa_family == AF_INET6) {
		memcpy(gid->raw, &((const struct sockaddr_in6 *)address)->sin6_addr, 16);
		return 1;
	}
	if (address->sa_family != AF_INET)
		return 0;
	gid->raw[10] = gid->raw[11] = 0xff;
	memcpy(gid->raw + 12, &((const struct sockaddr_in *)address)->sin_addr, 4);
	return 1;
}

static int gid_files(struct path *port, struct ibv_device *device, const char *ifname)
{
	struct ifaddrs *list, *a;
	union ibv_gid gid;
	char text[64];
	int index, ret = 0;

	if (getifaddrs(&list))
		return -1;
	for (a = list; a && !ret; a = a->ifa_next) {
		if (strcmp(a->ifa_name, ifname) || !address_gid(a->ifa_addr, &gid))
			continue;
		index = device_gid_index(device, &gid);
		if (index < 0)
			continue;
		for (int i = 0; i < 8; i++)
			snprintf(text + 5 * i, 6, "%02x%02x:", gid.raw[2 * i], gid.raw[2 * i + 1]);
		text[39] = '\0';
		ret = numbered_file(port, "gids", index, text) ||
		      numbered_file(port, "gid_attrs/types", index, "RoCE v2") ||
		      numbered_file(port, "gid_attrs/ndevs", index, ifname);
	}
	freeifaddrs(list);
	return ret ? -1 : 0;
}

static int port_files(struct path *device_path, struct ibv_device *device, const char *ifname)
{
	size_t old = device_path->len;
	int ret;

	ret = directory(device_path, "ports/1") || file(device_path, "state", "4: ACTIVE\n") ||
	      file(device_path, "phys_state", "5: LinkUp\n") ||
	      file(device_path, "link_layer", "Ethernet\n") ||
	      file(device_path, "rate", "10 Gb/sec (4X)\n") || file(device_path, "lid", "0x0\n") ||
	      numbered_file(device_path, "pkeys", 0, "0xffff") ||
	      gid_files(device_path, device, ifname);
	leave(device_path, old);
	return ret ? -1 : 0;
}

/* device/net/<ifname>: which network interface the device sits on */
static int netdev_files(struct path *device_path, const char *ifname)
{
	size_t old = device_path->len;
	int ret;

	ret = directory(device_path, "device/net") || directory(device_path, ifname);
	leave(device_path, old);
	return ret || directory(device_path, "device") || file(device_path, "numa_node", "-1\n")
		       ? -1
		       : 0;
}

static int guid_file(struct path *path, const char *name, __be64 guid)
{
	uint8_t b[8];

	memcpy(b, &guid, sizeof(b));
	return file(path, name, "%02x%02x:%02x%02x:%02x%02x:%02x%02x\n", b[0], b[1], b[2], b[3],
		    b[4], b[5], b[6], b[7]);
}

static int device_files(struct path *root, struct ibv_device *device)
{
	const char *ifname = device_ifname(device);
	size_t old = root->len, at_device;
	int ret;

	if (directory(root, "infiniband") || directory(root, device->name))
		return -1;
	at_device = root->len;
	ret = file(root, "node_type", "1: CA\n") || file(root, "node_desc", "SoftHCA\n") ||
	      file(root, "fw_ver", "%s\n", SOFTHCA_VERSION) ||
	      file(root, "hca_type", "SoftHCA\n") || file(root, "board_id", "SoftHCA\n") ||
	      guid_file(root, "node_guid", device_guid(device)) ||
	      guid_file(root, "sys_image_guid", device_guid(device)) ||
	      port_files(root, device, ifname);
	leave(root, at_device);
	ret = ret || netdev_files(root, ifname);
	leave(root, old);
	if (ret)
		return -1;
	ret = directory(root, "infiniband_verbs") || directory(root, device->dev_name) ||
	      file(root, "ibdev", "%s\n", device->name);
	leave(root, old);
	return ret ? -1 : 0;
}

int softhca_sysfs_tree(const char *root)
{
	struct path path = { .len = strlen(root) };
	struct ibv_device **list;
	int ret = 0;

	if (path.len >= sizeof(path.text)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	memcpy(path.text, root, path.len + 1);
	list = softhca_ibv_get_device_list(NULL);
	if (!list)
		return -1;
	for (int i = 0; list[i] && !ret; i++)
		ret = device_files(&path, list[i]);
	softhca_ibv_free_device_list(list);
	return ret;
}
