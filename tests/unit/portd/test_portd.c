// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_portd.c: real clients and daemons, each test in a network namespace of its own: slots,
 * relay, the daemon's death and succession, clients' deaths, bad clients.
 *
 * This program is also the daemon: the library is told so by SOFTHCA_PORTD, and runs it as
 * `test_portd portd`. Clients are forked workers that do what they are told over a socket pair.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <dirent.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "namespace.h"
#include "portd/mad_io.h"
#include "portd/portd.h"
#include "portd/proto.h"
#include "util/bytes.h"
#include "util/clock.h"

#define SERVICE 0x01061144ULL
#define WAIT_MS 8000 /* far beyond what anything takes */

enum op {
	OP_CONNECT,
	OP_SLOT,
	OP_LISTEN,
	OP_UNLISTEN,
	OP_SEND,
	OP_RECV_MAD,
	OP_RECV_DATA,
	OP_FORK,
	OP_DISCONNECT,
	OP_HIGH_FDS,
	OP_SETUID,
};

struct command {
	enum op op;
	uint64_t service_id;
	union ibv_gid gid;
	struct portd_mad mad;
	int timeout_ms;
};

struct worker {
	pid_t pid;
	int sock;
	int slot;
};

static const union ibv_gid any, loopback4 = { { [10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1 } },
				loopback6 = { { [15] = 1 } };

/* --- in the worker --- */

static int mad_pipe[2];
static struct portd_client *client;

static void on_mad(void *arg, const struct portd_mad *mad)
{
	/* a listen from within the callback must not lock up */
	if (get_be16(mad->data + 16) == 0x10 && mad->data[255] == 0xcb) {
		CHECK_EQUAL(portd_listen(client, SERVICE + 100, &any), 0);
		CHECK_EQUAL(portd_listen(client, SERVICE + 100, &any), -EADDRINUSE);
	}
	CHECK(write(mad_pipe[1], mad, sizeof(*mad)) == sizeof(*mad));
}

static int wait_fd(int fd, int timeout_ms)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };

	return poll(&pfd, 1, timeout_ms) > 0;
}

/* the mark of the next datagram that the kernel steered to this slot */
static int receive_data(int timeout_ms)
{
	int fd4, fd6, result = -1;
	uint8_t data[64];

	portd_sockets(client, &fd4, &fd6);
	if (wait_fd(fd4, timeout_ms) && recv(fd4, data, sizeof(data), MSG_DONTWAIT) == 16)
		result = data[15];
	close(fd4);
	close(fd6);
	return result;
}

/* a child has a slot of its own; it goes on to live */
static int fork_child(void)
{
	int report[2], result = -1;

	CHECK(!pipe(report));
	if (!fork()) {
		struct portd_client *child_client;
		uint8_t parent_slot = portd_slot(client);

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		CHECK_EQUAL(portd_connect(&child_client, NULL, NULL), 0);
		CHECK(portd_slot(child_client) != parent_slot);
		portd_disconnect(child_client);
		result = 0;
		CHECK(write(report[1], &result, sizeof(result)) == sizeof(result));
		pause();
	}
	close(report[1]);
	CHECK(read(report[0], &result, sizeof(result)) == sizeof(result));
	close(report[0]);
	return result;
}

static int no_low_descriptors(void)
{
	for (int fd = 3; fd < PORTD_FD_MIN; fd++) {
		int type;
		socklen_t len = sizeof(type);
		struct sockaddr_storage a;
		socklen_t a_len = sizeof(a);

		if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len))
			continue;
		if (!getsockname(fd, (struct sockaddr *)&a, &a_len) &&
		    (a.ss_family == AF_INET || a.ss_family == AF_INET6))
			return fd;
	}
	return 0;
}

static int execute(struct command *c)
{
	switch (c->op) {
	case OP_CONNECT:
		return portd_connect(&client, on_mad, NULL);
	case OP_SLOT:
		return portd_slot(client);
	case OP_LISTEN:
		return portd_listen(client, c->service_id, &c->gid);
	case OP_UNLISTEN:
		portd_unlisten(client, c->service_id, &c->gid);
		return 0;
	case OP_SEND:
		return portd_send_mad(client, &c->mad);
	case OP_RECV_MAD:
		if (!wait_fd(mad_pipe[0], c->timeout_ms))
			return -ETIMEDOUT;
		return read(mad_pipe[0], &c->mad, sizeof(c->mad)) == sizeof(c->mad) ? 0 : -EIO;
	case OP_RECV_DATA:
		return receive_data(c->timeout_ms);
	case OP_FORK:
		return fork_child();
	case OP_DISCONNECT:
		portd_disconnect(client);
		return 0;
	case OP_HIGH_FDS:
		return no_low_descriptors();
	case OP_SETUID:
		return setresuid((uid_t)c->service_id, (uid_t)c->service_id, (uid_t)c->service_id)
			       ? -errno
			       : 0;
	}
	return -EINVAL;
}

static void __attribute__((noreturn)) worker_main(int sock)
{
	struct command c;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	CHECK(!pipe(mad_pipe));
	while (read(sock, &c, sizeof(c)) == sizeof(c)) {
		int result = execute(&c);
		struct iovec iov[2] = { { &result, sizeof(result) }, { &c.mad, sizeof(c.mad) } };
		struct msghdr mh = { .msg_iov = iov, .msg_iovlen = 2 };

		if (sendmsg(sock, &mh, MSG_NOSIGNAL) < 0)
			break;
	}
	_exit(0);
}

