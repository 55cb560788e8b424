// SPDX-License-Identifier: BSD-2-Clause
/*
 * daemon.c: the port daemon. One thread, one poll() loop, static memory only: it may run in a
 * process that was forked from a threaded one (spawn.c), where nothing that locks is safe.
 *
 * Life: it takes the name (only one can), then the sockets: fresh ones when nobody has the port,
 * else those that a former daemon's clients hand over. Clients wait until it has them. It serves
 * until its last client has left.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "portd/listen_table.h"
#include "portd/mad_io.h"
#include "portd/mad_route.h"
#include "portd/proto.h"
#include "portd/slot_table.h"
#include "portd/steer.h"
#include "util/bytes.h"
#include "util/clock.h"
#include "util/log.h"

#define MAX_CONNECTIONS	 128 /* clients, and those that have not said hello */
#define HELLO_TIMEOUT_NS (5 * NSEC_PER_SEC)
#define HANDOVER_NS	 (1500 * NSEC_PER_MSEC) /* how long to wait for a former daemon's clients */
#define START_GRACE_NS	 (5 * NSEC_PER_SEC)	/* for the first client to come */
#define RETRY_MS	 10
#define MAD_BATCH	 64
#define EARLY_MADS	 64
#define QP1_BUFFER	 (4 << 20)

struct connection {
	int fd; /* -1: free entry */
	uid_t uid;
	pid_t pid;
	uint8_t slot;	    /* 0: none yet */
	bool hello_waits;   /* fresh client, daemon not ready yet */
	bool welcome_waits; /* took its slot over, daemon not ready yet */
	bool group_pending; /* it is to get a GROUP */
	bool listen_waits;  /* until former clients have registered theirs again */
	struct portd_msg listen;
	uint64_t accepted_ns;
};

enum poll_index { POLL_LISTEN, POLL_SIGNAL, POLL_QP1_IPV4, POLL_QP1_IPV6, POLL_CONNECTIONS };

static struct daemon {
	int listen_fd, signal_fd;
	bool stay, stop, ready;
	bool must_inherit[2]; /* the port was taken when we started */
	bool inherited[2];    /* sockets of a former daemon are in the group */
	bool settled;	      /* its clients have had time to come and to register again */
	uint64_t started_ns, alone_since_ns, grace_ns;
	struct portd_fds sockets;
	uint64_t substitute[2]; /* bits: opened by us where none had come back */
	struct slot_table slots;
	struct listen_table listens;
	struct connection connections[MAX_CONNECTIONS];
	uint16_t icrc_hint[2];
	uint32_t psn;
	unsigned int early_count; /* MADs for nobody that came before we were settled */
	struct portd_mad early[EARLY_MADS];
} d;

static uint64_t env_ms(const char *name, uint64_t default_ms)
{
	const char *text = getenv(name);
	char *end;
	unsigned long ms;

	if (!text || !*text)
		return default_ms * NSEC_PER_MSEC;
	ms = strtoul(text, &end, 10);
	if (*end || ms > 3600000)
		return default_ms * NSEC_PER_MSEC;
	return ms * NSEC_PER_MSEC;
}

static void drain_slot(int slot)
{
	for (int family = 0; family < 2; family++)
		if (d.sockets.fd[family][slot] >= 0)
			steer_drain(d.sockets.fd[family][slot]);
}

/* --- connections --- */

static void close_connection(struct connection *c)
{
	uint64_t now_ns = clock_ns();

	close(c->fd);
	c->fd = -1;
	c->listen_waits = false;
	if (c->slot) {
		log_debug("portd: pid %d left, slot %u rests", c->pid, c->slot);
		listen_remove_slot(&d.listens, c->slot);
		slot_release(&d.slots, c->slot, now_ns);
		drain_slot(c->slot);
		c->slot = 0;
		d.alone_since_ns = now_ns;
	}
}

/* tell a client why it gets no slot, and be done with it */
static void __attribute__((format(printf, 3, 4)))
refuse(struct connection *c, int err, const char *fmt, ...)
{
	struct portd_msg msg = { .type = MSG_WELCOME, .result = err };
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(msg.text, sizeof(msg.text), fmt, ap);
	va_end(ap);
	log_debug("portd: pid %d refused: %s", c->pid, msg.text);
	portd_msg_send(c->fd, &msg, NULL, 0, MSG_DONTWAIT);
	close_connection(c);
}

