// SPDX-License-Identifier: BSD-2-Clause
/*
 * steer.c: the kernel gives each socket of a SO_REUSEPORT group a place, in the order of bind();
 * when a socket is closed for good the last one moves into its place. The group's program returns
 * the place, so a daemon that inherits a group has to know it: it sends a probe to every place and
 * looks which socket's drop counter moved. A filter that drops probes is on the sockets meanwhile,
 * so no process sees them, and no process's data are touched.
 */
#include "portd/steer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "util/bytes.h"
#include "util/clock.h"
#include "util/log.h"
#include "wire/packet.h"

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif
#ifndef UDP_NO_CHECK6_RX
#define UDP_NO_CHECK6_RX 102
#endif

#define PLACES		    256	 /* of a group, as far as one byte can name them */
#define PROBE_OPCODE	    0xff /* a BTH opcode that no receiver accepts */
#define PROBE_COUNT	    2
#define PLACES_WITHOUT_ECHO 16 /* after so many misses, probes do not get through at all */
#define PROBE_WAIT_NS	    (5 * NSEC_PER_MSEC)
#define PROBE_LONG_WAIT_NS  (15 * NSEC_PER_MSEC)
#define OFF_OPCODE	    0
#define OFF_QPN_TOP	    5
#define UDP_HDR_LEN	    8

static const int domains[2] = { AF_INET, AF_INET6 };

union address {
	struct sockaddr sa;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
};

/* the RoCE port at the wildcard or the loopback address */
static socklen_t make_address(union address *a, int family, bool loopback)
{
	memset(a, 0, sizeof(*a));
	if (family == FAMILY_IPV4) {
		a->in.sin_family = AF_INET;
		a->in.sin_port = htons(ROCE_UDP_PORT);
		a->in.sin_addr.s_addr = htonl(loopback ? INADDR_LOOPBACK : INADDR_ANY);
		return sizeof(a->in);
	}
	a->in6.sin6_family = AF_INET6;
	a->in6.sin6_port = htons(ROCE_UDP_PORT);
	a->in6.sin6_addr = loopback ? in6addr_loopback : in6addr_any;
	return sizeof(a->in6);
}

static int set_option(int fd, int level, int option, int value)
{
	return setsockopt(fd, level, option, &value, sizeof(value)) ? -errno : 0;
}

/* everything that must be so before the first packet arrives */
static int set_options(int fd, int family)
{
	int err = set_option(fd, SOL_SOCKET, SO_REUSEPORT, 1);

	if (family == FAMILY_IPV4) {
		err = err ?: set_option(fd, IPPROTO_IP, IP_PKTINFO, 1);
		err = err ?: set_option(fd, IPPROTO_IP, IP_RECVTOS, 1);
		err = err ?: set_option(fd, IPPROTO_IP, IP_RECVTTL, 1);
		return err ?: set_option(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO);
	}
	err = err ?: set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
	err = err ?: set_option(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1);
	err = err ?: set_option(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
	err = err ?: set_option(fd, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1);
	/* rxe and NICs send no UDP checksum (wire-facts 1.11) */
	err = err ?: set_option(fd, IPPROTO_UDP, UDP_NO_CHECK6_RX, 1);
	return err ?: set_option(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO);
}

static int open_socket(int family, bool in_group)
{
	union address a;
	socklen_t len = make_address(&a, family, false);
	int fd = socket(domains[family], SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int err;

	if (fd < 0)
		return -errno;
	if (in_group)
		err = set_options(fd, family);
	else
		err = family == FAMILY_IPV6 ? set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1) : 0;
	if (!err && bind(fd, &a.sa, len))
		err = -errno;
	if (err) {
		close(fd);
		return err;
	}
	return portd_fd_move_up(fd);
}

int steer_port_free(int family)
{
	int fd = open_socket(family, false);

	if (fd < 0)
		return fd == -EADDRNOTAVAIL ? -EAFNOSUPPORT : fd;
	close(fd);
	return 0;
}

int steer_fill(struct portd_fds *fds, int family)
{
	for (int slot = 0; slot < PORTD_SLOTS; slot++) {
		int fd;

		if (fds->fd[family][slot] >= 0)
			continue;
		fd = open_socket(family, true);
		if (fd < 0)
			return fd;
		fds->fd[family][slot] = fd;
	}
	return 0;
}

/*
 * The program. A probe goes to the place that its byte 5 names, whatever the map says.
 * @place: by slot; a slot whose place is its number needs no entry.
 */
static int attach_program(int fd, const int *place)
{
	struct sock_filter code[6 + 2 * PORTD_SLOTS];
	struct sock_fprog program = { .filter = code };
	unsigned short n = 0;

	code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_B | BPF_ABS, OFF_OPCODE);
	code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PROBE_OPCODE, 0, 2);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_B | BPF_ABS, OFF_QPN_TOP);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_A, 0);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_B | BPF_ABS, OFF_QPN_TOP);
	for (int slot = 0; slot < PORTD_SLOTS; slot++) {
		if (place[slot] == slot)
			continue;
		code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
							 (unsigned int)slot, 0, 1);
		code[n++] =
			(struct sock_filter)BPF_STMT(BPF_RET | BPF_K, (unsigned int)place[slot]);
	}
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_A, 0);
	program.len = n;
	if (setsockopt(fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program, sizeof(program)))
		return -errno;
	return 0;
}