/* --- in the test --- */

static void post(struct worker *w, struct command c)
{
	CHECK(write(w->sock, &c, sizeof(c)) == sizeof(c));
}

static int collect(struct worker *w, struct portd_mad *mad)
{
	int result = -1;
	struct portd_mad unused;
	struct iovec iov[2] = { { &result, sizeof(result) },
				{ mad ? mad : &unused, sizeof(*mad) } };
	struct msghdr mh = { .msg_iov = iov, .msg_iovlen = 2 };

	CHECK(wait_fd(w->sock, WAIT_MS + 2000));
	CHECK(recvmsg(w->sock, &mh, 0) == sizeof(int) + sizeof(*mad));
	return result;
}

static int tell(struct worker *w, struct command c)
{
	post(w, c);
	return collect(w, NULL);
}

static struct worker start_worker(void)
{
	struct worker w;
	int pair[2];

	CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair));
	w.pid = fork();
	CHECK(w.pid >= 0);
	if (!w.pid) {
		close(pair[0]);
		worker_main(pair[1]);
	}
	close(pair[1]);
	w.sock = pair[0];
	w.slot = -1;
	return w;
}

static struct worker start_client(void)
{
	struct worker w = start_worker();

	CHECK_EQUAL(tell(&w, (struct command){ .op = OP_CONNECT }), 0);
	w.slot = tell(&w, (struct command){ .op = OP_SLOT });
	CHECK(w.slot > 0 && w.slot < PORTD_SLOTS);
	return w;
}

static void kill_worker(struct worker *w)
{
	int status;

	kill(w->pid, SIGKILL);
	CHECK(waitpid(w->pid, &status, 0) == w->pid);
	close(w->sock);
}

static int listen_on(struct worker *w, uint64_t service_id, union ibv_gid gid)
{
	return tell(w, (struct command){ .op = OP_LISTEN, .service_id = service_id, .gid = gid });
}

static struct portd_mad make_mad(uint16_t attribute, union ibv_gid gid)
{
	struct portd_mad mad = { .sgid = gid, .dgid = gid };

	mad.data[0] = 1;
	mad.data[1] = 7;
	mad.data[2] = 2;
	mad.data[3] = 3;
	put_be64(mad.data + 8, 0x1234);
	put_be16(mad.data + 16, attribute);
	return mad;
}

static struct portd_mad make_req(const struct worker *from, uint64_t service_id, union ibv_gid gid)
{
	struct portd_mad mad = make_mad(0x10, gid);

	put_be32(mad.data + 24, (uint32_t)from->slot << 24 | 0x77);
	put_be64(mad.data + 32, service_id);
	return mad;
}

static void send_mad(struct worker *w, struct portd_mad mad)
{
	CHECK_EQUAL(tell(w, (struct command){ .op = OP_SEND, .mad = mad }), 0);
}

static int recv_mad(struct worker *w, struct portd_mad *mad, int timeout_ms)
{
	post(w, (struct command){ .op = OP_RECV_MAD, .timeout_ms = timeout_ms });
	return collect(w, mad);
}

/* a data packet for a slot, from outside */
static void send_data(int slot, uint8_t mark)
{
	uint8_t data[16] = { 0x04, [5] = (uint8_t)slot, [15] = mark };
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_port = htons(4791),
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	CHECK(sendto(fd, data, 16, 0, (struct sockaddr *)&to, sizeof(to)) == 16);
	close(fd);
}

static void check_data(struct worker *w, uint8_t mark)
{
	send_data(w->slot, mark);
	CHECK_EQUAL(tell(w, (struct command){ .op = OP_RECV_DATA, .timeout_ms = WAIT_MS }), mark);
}

static pid_t daemon_pid(void)
{
	struct ucred cred = { 0 };
	socklen_t len = sizeof(cred);
	int fd = portd_name_connect();

	if (fd < 0)
		return 0;
	CHECK(!getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len));
	close(fd);
	return cred.pid;
}

static void wait_no_daemon(void)
{
	for (int i = 0; i < WAIT_MS / 10; i++) {
		int fd = portd_name_connect();

		if (fd == -ECONNREFUSED)
			return;
		if (fd >= 0)
			close(fd);
		usleep(100000);
	}
	CHECK(!"the daemon is gone");
}

static void wait_new_daemon(pid_t old)
{
	for (int i = 0; i < WAIT_MS / 10; i++) {
		pid_t pid = daemon_pid();

		if (pid && pid != old)
			return;
		usleep(10000);
	}
	CHECK(!"there is a new daemon");
}

/* a REQ from @from to whoever listens, and the answer's attribute; -1: it was delivered */
static void check_relay(struct worker *from, struct worker *to, uint64_t service_id,
			union ibv_gid gid)
{
	struct portd_mad mad, answer;