static bool may_hold_all_sockets(const struct connection *c)
{
	return c->uid == geteuid();
}

static void send_group(struct connection *c)
{
	struct portd_msg msg = { .type = MSG_GROUP };
	int err = portd_msg_send(c->fd, &msg, &d.sockets, PORTD_ALL_SLOTS, MSG_DONTWAIT);

	/* too many descriptors in flight or a full queue pass; anything else ends the connection */
	c->group_pending = err == -ETOOMANYREFS || err == -EAGAIN;
}

static void send_group_to_all(void)
{
	for (int i = 0; i < MAX_CONNECTIONS; i++) {
		struct connection *c = &d.connections[i];

		if (c->fd >= 0 && c->slot && may_hold_all_sockets(c))
			c->group_pending = true;
	}
}

static void welcome(struct connection *c, bool with_sockets)
{
	struct portd_msg msg = { .type = MSG_WELCOME, .slot = c->slot };
	int err = portd_msg_send(c->fd, &msg, with_sockets ? &d.sockets : NULL, 1ULL << c->slot,
				 MSG_DONTWAIT);

	if (err) {
		log_debug("portd: pid %d: no welcome: %s", c->pid, strerror(-err));
		close_connection(c);
		return;
	}
	log_debug("portd: pid %d has slot %u", c->pid, c->slot);
	c->group_pending = may_hold_all_sockets(c);
}

static void give_slot(struct connection *c)
{
	int slot = slot_take(&d.slots, clock_ns());

	c->hello_waits = false;
	if (slot < 0) {
		refuse(c, slot,
		       slot == -EAGAIN ? "all %d slots of the port daemon are taken or rest"
				       : "all %d slots of the port daemon are taken: that many "
					 "processes use RDMA here at once",
		       PORTD_SLOTS - 1);
		return;
	}
	c->slot = (uint8_t)slot;
	drain_slot(slot);
	welcome(c, true);
}

/* --- sockets that come back --- */

/*
 * @fd may be the socket of this slot: it is one of the group, no other slot has it, and the slot
 * has none, this one, or a substitute whose original comes late.
 */
static bool is_plausible(int family, int slot, int fd)
{
	const int *group = d.sockets.fd[family];

	if (fd < 0 || !steer_is_group_socket(fd, family))
		return false;
	if (group[slot] >= 0 && steer_same_socket(group[slot], fd))
		return true;
	if (group[slot] >= 0 && !(d.substitute[family] >> slot & 1))
		return false;
	for (int other = 0; other < PORTD_SLOTS; other++)
		if (group[other] >= 0 && steer_same_socket(group[other], fd))
			return false;
	return true;
}

/* Put a handed-over socket in its place. Return: true when @fd was kept */
static bool adopt(int family, int slot, int fd, bool is_owner)
{
	int *mine = &d.sockets.fd[family][slot];

	if (!is_plausible(family, slot, fd))
		return false;
	if (*mine >= 0 && steer_same_socket(*mine, fd))
		return false;
	if (*mine >= 0) {
		/* the new owner of a slot that was given away keeps the socket that it got */
		if (!is_owner && d.slots.used >> slot & 1)
			return false;
		close(*mine);
	}
	*mine = fd;
	d.substitute[family] &= ~(1ULL << slot);
	d.inherited[family] = true;
	return true;
}

static bool adopt_slot(struct portd_fds *fds, int slot, bool is_owner)
{
	bool changed = false;

	for (int family = 0; family < 2; family++) {
		if (!adopt(family, slot, fds->fd[family][slot], is_owner))
			continue;
		fds->fd[family][slot] = -1; /* ours now */
		changed = true;
	}
	return changed;
}