static void set_probe_filter(const int *fds, bool on)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_B | BPF_ABS, UDP_HDR_LEN + OFF_OPCODE),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PROBE_OPCODE, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, 0),
		BPF_STMT(BPF_RET | BPF_K, 0xffffffff),
	};
	struct sock_fprog program = { .len = ARRAY_SIZE(code), .filter = code };
	int dummy = 0;

	for (int slot = 0; slot < PORTD_SLOTS; slot++) {
		if (fds[slot] < 0)
			continue;
		if (on)
			setsockopt(fds[slot], SOL_SOCKET, SO_ATTACH_FILTER, &program,
				   sizeof(program));
		else
			setsockopt(fds[slot], SOL_SOCKET, SO_DETACH_FILTER, &dummy, sizeof(dummy));
	}
}

static uint32_t drops_of(int fd)
{
	uint32_t info[SK_MEMINFO_VARS] = { 0 };
	socklen_t len = sizeof(info);

	if (fd < 0 || getsockopt(fd, SOL_SOCKET, SO_MEMINFO, info, &len))
		return 0;
	return info[SK_MEMINFO_DROPS];
}

struct search {
	int probe_fd, family;
	const int *fds;
	int *place_of;	    /* by slot; -1: not known */
	bool taken[PLACES]; /* by place */
	int unknown, total;
};

static int send_probes(int probe_fd, int place, int family)
{
	uint8_t probe[BTH_LEN + ICRC_LEN] = {
		[OFF_OPCODE] = PROBE_OPCODE, [OFF_QPN_TOP] = (uint8_t)place
	};
	union address to;
	socklen_t to_len = make_address(&to, family, true);

	for (int i = 0; i < PROBE_COUNT; i++)
		if (sendto(probe_fd, probe, sizeof(probe), MSG_NOSIGNAL, &to.sa, to_len) < 0)
			return -errno;
	return 0;
}

/* Which of the sockets without a place sees two probes; -ENOENT: none of ours, so far */
static int probe_place(struct search *search, int place, uint64_t wait_ns)
{
	const struct timespec pause = { .tv_nsec = 50000 };
	uint32_t before[PORTD_SLOTS];
	uint64_t give_up_ns;
	int err;

	for (int slot = 0; slot < PORTD_SLOTS; slot++)
		before[slot] = search->place_of[slot] < 0 ? drops_of(search->fds[slot]) : 0;
	err = send_probes(search->probe_fd, place, search->family);
	if (err)
		return err;
	give_up_ns = clock_ns() + wait_ns;
	do {
		int found = -ENOENT, candidates = 0;

		for (int slot = 0; slot < PORTD_SLOTS; slot++) {
			if (search->fds[slot] < 0 || search->place_of[slot] >= 0)
				continue;
			if (drops_of(search->fds[slot]) - before[slot] < PROBE_COUNT)
				continue;
			found = slot;
			candidates++;
		}
		if (candidates == 1)
			return found;
		nanosleep(&pause, NULL);
	} while (clock_ns() < give_up_ns);
	return -ENOENT;
}

/*
 * A real drop at the same moment moves a counter too, and on a busy machine the probes of the
 * place before may come late: only what is found twice is true.
 */
static int find_at_place(struct search *search, int place, uint64_t wait_ns)
{
	int found = probe_place(search, place, wait_ns);
	int again;

	if (found < 0)
		return found;
	again = probe_place(search, place, wait_ns);
	return again == found || (again < 0 && again != -ENOENT) ? again : -ENOENT;
}

/* one round over the places that are not found yet. Return: 0 or a negative errno */
static int search_places(struct search *search, int places, uint64_t wait_ns)
{
	for (int place = 0; place < places && search->unknown; place++) {
		int found;

		/*
		 * Past the end of the group the kernel chooses by hash; all of ours have been
		 * found by then, so a probe there changes nothing.
		 */
		if (search->taken[place])
			continue;
		found = find_at_place(search, place, wait_ns);
		if (found < 0 && found != -ENOENT)
			return found;
		if (place == PLACES_WITHOUT_ECHO && search->unknown == search->total)
			return -ENOENT;
		if (found < 0)
			continue;
		search->place_of[found] = place;
		search->taken[place] = true;
		search->unknown--;
	}
	return 0;
}