	send_mad(from, make_req(from, service_id, gid));
	CHECK_EQUAL(recv_mad(to, &mad, WAIT_MS), 0);
	CHECK_EQUAL(get_be16(mad.data + 16), 0x10);
	CHECK_EQUAL(get_be64(mad.data + 32), service_id);
	CHECK(!memcmp(&mad.sgid, &gid, 16) && !memcmp(&mad.dgid, &gid, 16));
	CHECK_EQUAL(mad.src_qpn, 1);
	/* and back by the communication ID */
	answer = make_mad(0x13, gid);
	put_be32(answer.data + 24, (uint32_t)to->slot << 24 | 0x88);
	put_be32(answer.data + 28, get_be32(mad.data + 24));
	send_mad(to, answer);
	CHECK_EQUAL(recv_mad(from, &mad, WAIT_MS), 0);
	CHECK_EQUAL(get_be16(mad.data + 16), 0x13);
	CHECK_EQUAL(get_be32(mad.data + 24), (uint32_t)to->slot << 24 | 0x88);
}

static void slots_and_relay(void)
{
	struct worker a = start_client(), b = start_client();

	CHECK(a.slot != b.slot);
	check_data(&a, 1);
	check_data(&b, 2);
	CHECK_EQUAL(listen_on(&b, SERVICE, any), 0);
	check_relay(&a, &b, SERVICE, loopback4);
	check_relay(&a, &b, SERVICE, loopback6);
	CHECK_EQUAL(listen_on(&a, SERVICE + 1, loopback4), 0);
	check_relay(&b, &a, SERVICE + 1, loopback4);
	CHECK_EQUAL(tell(&a, (struct command){ .op = OP_HIGH_FDS }), 0);
	CHECK_EQUAL(recv_mad(&a, NULL, 50), -ETIMEDOUT);
}

static void no_listener(void)
{
	struct worker a = start_client();
	struct portd_mad mad;

	CHECK_EQUAL(listen_on(&a, SERVICE, loopback6), 0);
	send_mad(&a, make_req(&a, SERVICE, loopback4));
	CHECK_EQUAL(recv_mad(&a, &mad, WAIT_MS), 0);
	CHECK_EQUAL(get_be16(mad.data + 16), 0x12);
	CHECK_EQUAL(get_be16(mad.data + 34), 8);
	/* one that was taken back */
	CHECK_EQUAL(listen_on(&a, SERVICE, loopback4), 0);
	CHECK_EQUAL(tell(&a, (struct command){ .op = OP_UNLISTEN,
					       .service_id = SERVICE,
					       .gid = loopback4 }),
		    0);
	send_mad(&a, make_req(&a, SERVICE, loopback4));
	CHECK_EQUAL(recv_mad(&a, &mad, WAIT_MS), 0);
	CHECK_EQUAL(get_be16(mad.data + 34), 8);
}

static void address_in_use(void)
{
	struct worker a = start_client(), b = start_client();

	CHECK_EQUAL(listen_on(&a, SERVICE, any), 0);
	CHECK_EQUAL(listen_on(&a, SERVICE, any), -EADDRINUSE);
	CHECK_EQUAL(listen_on(&b, SERVICE, any), -EADDRINUSE);
	CHECK_EQUAL(listen_on(&b, SERVICE, loopback4), -EADDRINUSE);
	kill_worker(&a);
	for (int i = 0; i < 200 && listen_on(&b, SERVICE, any) == -EADDRINUSE; i++)
		usleep(10000);
	CHECK_EQUAL(listen_on(&b, SERVICE, any), -EADDRINUSE); /* b's own now */
	check_relay(&b, &b, SERVICE, loopback4);
}

static void listen_in_callback(void)
{
	struct worker a = start_client();
	struct portd_mad req;

	CHECK_EQUAL(listen_on(&a, SERVICE, any), 0);
	req = make_req(&a, SERVICE, loopback4);
	req.data[255] = 0xcb;
	send_mad(&a, req);
	CHECK_EQUAL(recv_mad(&a, NULL, WAIT_MS), 0);
	check_relay(&a, &a, SERVICE + 100, loopback4);
}

static void two_at_once(void)
{
	struct worker w[4];

	for (int i = 0; i < 4; i++)
		w[i] = start_worker();
	for (int i = 0; i < 4; i++)
		post(&w[i], (struct command){ .op = OP_CONNECT });
	for (int i = 0; i < 4; i++)
		CHECK_EQUAL(collect(&w[i], NULL), 0);
	for (int i = 0; i < 4; i++) {
		w[i].slot = tell(&w[i], (struct command){ .op = OP_SLOT });
		for (int j = 0; j < i; j++)
			CHECK(w[i].slot != w[j].slot);
	}
	for (int i = 0; i < 4; i++)
		check_data(&w[i], (uint8_t)(i + 1));
}

static void leaves_with_last_client(void)
{
	struct worker a = start_client(), b = start_client();
	pid_t pid = daemon_pid();

	CHECK_EQUAL(tell(&a, (struct command){ .op = OP_DISCONNECT }), 0);
	usleep(500000);
	CHECK_EQUAL(daemon_pid(), pid);
	kill_worker(&b);
	wait_no_daemon();
	/* and comes back */
	CHECK_EQUAL(tell(&a, (struct command){ .op = OP_CONNECT }), 0);
	CHECK(daemon_pid() != pid);
}