/* many peers may connect at once; as much as the system allows */
static void enlarge_qp1_buffers(void)
{
	const int bytes = QP1_BUFFER;

	for (int family = 0; family < 2; family++)
		setsockopt(d.sockets.fd[family][0], SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
}

static void attach_programs(void)
{
	for (int family = 0; family < 2; family++) {
		int err;

		if (d.sockets.fd[family][0] < 0)
			continue;
		err = steer_attach(&d.sockets, family, d.inherited[family]);
		if (err)
			log_error("cannot attach the packet steering program to UDP port %d: %s",
				  ROCE_UDP_PORT, strerror(-err));
	}
}

static void sockets_changed(void)
{
	if (!d.ready)
		return;
	attach_programs();
	send_group_to_all();
}

static void take_over(struct connection *c, struct portd_msg *msg, struct portd_fds *fds)
{
	uint8_t slot = (uint8_t)msg->slot;
	bool shown = false;

	if (!slot || msg->slot >= PORTD_SLOTS) {
		refuse(c, -EINVAL, "no such slot: %u", msg->slot);
		return;
	}
	for (int family = 0; family < 2; family++)
		shown |= is_plausible(family, slot, fds->fd[family][slot]);
	if (!shown) {
		refuse(c, -EPERM, "slot %u was not shown to be yours", slot);
		return;
	}
	if (slot_take_this(&d.slots, slot)) {
		refuse(c, -EBUSY, "slot %u has a new owner: this process's connections are lost",
		       slot);
		return;
	}
	c->slot = slot;
	if (adopt_slot(fds, slot, true))
		sockets_changed();
	if (d.ready)
		welcome(c, false);
	else
		c->welcome_waits = true;
}

static void take_group(struct connection *c, struct portd_fds *fds)
{
	bool changed = false;

	if (!c->slot || !may_hold_all_sockets(c)) {
		close_connection(c);
		return;
	}
	for (int slot = 0; slot < PORTD_SLOTS; slot++)
		changed |= adopt_slot(fds, slot, false);
	if (changed)
		sockets_changed();
}

/* --- getting the port --- */

static void give_up(int err)
{
	for (int i = 0; i < MAX_CONNECTIONS; i++) {
		struct connection *c = &d.connections[i];

		if (c->fd < 0)
			continue;
		if (err == -EADDRINUSE)
			refuse(c, err,
			       "UDP port %d of this network namespace is taken: by rdma_rxe (remove "
			       "its links: 'rdma link delete NAME'), by another user's softhca "
			       "programs, or by a program that 'ss -ulpn sport = :%d' shows",
			       ROCE_UDP_PORT, ROCE_UDP_PORT);
		else
			refuse(c, err, "the port daemon cannot open UDP port %d: %s", ROCE_UDP_PORT,
			       strerror(-err));
	}
	if (err == -EADDRINUSE)
		log_error("UDP port %d is taken (rdma_rxe? see 'rdma link' and 'ss -ulpn sport = "
			  ":%d')",
			  ROCE_UDP_PORT, ROCE_UDP_PORT);
	else
		log_error("cannot open UDP port %d: %s", ROCE_UDP_PORT, strerror(-err));
	d.stop = true;
}

static bool is_complete(int family)
{
	for (int slot = 0; slot < PORTD_SLOTS; slot++)
		if (d.sockets.fd[family][slot] < 0)
			return false;
	return true;
}

/* open what is missing and let the waiting clients in */
static void become_ready(void)
{
	bool any = false;

	for (int family = 0; family < 2; family++) {
		int err;

		for (int slot = 0; slot < PORTD_SLOTS; slot++)
			if (d.sockets.fd[family][slot] < 0)
				d.substitute[family] |= 1ULL << slot;
		err = steer_fill(&d.sockets, family);
		if (err == -EAFNOSUPPORT || err == -EADDRNOTAVAIL)
			continue; /* no such family here */
		if (err) {
			give_up(err);
			return;
		}
		any = true;
	}
	if (!any) {
		give_up(-EAFNOSUPPORT);
		return;
	}
	d.ready = true;
	enlarge_qp1_buffers();
	attach_programs();
	log_debug("portd: ready");
	for (int i = 0; i < MAX_CONNECTIONS; i++) {
		struct connection *c = &d.connections[i];

		if (c->fd >= 0 && c->welcome_waits) {
			c->welcome_waits = false;
			welcome(c, false);
		}
	}
	for (int i = 0; i < MAX_CONNECTIONS; i++) {
		struct connection *c = &d.connections[i];

		if (c->fd >= 0 && c->hello_waits)
			give_slot(c);
	}
}

static void check_port(void)
{
	for (int family = 0; family < 2; family++) {
		int err = steer_port_free(family);

		d.must_inherit[family] = err == -EADDRINUSE;
		if (d.must_inherit[family])
			log_debug("portd: IPv%d port is taken: waiting for a former daemon's "
				  "clients",
				  family == FAMILY_IPV4 ? 4 : 6);
	}
}

/* all that can come back has come, or the time is over */
static void try_become_ready(uint64_t now_ns)
{
	bool complete = true;

	if (d.ready || d.stop)
		return;
	for (int family = 0; family < 2; family++)
		if (d.must_inherit[family] && !is_complete(family))
			complete = false;
	if (complete || now_ns - d.started_ns >= HANDOVER_NS)
		become_ready();
}

/* --- requests --- */

static void hello(struct connection *c, struct portd_msg *msg, struct portd_fds *fds)
{
	if (c->slot || c->hello_waits) {
		close_connection(c);
		return;
	}
	if (msg->flags & PORTD_TAKEOVER) {
		take_over(c, msg, fds);
		return;
	}
	if (d.ready)
		give_slot(c);
	else
		c->hello_waits = true;
}

static void answer(struct connection *c, const struct portd_msg *request, int result)
{
	struct portd_msg msg = { .type = MSG_RESULT, .seq = request->seq, .result = result };

	/* a client that does not read its answers is of no use to anyone */
	if (portd_msg_send(c->fd, &msg, NULL, 0, MSG_DONTWAIT))
		close_connection(c);
}

/* A new listen must not take what a former daemon's client, still on its way to us, has */
static void listen_request(struct connection *c, const struct portd_msg *msg)
{
	if (d.settled || msg->flags & PORTD_AGAIN) {
		answer(c, msg,
		       listen_add(&d.listens, msg->listen.service_id, &msg->listen.gid, c->slot));
		return;
	}
	if (c->listen_waits) {
		answer(c, msg, -EBUSY); /* one at a time */
		return;
	}
	c->listen = *msg;
	c->listen_waits = true;
}

static void handle_message(struct connection *c, struct portd_msg *msg, struct portd_fds *fds)
{
	if (msg->type == MSG_HELLO) {
		hello(c, msg, fds);
		return;
	}
	if (!c->slot) {
		refuse(c, -EPROTO, "message %u before hello", msg->type);
		return;
	}
	switch (msg->type) {
	case MSG_GROUP:
		take_group(c, fds);
		return;
	case MSG_LISTEN:
		listen_request(c, msg);
		return;
	case MSG_UNLISTEN:
		listen_remove(&d.listens, msg->listen.service_id, &msg->listen.gid, c->slot);
		return;
	default:
		log_debug("portd: pid %d sent message %u", c->pid, msg->type);
		answer(c, msg, -EOPNOTSUPP);
	}
}

static void read_connection(struct connection *c)
{
	struct portd_msg msg;
	struct portd_fds fds;
	int n = portd_msg_recv(c->fd, &msg, &fds, MSG_DONTWAIT);

	if (n == -EAGAIN)
		return;
	if (n == 1) {
		handle_message(c, &msg, &fds);
		portd_fds_close(&fds); /* what was not adopted */
		return;
	}
	if (n < 0)
		log_debug("portd: pid %d: %s", c->pid, strerror(-n));
	close_connection(c);
}

static void accept_connections(void)
{
	for (;;) {
		struct connection *c = NULL;
		struct ucred cred = { .uid = (uid_t)-1 };
		socklen_t len = sizeof(cred);
		int fd;

		for (int i = 0; i < MAX_CONNECTIONS && !c; i++)
			if (d.connections[i].fd < 0)
				c = &d.connections[i];
		if (!c)
			return; /* the backlog holds them; expire() makes room */
		fd = accept4(d.listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0)
			return;
		if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len)) {
			close(fd);
			continue;
		}
		*c = (struct connection){
			.fd = fd, .uid = cred.uid, .pid = cred.pid, .accepted_ns = clock_ns()
		};
	}
}

