/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * device.c: our devices: one per network interface that is up and has an address. A device object
 * is made when its interface is first seen and lives as long as the process: applications keep
 * pointers after ibv_free_device_list(), librdmacm sorts by them (abi-facts 2.5).
 */
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/bytes.h"
#include "util/log.h"
#include "verbs/objects.h"
#include "wire/packet.h"

#define MAX_DEVICES 64

struct soft_device {
	struct ibv_device ibv;
	uint8_t growth[GROWTH_ROOM]; /* providers of other hardware look for their ops in here */
	bool present;
	unsigned int changes; /* enum device_change, not yet told */
	struct device_info info;
	struct ibv_context *cm_context;
};

/* under table.lock; devices are only ever added */
static struct {
	pthread_mutex_t lock;
	struct soft_device *devices[MAX_DEVICES];
	_Atomic unsigned int count;
} table = { .lock = PTHREAD_MUTEX_INITIALIZER };

static const union ibv_gid no_gid;

static struct soft_device *to_device(struct ibv_device *device)
{
	return container_of(device, struct soft_device, ibv);
}

static bool gid_equal(const union ibv_gid *a, const union ibv_gid *b)
{
	return !memcmp(a, b, sizeof(*a));
}

/* ---- identity ---------------------------------------------------------------- */

static uint64_t hash_add(uint64_t hash, const void *data, size_t len)
{
	const uint8_t *p = data;

	for (size_t i = 0; i < len; i++)
		hash = (hash ^ p[i]) * 0x100000001b3; /* FNV-1a */
	return hash;
}

/*
 * The same for a device each time, and different between interfaces, hosts and network
 * namespaces. Loopback's MAC is zero everywhere: the host has to tell itself apart.
 */
static __be64 make_guid(const char *ifname, const uint8_t mac[6])
{
	uint64_t hash = 0xcbf29ce484222325;
	char text[256] = "";
	struct stat st;
	FILE *f;

	f = fopen("/etc/machine-id", "re");
	if (f) {
		size_t n = fread(text, 1, sizeof(text), f);

		hash = hash_add(hash, text, n);
		fclose(f);
	}
	if (!gethostname(text, sizeof(text) - 1))
		hash = hash_add(hash, text, strlen(text));
	if (!stat("/proc/self/ns/net", &st))
		hash = hash_add(hash, &st.st_ino, sizeof(st.st_ino));
	hash = hash_add(hash, ifname, strlen(ifname));
	hash = hash_add(hash, mac, 6);
	/* an EUI-64 that nobody assigned: the "local" bit set, no group address; so never 0 */
	hash = (hash & ~(1ULL << 56)) | 1ULL << 57;
	return htobe64(hash);
}

/* ---- interfaces -> devices ---------------------------------------------------- */

/* SOFTHCA_DEVICES: comma-separated interface names; unset or empty = all */
static bool is_chosen(const char *ifname)
{
	const char *list = getenv("SOFTHCA_DEVICES");
	size_t len = strlen(ifname);

	if (!list || !*list)
		return true;
	while (*list) {
		size_t n = strcspn(list, ",");

		if (n == len && !memcmp(list, ifname, n))
			return true;
		list += n + (list[n] == ',');
	}
	return false;
}

static struct soft_device *find(const char *ifname)
{
	for (unsigned int i = 0; i < table.count; i++)
		if (!strcmp(table.devices[i]->info.ifname, ifname))
			return table.devices[i];
	return NULL;
}

static struct soft_device *add(const char *ifname)
{
	struct soft_device *device;

	if (table.count == MAX_DEVICES) {
		log_debug("more than %d interfaces: %s gets no device (see SOFTHCA_DEVICES)",
			  MAX_DEVICES, ifname);
		return NULL;
	}
	device = calloc(1, sizeof(*device));
	if (!device)
		return NULL;
	device->ibv.node_type = IBV_NODE_CA;
	device->ibv.transport_type = IBV_TRANSPORT_IB;
	snprintf(device->ibv.name, sizeof(device->ibv.name), "softhca_%s", ifname);
	snprintf(device->ibv.dev_name, sizeof(device->ibv.dev_name), "softhca_%s", ifname);
	snprintf(device->ibv.dev_path, sizeof(device->ibv.dev_path),
		 "/sys/class/infiniband_verbs/softhca_%s", ifname);
	snprintf(device->ibv.ibdev_path, sizeof(device->ibv.ibdev_path),
		 "/sys/class/infiniband/softhca_%s", ifname);
	snprintf(device->info.ifname, sizeof(device->info.ifname), "%s", ifname);
	/* device_is_ours() looks without the lock */
	table.devices[table.count] = device;
	table.count++;
	return device;
}