static void daemon_killed(void)
{
	struct worker a = start_client(), b = start_client(), c;

	CHECK_EQUAL(listen_on(&b, SERVICE, any), 0);
	for (int round = 0; round < 3; round++) {
		pid_t old = daemon_pid();

		check_data(&a, 1);
		/* waits in the socket while the daemon changes */
		send_data(b.slot, 42);
		CHECK(old && !kill(old, SIGKILL));
		check_data(&a, 2);
		wait_new_daemon(old);
		CHECK_EQUAL(tell(&b, (struct command){ .op = OP_RECV_DATA, .timeout_ms = 0 }), 42);
		check_data(&a, 3);
		check_data(&b, 4);
		CHECK_EQUAL(tell(&a, (struct command){ .op = OP_SLOT }), a.slot);
		/* waits for the new daemon if need be */
		CHECK_EQUAL(listen_on(&a, SERVICE + 1 + (uint64_t)round, any), 0);
		CHECK_EQUAL(listen_on(&a, SERVICE, any), -EADDRINUSE);
		check_relay(&a, &b, SERVICE, loopback4);
		check_relay(&b, &a, SERVICE + 1, loopback6);
	}
	c = start_client();
	CHECK(c.slot != a.slot && c.slot != b.slot);
	check_data(&c, 5);
	check_data(&a, 6);
}

/* it dies together with a client: that one's slot goes to nobody before it was drained */
static void daemon_and_client_killed(void)
{
	struct worker a = start_client(), b = start_client(), c;
	pid_t old = daemon_pid();

	send_data(b.slot, 13);
	CHECK(!kill(old, SIGKILL));
	kill_worker(&b);
	wait_new_daemon(old);
	CHECK_EQUAL(listen_on(&a, SERVICE, any), 0);
	c = start_client();
	check_relay(&c, &a, SERVICE, loopback4);
	check_data(&a, 1);
	check_data(&c, 2);
}

/* daemons that die while they take over: nobody loses a socket or a slot */
static void daemons_killed_early(void)
{
	struct worker w[4];

	for (int i = 0; i < 4; i++) {
		w[i] = start_client();
		CHECK_EQUAL(listen_on(&w[i], SERVICE + (uint64_t)i, any), 0);
	}
	for (int round = 0; round < 30; round++) {
		pid_t pid = daemon_pid();

		if (pid)
			kill(pid, SIGKILL);
		check_data(&w[round % 4], (uint8_t)(round + 1));
		usleep((useconds_t)(round * 7919 % 60) * 1000);
	}
	for (int i = 0; i < 4; i++) {
		CHECK_EQUAL(listen_on(&w[i], SERVICE + 10 + (uint64_t)i, any), 0);
		CHECK_EQUAL(tell(&w[i], (struct command){ .op = OP_SLOT }), w[i].slot);
		check_data(&w[i], (uint8_t)(i + 1));
		check_relay(&w[i], &w[(i + 1) % 4], SERVICE + (uint64_t)((i + 1) % 4), loopback4);
	}
}

/* messages for a client that is slow to find the new daemon wait for it, neither lost nor
 * answered in its place */
static void slow_to_return(void)
{
	struct worker a = start_client(), b = start_client();
	pid_t old = daemon_pid();
	struct portd_mad rtu = make_mad(0x14, loopback4), mad;

	CHECK_EQUAL(listen_on(&b, SERVICE, any), 0);
	check_relay(&a, &b, SERVICE, loopback4);
	kill(b.pid, SIGSTOP);
	CHECK(!kill(old, SIGKILL));
	wait_new_daemon(old);
	put_be32(rtu.data + 28, (uint32_t)b.slot << 24 | 0x88);
	send_mad(&a, rtu);
	send_mad(&a, make_req(&a, SERVICE, loopback4));
	post(&a, (struct command){ .op = OP_LISTEN, .service_id = SERVICE });
	usleep(200000);
	kill(b.pid, SIGCONT);
	CHECK_EQUAL(collect(&a, NULL), -EADDRINUSE);
	CHECK_EQUAL(recv_mad(&b, &mad, WAIT_MS), 0);
	CHECK_EQUAL(get_be16(mad.data + 16), 0x14);
	CHECK_EQUAL(recv_mad(&b, &mad, WAIT_MS), 0);
	CHECK_EQUAL(get_be16(mad.data + 16), 0x10);
	CHECK_EQUAL(recv_mad(&a, &mad, 100), -ETIMEDOUT);
}

/* so few that the group's sockets do not fit: the next daemon opens others in their stead */
static void few_descriptors(void)
{
	struct rlimit limit;
	struct worker a, b;
	int err = -ETIMEDOUT;
	pid_t old;

	CHECK(!getrlimit(RLIMIT_NOFILE, &limit));
	limit.rlim_cur = 40;
	a = start_client(); /* whose daemon starts with enough all the same */
	CHECK(!setrlimit(RLIMIT_NOFILE, &limit));
	b = start_client();
	kill_worker(&a);
	check_data(&b, 1);
	for (int round = 0; round < 2; round++) {
		old = daemon_pid();
		CHECK(!kill(old, SIGKILL));
		wait_new_daemon(old);
		/* on a loaded machine the hand-over may outlast the wait of one call */
		for (int tries = 0; tries < 4; tries++) {
			err = listen_on(&b, SERVICE + (uint64_t)round, any);
			if (err != -ETIMEDOUT)
				break;
		}
		CHECK_EQUAL(err, 0);
		check_data(&b, 2);
		check_relay(&b, &b, SERVICE, loopback4);
	}
	a = start_client();
	check_data(&a, 3);
	check_data(&b, 4);
}