/* --- QP1 --- */

static void reply_mad(const struct portd_mad *mad, struct portd_mad *reply)
{
	uint8_t packet[MAD_PACKET_LEN];
	int err;

	reply->sgid = mad->dgid;
	reply->dgid = mad->sgid;
	reply->ifindex = mad->ifindex;
	mad_build(packet, reply, d.psn++);
	err = mad_send_packet(d.sockets.fd[FAMILY_IPV4][0], d.sockets.fd[FAMILY_IPV6][0], reply,
			      packet, sizeof(packet));
	counter_inc(CNT_CM_TX);
	if (err)
		log_debug("portd: cannot answer a MAD: %s", strerror(-err));
}

static void deliver_mad(uint8_t slot, const struct portd_mad *mad)
{
	struct portd_msg msg = { .type = MSG_MAD, .mad = *mad };

	for (int i = 0; i < MAX_CONNECTIONS; i++) {
		struct connection *c = &d.connections[i];

		if (c->fd < 0 || c->slot != slot)
			continue;
		/* a client that does not keep up loses MADs, as a full QP1 would */
		if (portd_msg_send(c->fd, &msg, NULL, 0, MSG_DONTWAIT))
			counter_inc(CNT_DROP_MAD);
		return;
	}
}

/* nobody has it now, but a former daemon's client may come and have it */
static void keep_for_later(const struct portd_mad *mad)
{
	if (d.early_count < EARLY_MADS)
		d.early[d.early_count++] = *mad;
	else
		counter_inc(CNT_DROP_MAD);
}