/* link-level facts; false: the interface is down or gone */
static bool update_link(struct soft_device *device, int sock)
{
	static const uint8_t no_mac[6];
	struct device_info *info = &device->info;
	struct ifreq ifr = { 0 };

	snprintf(ifr.ifr_name, sizeof(ifr.ifr_name), "%s", info->ifname);
	/* whatever fails below, the interface is not there */
	info->running = false;
	if (ioctl(sock, SIOCGIFINDEX, &ifr))
		return false;
	info->ifindex = ifr.ifr_ifindex;
	if (ioctl(sock, SIOCGIFMTU, &ifr))
		return false;
	info->netdev_mtu = ifr.ifr_mtu;
	if (ioctl(sock, SIOCGIFFLAGS, &ifr))
		return false;
	if (!(ifr.ifr_flags & IFF_UP))
		return false;
	info->running = ifr.ifr_flags & IFF_RUNNING;
	if (!info->guid) {
		const uint8_t *mac = ioctl(sock, SIOCGIFHWADDR, &ifr)
					     ? no_mac
					     : (const uint8_t *)ifr.ifr_hwaddr.sa_data;

		info->guid = make_guid(info->ifname, mac);
	}
	return true;
}

static bool address_to_gid(const struct sockaddr *addr, union ibv_gid *gid)
{
	*gid = no_gid;
	if (!addr)
		return false;
	if (addr->sa_family == AF_INET) {
		memset(gid->raw + 10, 0xff, 2);
		memcpy(gid->raw + 12, &((const struct sockaddr_in *)addr)->sin_addr, 4);
		return true;
	}
	if (addr->sa_family == AF_INET6) {
		memcpy(gid->raw, &((const struct sockaddr_in6 *)addr)->sin6_addr, 16);
		return true;
	}
	return false;
}

/* order of a fresh table, as Linux has it: link-local IPv6, IPv4, other IPv6 */
static int gid_rank(const union ibv_gid *gid)
{
	if (gid->raw[0] == 0xfe && (gid->raw[1] & 0xc0) == 0x80)
		return 0;
	return !gid->global.subnet_prefix ? 1 : 2;
}

static int find_gid(const union ibv_gid *gids, const union ibv_gid *gid)
{
	for (int i = 0; i < GID_TABLE_LEN; i++)
		if (gid_equal(&gids[i], gid))
			return i;
	return -1;
}

/* entries keep their index as long as their address is there; new ones take free slots.
 * Return: true = something changed */
static bool update_gids(struct device_info *info, const struct ifaddrs *list)
{
	union ibv_gid now[GID_TABLE_LEN] = { 0 }, gid;
	bool changed = false;
	int count = 0, slot;

	for (int rank = 0; rank < 3; rank++)
		for (const struct ifaddrs *a = list; a; a = a->ifa_next)
			if (count < GID_TABLE_LEN && !strcmp(a->ifa_name, info->ifname) &&
			    address_to_gid(a->ifa_addr, &gid) && gid_rank(&gid) == rank &&
			    find_gid(now, &gid) < 0)
				now[count++] = gid;
	for (int i = 0; i < GID_TABLE_LEN; i++)
		if (!gid_equal(&info->gids[i], &no_gid) && find_gid(now, &info->gids[i]) < 0) {
			info->gids[i] = no_gid;
			changed = true;
		}
	for (int i = 0; i < count; i++) {
		if (find_gid(info->gids, &now[i]) >= 0)
			continue;
		slot = find_gid(info->gids, &no_gid);
		info->gids[slot] = now[i];
		changed = true;
	}
	return changed;
}

static void update(struct soft_device *device, const struct ifaddrs *list, int sock)
{
	struct device_info *info = &device->info;
	bool was_running = info->running;

	if (update_gids(info, list))
		device->changes |= DEVICE_GIDS;
	device->present =
		update_link(device, sock) && is_chosen(info->ifname) &&
		memcmp(info->gids, &(union ibv_gid[GID_TABLE_LEN]){ 0 }, sizeof(info->gids));
	if (info->running != was_running)
		device->changes |= info->running ? DEVICE_PORT_UP : DEVICE_PORT_DOWN;
}

static void refresh_locked(const struct ifaddrs *list, int sock)
{
	union ibv_gid gid;

	for (const struct ifaddrs *a = list; a; a = a->ifa_next)
		if ((a->ifa_flags & IFF_UP) && address_to_gid(a->ifa_addr, &gid) &&
		    is_chosen(a->ifa_name) && !find(a->ifa_name))
			add(a->ifa_name);
	for (unsigned int i = 0; i < table.count; i++)
		update(table.devices[i], list, sock);
}

/* outside the table's lock: events take other locks */
static void tell_changes(void)
{
	unsigned int count = atomic_load(&table.count), changes;

	for (unsigned int i = 0; i < count; i++) {
		pthread_mutex_lock(&table.lock);
		changes = table.devices[i]->changes;
		table.devices[i]->changes = 0;
		pthread_mutex_unlock(&table.lock);
		if (changes)
			context_device_changed(&table.devices[i]->ibv, changes);
	}
}