/*
 * Fill in the place of each socket.
 * @thorough: wait longer where a quick look did not find all.
 * Return: 0, -ENOENT when some are not known, or another negative errno.
 */
static int learn_places(const int *fds, int family, int *place_of, bool thorough)
{
	struct search search = { .fds = fds, .family = family, .place_of = place_of };
	int err;

	for (int slot = 0; slot < PORTD_SLOTS; slot++) {
		place_of[slot] = -1;
		search.total += fds[slot] >= 0;
	}
	search.unknown = search.total;
	search.probe_fd = socket(domains[family], SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (search.probe_fd < 0)
		return -errno;
	set_probe_filter(fds, true);
	err = search_places(&search, PORTD_SLOTS, PROBE_WAIT_NS);
	if (!err)
		err = search_places(&search, PLACES, PROBE_WAIT_NS);
	if (!err && thorough)
		err = search_places(&search, PLACES, PROBE_LONG_WAIT_NS);
	set_probe_filter(fds, false);
	close(search.probe_fd);
	return err ?: search.unknown ? -ENOENT : 0;
}

int steer_attach(const struct portd_fds *fds, int family, bool inherited)
{
	const int *group = fds->fd[family];
	int place_of[PORTD_SLOTS], identity[PORTD_SLOTS];
	int any = -1, err;

	for (int slot = 0; slot < PORTD_SLOTS; slot++) {
		identity[slot] = slot;
		if (any < 0)
			any = group[slot];
	}
	if (any < 0)
		return -EBADF;
	if (!inherited)
		return attach_program(any, identity);
	/*
	 * An inherited group normally has a program that knows probes; one that was never given a
	 * program gets one now.
	 */
	err = learn_places(group, family, place_of, false);
	if (err == -ENOENT) {
		err = attach_program(any, identity);
		if (err)
			return err;
		err = learn_places(group, family, place_of, true);
	}
	if (err) {
		log_debug("portd: cannot probe the group over loopback (%s): socket k is taken to "
			  "have place k",
			  strerror(-err));
		return attach_program(any, identity);
	}
	for (int slot = 0; slot < PORTD_SLOTS; slot++) {
		if (group[slot] < 0)
			place_of[slot] = slot;
		if (place_of[slot] != slot)
			log_debug("portd: slot %d has place %d", slot, place_of[slot]);
	}
	return attach_program(any, place_of);
}

static int get_option(int fd, int option)
{
	int value = -1;
	socklen_t len = sizeof(value);

	return getsockopt(fd, SOL_SOCKET, option, &value, &len) ? -1 : value;
}

/* of the socket's network namespace; 0 where the kernel (before 5.14) does not say */
static uint64_t netns_cookie(int fd)
{
	uint64_t cookie = 0;
	socklen_t len = sizeof(cookie);

	if (getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &len))
		return 0;
	return cookie;
}

static bool is_in_our_netns(int fd)
{
	int ours = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool same;

	if (ours < 0)
		ours = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	same = netns_cookie(ours) == netns_cookie(fd);
	if (ours >= 0)
		close(ours);
	return same;
}

bool steer_is_group_socket(int fd, int family)
{
	union address a, wanted;
	socklen_t len = sizeof(a), wanted_len = make_address(&wanted, family, false);
	struct stat st;

	if (get_option(fd, SO_DOMAIN) != domains[family] || get_option(fd, SO_TYPE) != SOCK_DGRAM ||
	    get_option(fd, SO_PROTOCOL) != IPPROTO_UDP || get_option(fd, SO_REUSEPORT) != 1)
		return false;
	if (fstat(fd, &st) || st.st_uid != geteuid() || !is_in_our_netns(fd))
		return false;
	if (getsockname(fd, &a.sa, &len) || len != wanted_len)
		return false;
	return !memcmp(&a, &wanted, len);
}

bool steer_same_socket(int fd_a, int fd_b)
{
	struct stat a, b;

	return !fstat(fd_a, &a) && !fstat(fd_b, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

void steer_drain(int fd)
{
	uint8_t byte;

	/* bounded: a sender that never stops must not hold the daemon */
	for (int i = 0; i < 65536; i++)
		if (recv(fd, &byte, 1, MSG_DONTWAIT) < 0 && errno != EINTR)
			return;
}