static void handle_mad(const struct portd_mad *mad)
{
	struct portd_mad reply;
	uint8_t slot;

	switch (mad_route(&d.listens, d.slots.used, mad->data, &mad->dgid, &slot, reply.data)) {
	case MAD_DELIVER:
		log_debug("portd: MAD of attribute 0x%x for slot %u", get_be16(mad->data + 16),
			  slot);
		deliver_mad(slot, mad);
		return;
	case MAD_REPLY:
		log_debug("portd: MAD of attribute 0x%x for nobody: %s", get_be16(mad->data + 16),
			  d.settled ? "answered" : "kept for now");
		if (d.settled)
			reply_mad(mad, &reply);
		else
			keep_for_later(mad);
		return;
	case MAD_DROP:
		if (!d.settled) {
			keep_for_later(mad);
			return;
		}
		counter_inc(CNT_DROP_MAD);
		log_debug("portd: MAD of attribute 0x%x dropped: nobody here has ID 0x%08x",
			  get_be16(mad->data + 16), get_be32(mad->data + 28));
	}
}

static void read_qp1(int family)
{
	for (int i = 0; i < MAD_BATCH; i++) {
		uint8_t data[PACKET_MAX_LEN];
		struct portd_mad mad;
		enum counter drop;
		uint16_t sport;
		int n = mad_recv_packet(d.sockets.fd[family][0], &mad, &sport, data, sizeof(data));

		if (n == -EAGAIN)
			return;
		if (n < 0)
			continue;
		counter_inc(CNT_RX_PACKETS);
		if (n > (int)sizeof(data)) {
			counter_inc(CNT_DROP_LENGTH);
			continue;
		}
		drop = mad_parse(&mad, sport, &d.icrc_hint[family], data, (uint32_t)n);
		if (drop != DROP_NONE) {
			counter_inc(drop);
			log_debug("portd: packet for QP1 dropped: %s", counter_names[drop]);
			continue;
		}
		counter_inc(CNT_CM_RX);
		handle_mad(&mad);
	}
}

/* Everyone who knew the former daemon is here: answer what waited for that */
static void try_settle(uint64_t now_ns)
{
	if (d.settled || !d.ready)
		return;
	if ((d.must_inherit[FAMILY_IPV4] || d.must_inherit[FAMILY_IPV6]) &&
	    now_ns - d.started_ns < HANDOVER_NS)
		return;
	d.settled = true;
	log_debug("portd: settled");
	for (int i = 0; i < MAX_CONNECTIONS; i++) {
		struct connection *c = &d.connections[i];

		if (c->fd < 0 || !c->listen_waits)
			continue;
		c->listen_waits = false;
		listen_request(c, &c->listen);
	}
	for (unsigned int i = 0; i < d.early_count; i++)
		handle_mad(&d.early[i]);
	d.early_count = 0;
}

/* --- the loop --- */

/* Return: whether there is any client */
static bool expire(uint64_t now_ns)
{
	bool any = false;

	for (int i = 0; i < MAX_CONNECTIONS; i++) {
		struct connection *c = &d.connections[i];

		if (c->fd < 0)
			continue;
		if (!c->slot && !c->hello_waits && now_ns - c->accepted_ns > HELLO_TIMEOUT_NS) {
			close_connection(c);
			continue;
		}
		any |= c->slot || c->hello_waits;
		if (c->group_pending)
			send_group(c);
	}
	return any;
}