static void daemon_terminated(void)
{
	struct worker a = start_client();
	pid_t old = daemon_pid();

	CHECK_EQUAL(listen_on(&a, SERVICE, any), 0);
	CHECK(!kill(old, SIGTERM));
	wait_new_daemon(old);
	CHECK_EQUAL(listen_on(&a, SERVICE + 1, any), 0);
	check_relay(&a, &a, SERVICE, loopback4);
	check_data(&a, 1);
}

/* with a timewait of 0.3 s and all other slots taken, the dead client's is given again, empty */
static void client_killed(void)
{
	struct worker w[PORTD_SLOTS - 1], extra;
	struct portd_mad mad = make_mad(0x15, loopback4);
	int slot;

	setenv("SOFTHCA_PORTD_TIMEWAIT_MS", "300", 1);
	for (int i = 0; i < PORTD_SLOTS - 1; i++)
		w[i] = start_client();
	extra = start_worker();
	CHECK_EQUAL(tell(&extra, (struct command){ .op = OP_CONNECT }), -ENOSPC);
	slot = w[20].slot;
	send_data(slot, 99);
	kill_worker(&w[20]);
	send_data(slot, 98);
	/* its peers learn of it */
	put_be32(mad.data + 24, (uint32_t)w[0].slot << 24);
	put_be32(mad.data + 28, (uint32_t)slot << 24 | 5);
	usleep(50000);
	send_mad(&w[0], mad);
	CHECK_EQUAL(recv_mad(&w[0], &mad, WAIT_MS), 0);
	CHECK_EQUAL(get_be16(mad.data + 16), 0x16);

	CHECK_EQUAL(tell(&extra, (struct command){ .op = OP_CONNECT }), 0);
	extra.slot = tell(&extra, (struct command){ .op = OP_SLOT });
	CHECK_EQUAL(extra.slot, slot);
	CHECK_EQUAL(tell(&extra, (struct command){ .op = OP_RECV_DATA, .timeout_ms = 0 }), -1);
	check_data(&extra, 1);
}

static void forked_child(void)
{
	struct worker a = start_client(), b;
	int slot = a.slot;

	CHECK_EQUAL(tell(&a, (struct command){ .op = OP_FORK }), 0);
	check_data(&a, 1);
	CHECK_EQUAL(listen_on(&a, SERVICE, any), 0);
	/* the parent's end is seen though the child lives */
	CHECK_EQUAL(tell(&a, (struct command){ .op = OP_DISCONNECT }), 0);
	b = start_client();
	CHECK(b.slot != slot);
	for (int i = 0; i < 200 && listen_on(&b, SERVICE, any) == -EADDRINUSE; i++)
		usleep(10000);
	check_relay(&b, &b, SERVICE, loopback4);
}

static void port_taken(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(4791) };
	struct worker w = start_worker(); /* first: it must not inherit the socket */
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	CHECK(!bind(fd, (struct sockaddr *)&a, sizeof(a)));
	CHECK_EQUAL(tell(&w, (struct command){ .op = OP_CONNECT }), -EADDRINUSE);
	close(fd);
	wait_no_daemon();
	CHECK_EQUAL(tell(&w, (struct command){ .op = OP_CONNECT }), 0);
}

static void without_ipv6(void)
{
	struct worker a;

	write_text("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
	a = start_client();
	CHECK_EQUAL(listen_on(&a, SERVICE, any), 0);
	check_relay(&a, &a, SERVICE, loopback4);
}

/* a link-local address is only half an address without its interface */
static void link_local(void)
{
	struct portd_mad req, mad;
	struct worker a;

	write_text("/proc/sys/net/ipv6/conf/default/accept_dad", "0");
	if (system("ip link add d0 type veth peer name d1 2>/dev/null && ip link set d0 up && "
		   "ip link set d1 up && ip address add fe80::1234/64 dev d0 nodad"))
		_exit(NO_NAMESPACE);
	a = start_client();
	CHECK_EQUAL(listen_on(&a, SERVICE, any), 0);
	req = make_req(&a, SERVICE, (union ibv_gid){ { 0xfe, 0x80, [14] = 0x12, [15] = 0x34 } });
	req.ifindex = if_nametoindex("d0");
	send_mad(&a, req);
	CHECK_EQUAL(recv_mad(&a, &mad, WAIT_MS), 0);
	CHECK_EQUAL(mad.ifindex, req.ifindex);
	CHECK(!memcmp(&mad.dgid, &req.dgid, 16) && !memcmp(&mad.sgid, &req.sgid, 16));
	/* and the daemon's own answer finds back */
	put_be64(req.data + 32, SERVICE + 1);
	send_mad(&a, req);
	CHECK_EQUAL(recv_mad(&a, &mad, WAIT_MS), 0);
	CHECK_EQUAL(get_be16(mad.data + 34), 8);
	CHECK_EQUAL(mad.ifindex, req.ifindex);
}

/* --- several users; only root can play them --- */

static struct worker start_user(uid_t uid)
{
	struct worker w = start_worker();

	if (tell(&w, (struct command){ .op = OP_SETUID, .service_id = uid }))
		_exit(NO_NAMESPACE); /* root, but of a user namespace */
	return w;
}

static void connect_worker(struct worker *w)
{
	CHECK_EQUAL(tell(w, (struct command){ .op = OP_CONNECT }), 0);
	w->slot = tell(w, (struct command){ .op = OP_SLOT });
}

static pid_t start_daemon(void)
{
	pid_t pid = fork();

	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit(portd_main(1));
	}
	for (int i = 0; i < 500 && !daemon_pid(); i++)
		usleep(10000);
	CHECK_EQUAL(daemon_pid(), pid);
	return pid;
}

