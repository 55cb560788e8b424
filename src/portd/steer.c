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

#ifndef UDP_NO_CHECK6_RX
#define UDP_NO_CHECK6_RX 102
#endif

#define PLACES		    256	 /* of a group, as far as one byte can name them */
#define PROBE_OPCODE	    0xff /* a BTH opcode that no receiver accepts */
#define PROBE_COUNT	    2
#define PLACES_WITHOUT_ECHO 16 /* after so many misses, probes do not get through at all */
#define PROBE_WAIT_NS	    (5 * NSEC_PER_MSEC)
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

/*
 * Which of the sockets has this place; -ENOENT: none of ours (or the probe got lost). A real drop
 * at the same moment may move a counter too, hence two probes and one socket that saw both.
 */
static int find_at_place(int probe_fd, const int *fds, const int *place_of, int place, int family)
{
	uint8_t probe[BTH_LEN + ICRC_LEN] = {
		[OFF_OPCODE] = PROBE_OPCODE, [OFF_QPN_TOP] = (uint8_t)place
	};
	const struct timespec pause = { .tv_nsec = 50000 };
	uint32_t before[PORTD_SLOTS];
	uint64_t give_up_ns;
	union address to;
	socklen_t to_len = make_address(&to, family, true);

	for (int slot = 0; slot < PORTD_SLOTS; slot++)
		before[slot] = place_of[slot] < 0 ? drops_of(fds[slot]) : 0;
	for (int i = 0; i < PROBE_COUNT; i++)
		if (sendto(probe_fd, probe, sizeof(probe), MSG_NOSIGNAL, &to.sa, to_len) < 0)
			return -errno;
	give_up_ns = clock_ns() + PROBE_WAIT_NS;
	do {
		int found = -ENOENT, candidates = 0;

		for (int slot = 0; slot < PORTD_SLOTS; slot++) {
			if (fds[slot] < 0 || place_of[slot] >= 0)
				continue;
			if (drops_of(fds[slot]) - before[slot] < PROBE_COUNT)
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

/* fill in the place of each socket. Return: how many are not known, or a negative errno */
static int learn_places(const int *fds, int family, int *place_of)
{
	int probe_fd = socket(domains[family], SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int unknown = 0, found = 0, total;

	for (int slot = 0; slot < PORTD_SLOTS; slot++) {
		place_of[slot] = -1;
		unknown += fds[slot] >= 0;
	}
	total = unknown;
	if (probe_fd < 0)
		return -errno;
	set_probe_filter(fds, true);
	for (int place = 0; place < PLACES && unknown; place++) {
		/*
		 * Past the end of the group the kernel chooses by hash; all of ours have been
		 * found by then, so a probe there changes nothing.
		 */
		found = find_at_place(probe_fd, fds, place_of, place, family);
		if (found < 0 && found != -ENOENT)
			break;
		if (place == PLACES_WITHOUT_ECHO && unknown == total)
			break;
		if (found < 0)
			continue;
		place_of[found] = place;
		unknown--;
	}
	set_probe_filter(fds, false);
	close(probe_fd);
	return found < 0 && found != -ENOENT ? found : unknown;
}

int steer_attach(const struct portd_fds *fds, int family, bool inherited)
{
	const int *group = fds->fd[family];
	int place_of[PORTD_SLOTS], identity[PORTD_SLOTS];
	int any = -1, unknown, err;

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
	unknown = learn_places(group, family, place_of);
	if (unknown > 0) {
		err = attach_program(any, identity);
		if (err)
			return err;
		unknown = learn_places(group, family, place_of);
	}
	if (unknown) {
		log_debug("portd: probes do not come back over loopback (%d): socket k is taken to "
			  "have place k",
			  unknown);
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

bool steer_is_group_socket(int fd, int family)
{
	union address a, wanted;
	socklen_t len = sizeof(a), wanted_len = make_address(&wanted, family, false);
	struct stat st;

	if (get_option(fd, SO_DOMAIN) != domains[family] || get_option(fd, SO_TYPE) != SOCK_DGRAM ||
	    get_option(fd, SO_PROTOCOL) != IPPROTO_UDP || get_option(fd, SO_REUSEPORT) != 1)
		return false;
	if (fstat(fd, &st) || st.st_uid != geteuid())
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