void device_refresh(void)
{
	struct ifaddrs *list;
	int sock;

	if (getifaddrs(&list)) {
		log_debug("getifaddrs: %s", strerror(errno));
		return;
	}
	sock = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (sock < 0)
		sock = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (sock >= 0) {
		pthread_mutex_lock(&table.lock);
		refresh_locked(list, sock);
		pthread_mutex_unlock(&table.lock);
		close(sock);
		tell_changes();
	}
	freeifaddrs(list);
}

bool device_is_ours(const struct ibv_device *device)
{
	unsigned int count = atomic_load(&table.count);

	for (unsigned int i = 0; i < count; i++)
		if (&table.devices[i]->ibv == device)
			return true;
	return false;
}

void device_get_info(struct ibv_device *device, struct device_info *info)
{
	pthread_mutex_lock(&table.lock);
	*info = to_device(device)->info;
	pthread_mutex_unlock(&table.lock);
}

int device_get_gid(struct ibv_device *device, uint32_t index, union ibv_gid *gid, uint32_t *ifindex)
{
	const struct device_info *info = &to_device(device)->info;
	int ret = EINVAL;

	if (index >= GID_TABLE_LEN)
		return EINVAL;
	pthread_mutex_lock(&table.lock);
	if (!gid_equal(&info->gids[index], &no_gid)) {
		*gid = info->gids[index];
		*ifindex = info->ifindex;
		ret = 0;
	}
	pthread_mutex_unlock(&table.lock);
	return ret;
}

/* ---- for the CM ------------------------------------------------------------------ */

static struct ibv_device *search_gid(const union ibv_gid *gid, uint32_t ifindex)
{
	struct ibv_device *found = NULL;

	pthread_mutex_lock(&table.lock);
	for (unsigned int i = 0; i < table.count && !found; i++) {
		struct soft_device *device = table.devices[i];

		if (device->present && (!ifindex || device->info.ifindex == ifindex) &&
		    find_gid(device->info.gids, gid) >= 0)
			found = &device->ibv;
	}
	pthread_mutex_unlock(&table.lock);
	return found;
}

struct ibv_device *device_by_gid(const union ibv_gid *gid, uint32_t ifindex)
{
	struct ibv_device *device;

	if (gid_equal(gid, &no_gid))
		return NULL;
	device = search_gid(gid, ifindex);
	if (device)
		return device;
	device_refresh(); /* the address may be new */
	return search_gid(gid, ifindex);
}

int device_gid_index(struct ibv_device *device, const union ibv_gid *gid)
{
	int index = -1;

	pthread_mutex_lock(&table.lock);
	if (!gid_equal(gid, &no_gid))
		index = find_gid(to_device(device)->info.gids, gid);
	pthread_mutex_unlock(&table.lock);
	return index;
}

/* never changes */
const char *device_ifname(struct ibv_device *device)
{
	return to_device(device)->info.ifname;
}

uint32_t device_ifindex(struct ibv_device *device)
{
	uint32_t ifindex;

	pthread_mutex_lock(&table.lock);
	ifindex = to_device(device)->info.ifindex;
	pthread_mutex_unlock(&table.lock);
	return ifindex;
}

enum ibv_mtu device_active_mtu(struct ibv_device *device)
{
	uint32_t netdev_mtu;

	pthread_mutex_lock(&table.lock);
	netdev_mtu = to_device(device)->info.netdev_mtu;
	pthread_mutex_unlock(&table.lock);
	return mtu_from_netdev(netdev_mtu);
}

__be64 device_guid(struct ibv_device *device)
{
	__be64 guid;

	pthread_mutex_lock(&table.lock);
	guid = to_device(device)->info.guid;
	pthread_mutex_unlock(&table.lock);
	return guid;
}

struct ibv_context *device_cm_context(struct ibv_device *device)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	struct soft_device *d = to_device(device);
	struct ibv_context *context;

	pthread_mutex_lock(&lock);
	/* a forked child has an adapter of its own; the parent's context is of no use to it */
	if (!d->cm_context || !context_is_usable(d->cm_context))
		d->cm_context = softhca_ibv_open_device(device);
	context = d->cm_context;
	pthread_mutex_unlock(&lock);
	return context;
}

/* ---- the public calls --------------------------------------------------------------- */

struct ibv_device **softhca_ibv_get_device_list(int *num_devices)
{
	struct ibv_device **list;
	int n = 0;

	device_refresh();
	list = calloc(MAX_DEVICES + 1, sizeof(*list));
	if (!list)
		return NULL;
	pthread_mutex_lock(&table.lock);
	for (unsigned int i = 0; i < table.count; i++)
		if (table.devices[i]->present)
			list[n++] = &table.devices[i]->ibv;
	pthread_mutex_unlock(&table.lock);
	if (num_devices)
		*num_devices = n;
	return list;
}

void softhca_ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

const char *softhca_ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

int softhca_ibv_get_device_index(struct ibv_device *device)
{
	return (int)device_ifindex(device);
}

__be64 softhca_ibv_get_device_guid(struct ibv_device *device)
{
	return device_guid(device);
}