/* Root's daemon serves everyone. Its users' processes keep their own sockets only, so the next
 * one has to find out which place in the group each of them has */
static void system_daemon(void)
{
	pid_t pid = start_daemon();
	struct worker a = start_user(10001), b = start_user(10002), c;

	connect_worker(&a);
	connect_worker(&b);
	CHECK(a.slot != b.slot);
	CHECK_EQUAL(listen_on(&b, SERVICE, any), 0);
	check_relay(&a, &b, SERVICE, loopback4);
	for (int round = 0; round < 2; round++) {
		int status;

		CHECK(!kill(pid, SIGKILL));
		CHECK(waitpid(pid, &status, 0) == pid);
		usleep(100000);
		CHECK_EQUAL(daemon_pid(), 0); /* no user starts one in its place */
		pid = start_daemon();
		CHECK_EQUAL(listen_on(&a, SERVICE + 1 + (uint64_t)round, any), 0);
		check_data(&a, 1);
		check_data(&b, 2);
		check_relay(&a, &b, SERVICE, loopback4);
		check_relay(&b, &a, SERVICE + 1, loopback6);
	}
	c = start_user(10003);
	connect_worker(&c);
	check_data(&c, 3);
	check_data(&a, 4);
}

/* a daemon of an ordinary user is not trusted by others, unless they say so */
static void another_users_daemon(void)
{
	struct worker a = start_user(10001), b;

	connect_worker(&a);
	b = start_user(10002);
	CHECK_EQUAL(tell(&b, (struct command){ .op = OP_CONNECT }), -EACCES);
	setenv("SOFTHCA_PORTD_UID", "10001", 1);
	b = start_user(10002);
	connect_worker(&b);
	check_data(&a, 1);
	check_data(&b, 2);
	/* b got its own sockets only; a's daemon dies, a starts the next, b comes too */
	CHECK(!kill(daemon_pid(), SIGKILL));
	CHECK_EQUAL(listen_on(&b, SERVICE, any), 0);
	check_data(&a, 3);
	check_data(&b, 4);
	check_relay(&a, &b, SERVICE, loopback4);
}

/* --- bad clients --- */

static int hello_raw(struct portd_msg *welcome)
{
	struct portd_msg msg = { .type = MSG_HELLO };
	struct portd_fds fds;
	int sock = portd_name_connect();

	CHECK(sock >= 0);
	CHECK_EQUAL(portd_msg_send(sock, &msg, NULL, 0, 0), 0);
	CHECK_EQUAL(portd_msg_recv(sock, welcome, &fds, 0), 1);
	CHECK_EQUAL(welcome->type, MSG_WELCOME);
	return sock;
}

/* the daemon's answer to a first message; 0 = it hung up */
static int answer_to(const void *data, size_t len)
{
	struct timeval timeout = { .tv_sec = 5 };
	struct portd_msg answer;
	int sock = portd_name_connect(), n;

	CHECK(sock >= 0);
	setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
	CHECK(send(sock, data, len, MSG_NOSIGNAL) == (ssize_t)len);
	n = portd_msg_recv(sock, &answer, NULL, 0);
	close(sock);
	if (n == 1)
		return answer.result;
	CHECK(n == 0 || n == -ECONNRESET);
	return 0;
}

static int answer_to_takeover(uint16_t slot, const struct portd_fds *fds, uint64_t mask)
{
	struct timeval timeout = { .tv_sec = 5 };
	struct portd_msg msg = { .type = MSG_HELLO, .flags = PORTD_TAKEOVER, .slot = slot };
	int sock = portd_name_connect();

	CHECK(sock >= 0);
	setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
	CHECK_EQUAL(portd_msg_send(sock, &msg, fds, mask, 0), 0);
	CHECK_EQUAL(portd_msg_recv(sock, &msg, NULL, 0), 1);
	close(sock);
	return msg.result;
}