static int next_timeout_ms(bool has_clients)
{
	bool hurry = !d.settled;

	for (int i = 0; i < MAX_CONNECTIONS; i++)
		hurry |= d.connections[i].fd >= 0 && d.connections[i].group_pending;
	if (hurry)
		return RETRY_MS;
	return has_clients ? 1000 : 50;
}

static void poll_once(bool has_clients)
{
	struct pollfd fds[POLL_CONNECTIONS + MAX_CONNECTIONS];
	bool full = true;

	for (int i = 0; i < MAX_CONNECTIONS; i++) {
		fds[POLL_CONNECTIONS + i] =
			(struct pollfd){ .fd = d.connections[i].fd, .events = POLLIN };
		full &= d.connections[i].fd >= 0;
	}
	fds[POLL_LISTEN] = (struct pollfd){ .fd = full ? -1 : d.listen_fd, .events = POLLIN };
	fds[POLL_SIGNAL] = (struct pollfd){ .fd = d.signal_fd, .events = POLLIN };
	for (int family = 0; family < 2; family++)
		fds[POLL_QP1_IPV4 + family] =
			(struct pollfd){ .fd = d.ready ? d.sockets.fd[family][0] : -1,
					 .events = POLLIN };

	if (poll(fds, ARRAY_SIZE(fds), next_timeout_ms(has_clients)) <= 0)
		return;
	if (fds[POLL_SIGNAL].revents)
		d.stop = true;
	/* before QP1: a listen that was asked for earlier counts for a REQ that came later */
	for (int i = 0; i < MAX_CONNECTIONS; i++)
		if (fds[POLL_CONNECTIONS + i].revents && d.connections[i].fd >= 0)
			read_connection(&d.connections[i]);
	for (int family = 0; family < 2; family++)
		if (fds[POLL_QP1_IPV4 + family].revents)
			read_qp1(family);
	if (fds[POLL_LISTEN].revents)
		accept_connections();
}

static int open_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static void raise_descriptor_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		return;
	limit.rlim_cur = MIN(limit.rlim_max, 4096);
	setrlimit(RLIMIT_NOFILE, &limit);
}

static int init(bool stay)
{
	memset(&d, 0, sizeof(d));
	for (int i = 0; i < MAX_CONNECTIONS; i++)
		d.connections[i].fd = -1;
	portd_fds_init(&d.sockets);
	raise_descriptor_limit();
	d.stay = stay;
	d.grace_ns = env_ms("SOFTHCA_PORTD_GRACE_MS", 1000);
	d.slots.timewait_ns = env_ms("SOFTHCA_PORTD_TIMEWAIT_MS", 4000);
	d.started_ns = clock_ns();
	d.alone_since_ns = d.started_ns + START_GRACE_NS;
	d.psn = (uint32_t)d.started_ns;
	d.listen_fd = portd_name_bind();
	if (d.listen_fd < 0)
		return d.listen_fd;
	d.signal_fd = open_signals();
	return 0;
}

int portd_main(int stay)
{
	bool has_clients = false;
	int err = init(stay);

	if (err) {
		log_error("cannot start the port daemon: %s",
			  err == -EADDRINUSE ? "one runs already in this network namespace"
					     : strerror(-err));
		/* of several clients' daemons one is enough */
		return err == -EADDRINUSE && !stay ? 0 : 1;
	}
	check_port();
	while (!d.stop) {
		uint64_t now_ns = clock_ns();

		try_become_ready(now_ns);
		try_settle(now_ns);
		has_clients = expire(now_ns);
		if (!has_clients && !d.stay && now_ns > d.alone_since_ns &&
		    now_ns - d.alone_since_ns > d.grace_ns)
			break;
		if (!d.stop)
			poll_once(has_clients);
	}
	log_debug("portd: ends");
	err = d.ready || !d.must_inherit[FAMILY_IPV4] ? 0 : 1;
	for (int i = 0; i < MAX_CONNECTIONS; i++)
		if (d.connections[i].fd >= 0)
			close(d.connections[i].fd);
	close(d.listen_fd);
	close(d.signal_fd);
	portd_fds_close(&d.sockets);
	return err;
}