static int count_descriptors(pid_t pid)
{
	char path[64];
	int count = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	dir = opendir(path);
	CHECK(dir);
	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

/* a message that is none, with descriptors beside it */
static void send_stray_descriptors(void)
{
	union {
		char buf[CMSG_SPACE(4 * sizeof(int))];
		struct cmsghdr align;
	} control = { 0 };
	struct iovec iov = { (char[1]){ 'x' }, 1 };
	struct msghdr mh = { .msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control.buf,
			     .msg_controllen = sizeof(control.buf) };
	struct cmsghdr *cmsg = CMSG_FIRSTHDR(&mh);
	int sock = portd_name_connect();

	cmsg->cmsg_level = SOL_SOCKET;
	cmsg->cmsg_type = SCM_RIGHTS;
	cmsg->cmsg_len = CMSG_LEN(4 * sizeof(int));
	memcpy(CMSG_DATA(cmsg), (int[4]){ 0, 1, 2, sock }, 4 * sizeof(int));
	CHECK(sendmsg(sock, &mh, MSG_NOSIGNAL) == 1);
	CHECK(recv(sock, control.buf, 1, 0) <= 0);
	close(sock);
}

static void bad_messages(void)
{
	struct worker a = start_client();
	struct portd_msg msg = { .magic = PORTD_MAGIC, .type = MSG_LISTEN }, welcome;
	struct portd_fds fds;
	pid_t pid = daemon_pid();
	int sock, plain, descriptors;

	usleep(200000);
	descriptors = count_descriptors(pid);
	send_stray_descriptors();
	CHECK_EQUAL(answer_to("x", 1), 0);
	CHECK_EQUAL(answer_to(&msg, sizeof(msg) - 1), 0);
	CHECK_EQUAL(answer_to(&msg, sizeof(msg)), -EPROTO); /* before hello */
	msg.magic++;
	CHECK_EQUAL(answer_to(&msg, sizeof(msg)), 0);
	msg.magic--;
	msg.type = MSG_HELLO;
	msg.slots4 = ~0ULL; /* sockets that do not come */
	CHECK_EQUAL(answer_to(&msg, sizeof(msg)), 0);

	/* take-overs of what is not one's own */
	portd_fds_init(&fds);
	CHECK_EQUAL(answer_to_takeover(0, &fds, 0), -EINVAL);
	CHECK_EQUAL(answer_to_takeover(PORTD_SLOTS, &fds, 0), -EINVAL);
	CHECK_EQUAL(answer_to_takeover((uint16_t)a.slot, &fds, 0), -EPERM);
	CHECK_EQUAL(answer_to_takeover(40, &fds, 0), -EPERM);
	plain = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	fds.fd[0][40] = plain;
	CHECK_EQUAL(answer_to_takeover(40, &fds, ~0ULL), -EPERM);
	fds.fd[0][40] = STDERR_FILENO;
	CHECK_EQUAL(answer_to_takeover(40, &fds, ~0ULL), -EPERM);
	/* another slot with the socket of one's own */
	portd_fds_init(&fds);
	{
		struct portd_msg hello = { .type = MSG_HELLO };

		sock = portd_name_connect();
		CHECK_EQUAL(portd_msg_send(sock, &hello, NULL, 0, 0), 0);
		CHECK_EQUAL(portd_msg_recv(sock, &welcome, &fds, 0), 1);
		fds.fd[0][40] = fds.fd[0][welcome.slot];
		fds.fd[0][welcome.slot] = -1;
		CHECK_EQUAL(answer_to_takeover(40, &fds, 1ULL << 40), -EPERM);
		fds.fd[0][welcome.slot] = fds.fd[0][40];
		fds.fd[0][40] = -1;
		CHECK_EQUAL(answer_to_takeover(welcome.slot, &fds, 1ULL << welcome.slot), -EBUSY);
		close(sock);
	}

	/* unknown requests */
	sock = hello_raw(&welcome);
	memset(&msg, 0, sizeof(msg));
	msg.type = 999;
	CHECK_EQUAL(portd_msg_send(sock, &msg, NULL, 0, 0), 0);
	do {
		CHECK_EQUAL(portd_msg_recv(sock, &msg, NULL, 0), 1);
	} while (msg.type != MSG_RESULT);
	CHECK_EQUAL(msg.result, -EOPNOTSUPP);
	/* a second hello ends it */
	memset(&msg, 0, sizeof(msg));
	msg.type = MSG_HELLO;
	CHECK_EQUAL(portd_msg_send(sock, &msg, NULL, 0, 0), 0);
	CHECK(portd_msg_recv(sock, &msg, NULL, 0) <= 0);
	close(sock);

	/* the daemon lives, serves and has kept nothing */
	CHECK_EQUAL(daemon_pid(), pid);
	usleep(200000);
	CHECK_EQUAL(count_descriptors(pid), descriptors);
	CHECK_EQUAL(listen_on(&a, SERVICE, any), 0);
	check_relay(&a, &a, SERVICE, loopback4);
}

static void nothing_leaks(void)
{
	struct worker a, b;
	int descriptors[2];
	pid_t pid;

	setenv("SOFTHCA_PORTD_TIMEWAIT_MS", "0", 1);
	a = start_client();
	b = start_client();
	CHECK_EQUAL(tell(&b, (struct command){ .op = OP_DISCONNECT }), 0);
	pid = daemon_pid();
	usleep(200000); /* a's GROUP has come, and the connection that asked for the pid is closed
			 */
	descriptors[0] = count_descriptors(pid);
	descriptors[1] = count_descriptors(b.pid);
	for (int i = 0; i < 200; i++) {
		CHECK_EQUAL(tell(&b, (struct command){ .op = OP_CONNECT }), 0);
		CHECK_EQUAL(tell(&b, (struct command){ .op = OP_DISCONNECT }), 0);
	}
	usleep(200000);
	CHECK_EQUAL(count_descriptors(pid), descriptors[0]);
	CHECK_EQUAL(count_descriptors(b.pid), descriptors[1]);
	check_data(&a, 1);
}

static void listen_limit(void)
{
	struct worker a = start_client();

	for (uint64_t i = 0; i < PORTD_CLIENT_LISTENS; i++)
		CHECK_EQUAL(listen_on(&a, i, any), 0);
	CHECK_EQUAL(listen_on(&a, SERVICE, any), -ENOSPC);
}

/* a client that reads nothing neither stops the daemon nor the others */
static void silent_client(void)
{
	struct worker a = start_client();
	struct portd_msg welcome, msg = { .type = MSG_LISTEN };
	int sock = hello_raw(&welcome);

	msg.listen.service_id = SERVICE + 7;
	CHECK_EQUAL(portd_msg_send(sock, &msg, NULL, 0, 0), 0);
	for (int i = 0; i < 2000; i++)
		send_mad(&a, make_req(&a, SERVICE + 7, loopback4));
	CHECK_EQUAL(listen_on(&a, SERVICE, any), 0);
	/* the flood may still fill QP1's socket: a sender asks again */
	for (int i = 0; i < 50; i++) {
		send_mad(&a, make_req(&a, SERVICE, loopback4));
		if (!recv_mad(&a, NULL, 200))
			break;
		CHECK(i < 49);
	}
	close(sock);
}

NAMESPACE_TEST(slots_and_relay)
NAMESPACE_TEST(no_listener)
NAMESPACE_TEST(address_in_use)
NAMESPACE_TEST(listen_in_callback)
NAMESPACE_TEST(two_at_once)
NAMESPACE_TEST(leaves_with_last_client)
NAMESPACE_TEST(daemon_killed)
NAMESPACE_TEST(daemon_and_client_killed)
NAMESPACE_TEST(daemons_killed_early)
NAMESPACE_TEST(slow_to_return)
NAMESPACE_TEST(few_descriptors)
NAMESPACE_TEST(daemon_terminated)
NAMESPACE_TEST(client_killed)
THREADED_FORK_TEST(forked_child)
NAMESPACE_TEST(port_taken)
NAMESPACE_TEST(without_ipv6)
NAMESPACE_TEST(link_local)
NAMESPACE_TEST(bad_messages)
NAMESPACE_TEST(nothing_leaks)
NAMESPACE_TEST(listen_limit)
NAMESPACE_TEST(silent_client)

ROOT_NAMESPACE_TEST(system_daemon)
ROOT_NAMESPACE_TEST(another_users_daemon)

/* MADs pass the fault layer too */
static void faults(void)
{
	struct worker a, b;
	struct portd_mad mad;

	setenv("SOFTHCA_FAULT", "drop#1@0x64,duplicate#2@0x64", 1);
	a = start_client();
	setenv("SOFTHCA_FAULT", "rx-drop#1@0x64", 1);
	b = start_client();
	CHECK_EQUAL(listen_on(&b, SERVICE, any), 0);
	for (int i = 0; i < 3; i++) {
		mad = make_req(&a, SERVICE, loopback4);
		mad.data[255] = (uint8_t)(i + 1);
		send_mad(&a, mad);
	}
	/* 1 is dropped by a, 2 is sent twice and dropped once by b, 3 arrives */
	CHECK_EQUAL(recv_mad(&b, &mad, WAIT_MS), 0);
	CHECK_EQUAL(mad.data[255], 2);
	CHECK_EQUAL(recv_mad(&b, &mad, WAIT_MS), 0);
	CHECK_EQUAL(mad.data[255], 3);
}
NAMESPACE_TEST(faults)

/* the same without a program to run: the daemon is a copy of this process */
static void without_program(void)
{
	setenv("SOFTHCA_PORTD", "/nonexistent", 1);
	slots_and_relay();
}
NAMESPACE_TEST(without_program)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_slots_and_relay),
		cmocka_unit_test(test_no_listener),
		cmocka_unit_test(test_address_in_use),
		cmocka_unit_test(test_listen_in_callback),
		cmocka_unit_test(test_two_at_once),
		cmocka_unit_test(test_leaves_with_last_client),
		cmocka_unit_test(test_daemon_killed),
		cmocka_unit_test(test_daemon_and_client_killed),
		cmocka_unit_test(test_daemons_killed_early),
		cmocka_unit_test(test_slow_to_return),
		cmocka_unit_test(test_few_descriptors),
		cmocka_unit_test(test_daemon_terminated),
		cmocka_unit_test(test_client_killed),
		cmocka_unit_test(test_forked_child),
		cmocka_unit_test(test_port_taken),
		cmocka_unit_test(test_without_ipv6),
		cmocka_unit_test(test_link_local),
		cmocka_unit_test(test_bad_messages),
		cmocka_unit_test(test_nothing_leaks),
		cmocka_unit_test(test_listen_limit),
		cmocka_unit_test(test_silent_client),
		cmocka_unit_test(test_system_daemon),
		cmocka_unit_test(test_another_users_daemon),
		cmocka_unit_test(test_faults),
		cmocka_unit_test(test_without_program),
	};
	char self[4096];
	ssize_t n;

	if (argc > 1 && !strcmp(argv[1], "portd"))
		return portd_main(0);
	if (argc > 1)
		cmocka_set_test_filter(argv[1]); /* to look at one */
	n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	assert_true(n > 0);
	self[n] = 0;
	setenv("SOFTHCA_PORTD", self, 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
