// SPDX-License-Identifier: BSD-2-Clause
/*
 * client.c: a process's side of the port daemon. A thread of its own reads what the daemon sends
 * and, when the daemon is gone, finds or starts the next one and hands over what it kept: the
 * slot's sockets and, among processes of one user, all sockets of the group. Queue pairs notice
 * nothing: packets come from the kernel.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "portd/mad_io.h"
#include "portd/mad_tap.h"
#include "portd/portd.h"
#include "portd/proto.h"
#include "portd/spawn.h"
#include "util/bytes.h"
#include "util/clock.h"
#include "util/counters.h"
#include "util/list.h"
#include "util/log.h"

#define ANSWER_NS	  (5 * NSEC_PER_SEC) /* the daemon starts and answers within this */
#define SPAWN_INTERVAL_NS (1 * NSEC_PER_SEC)
#define COMPLAIN_NS	  (3 * NSEC_PER_SEC) /* without a daemon, before we say so */
#define RETRY_MAX_MS	  500
#define NEVER		  0

struct listen {
	struct list_node node;
	uint64_t service_id;
	union ibv_gid gid;
};

/* a MAD that arrived while the thread itself waited for an answer */
struct pending_mad {
	struct list_node node;
	struct portd_mad mad;
};

struct portd_client {
	struct list_node node; /* of all_clients */
	void (*on_mad)(void *arg, const struct portd_mad *mad);
	void *arg;
	uint8_t slot;
	int fd[2];	/* the slot's sockets, by family */
	bool may_spawn; /* the sockets are this user's: a daemon of ours could take them over */
	struct mad_tap *tap;
	_Atomic uint32_t psn;

	pthread_t thread;
	int wake_fd;
	struct list_node pending; /* the thread's */

	pthread_mutex_t request_lock; /* one request at a time */
	pthread_mutex_t lock;	      /* the rest */
	pthread_cond_t changed;
	int sock;	     /* -1: no daemon just now */
	uint32_t connection; /* counts its changes: a new socket may have the old one's number */
	struct portd_fds group;
	struct list_node listens;
	uint32_t seq, answered_seq;
	int answered_result;
	struct listen *asked; /* what request seq is about; a listen once it is granted */
	bool stop, detached;
	bool lost; /* the slot has another owner now */
};

static pthread_mutex_t all_clients_lock = PTHREAD_MUTEX_INITIALIZER;
static struct list_node all_clients = { &all_clients, &all_clients };

/* --- fork --- */

static void before_fork(void)
{
	pthread_mutex_lock(&all_clients_lock);
}

static void after_fork_parent(void)
{
	pthread_mutex_unlock(&all_clients_lock);
}

/*
 * The slot stays the parent's. Close the child's copies: the daemon would not see the parent's end
 * while one is open. The memory is given up; its locks may be in any state.
 */
static void after_fork_child(void)
{
	struct list_node *node;

	list_for_each(node, &all_clients) {
		struct portd_client *client = list_entry(node, struct portd_client, node);

		if (client->sock >= 0)
			close(client->sock);
		client->sock = -1;
		for (int family = 0; family < 2; family++)
			if (client->fd[family] >= 0)
				close(client->fd[family]);
		portd_fds_close(&client->group);
		close(client->wake_fd);
	}
	list_init(&all_clients);
	pthread_mutex_init(&all_clients_lock, NULL);
}

static void register_fork_handlers(void)
{
	pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}

void portd_client_init(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, register_fork_handlers);
}

/* --- finding a daemon --- */

static bool daemon_is_trusted(uid_t uid)
{
	const char *env = secure_getenv("SOFTHCA_PORTD_UID");
	char *end;

	if (uid == 0 || uid == geteuid())
		return true;
	return env && *env && strtoul(env, &end, 10) == uid && !*end;
}

/* the slot's own sockets, as portd_msg_send() wants them */
static void own_sockets(const struct portd_client *client, struct portd_fds *fds)
{
	portd_fds_init(fds);
	for (int family = 0; family < 2; family++)
		fds->fd[family][client->slot] = client->fd[family];
}

/* what a former daemon had granted; the answers change nothing (nobody waits for sequence 0) */
static int send_listens(struct portd_client *client, int sock)
{
	struct list_node *node;
	int err = 0;

	pthread_mutex_lock(&client->lock);
	list_for_each(node, &client->listens) {
		struct listen *listen = list_entry(node, struct listen, node);
		struct portd_msg msg = { .type = MSG_LISTEN, .flags = PORTD_AGAIN };

		msg.listen.service_id = listen->service_id;
		msg.listen.gid = listen->gid;
		err = portd_msg_send(sock, &msg, NULL, 0, 0);
		if (err)
			break;
	}
	pthread_mutex_unlock(&client->lock);
	return err;
}

static int send_hello(struct portd_client *client, int sock, uid_t daemon_uid)
{
	struct portd_msg msg = { .type = MSG_HELLO };
	struct portd_fds own;
	int err;

	if (!client->slot)
		return portd_msg_send(sock, &msg, NULL, 0, 0);
	msg.flags = PORTD_TAKEOVER;
	msg.slot = client->slot;
	own_sockets(client, &own);
	err = portd_msg_send(sock, &msg, &own, PORTD_ALL_SLOTS, 0);
	/* whoever holds a socket can read from it: only for the same user's daemon */
	if (!err && daemon_uid == geteuid()) {
		memset(&msg, 0, sizeof(msg));
		msg.type = MSG_GROUP;
		err = portd_msg_send(sock, &msg, &client->group, PORTD_ALL_SLOTS, 0);
	}
	/* before the welcome, so that the daemon knows them when it begins to grant others */
	return err ?: send_listens(client, sock);
}

static int wait_readable(int sock, uint64_t deadline_ns)
{
	for (;;) {
		struct pollfd pfd = { .fd = sock, .events = POLLIN };
		uint64_t now_ns = clock_ns();
		int n;

		if (now_ns >= deadline_ns)
			return -ETIMEDOUT;
		n = poll(&pfd, 1, (int)((deadline_ns - now_ns) / NSEC_PER_MSEC) + 1);
		if (n > 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return -errno;
	}
}

/* Return: 0, -ECONNRESET when the daemon ended meanwhile, or why not; @msg.text says it */
static int receive_welcome(struct portd_client *client, int sock, uint64_t deadline_ns,
			   struct portd_msg *msg)
{
	struct portd_fds fds;
	int n;

	do { /* answers to send_listens() come first */
		n = wait_readable(sock, deadline_ns);
		if (n)
			return n;
		n = portd_msg_recv(sock, msg, &fds, MSG_DONTWAIT);
		if (n <= 0)
			return n ? n : -ECONNRESET;
	} while (msg->type == MSG_RESULT);
	msg->text[sizeof(msg->text) - 1] = 0;
	n = 0;
	if (msg->type != MSG_WELCOME) {
		n = -EPROTO;
	} else if (msg->result) {
		n = msg->result < 0 ? msg->result : -EPROTO;
	} else if (!client->slot) {
		uint16_t slot = msg->slot;

		if (!slot || slot >= PORTD_SLOTS) {
			n = -EPROTO;
		} else if (fds.fd[0][slot] < 0 && fds.fd[1][slot] < 0) {
			n = -EMFILE; /* they did not fit (portd_msg_recv()) */
			snprintf(msg->text, sizeof(msg->text),
				 "the port daemon's sockets exceed this process's limit of open "
				 "files (ulimit -n)");
		} else {
			client->slot = (uint8_t)slot;
			for (int family = 0; family < 2; family++) {
				client->fd[family] = fds.fd[family][slot];
				fds.fd[family][slot] = -1;
			}
		}
	}
	portd_fds_close(&fds);
	return n;
}

/*
 * One try to reach a daemon and to get (or keep) the slot.
 * @why: out, the daemon's own words when it refuses, else empty.
 * Return: the connected socket, or a negative errno; -ECONNREFUSED: there is no daemon.
 */
static int try_daemon(struct portd_client *client, uint64_t deadline_ns, char why[256])
{
	struct portd_msg msg = { .type = 0 };
	struct ucred cred = { .uid = (uid_t)-1 };
	socklen_t len = sizeof(cred);
	int sock = portd_name_connect();
	int err;

	why[0] = 0;
	if (sock < 0)
		return sock;
	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &len)) {
		err = -errno;
		goto out_close;
	}
	if (!daemon_is_trusted(cred.uid)) {
		snprintf(why, 256,
			 "the port daemon of this network namespace belongs to user %u (pid %d), "
			 "who is neither you nor root; SOFTHCA_PORTD_UID=%u trusts it",
			 cred.uid, cred.pid, cred.uid);
		err = -EACCES;
		goto out_close;
	}
	err = send_hello(client, sock, cred.uid);
	if (!err)
		err = receive_welcome(client, sock, deadline_ns, &msg);
	if (!err)
		return sock;
	if (msg.type == MSG_WELCOME)
		memcpy(why, msg.text, 256);
	else if (err == -ETIMEDOUT)
		snprintf(why, 256, "the port daemon (pid %d) does not answer", cred.pid);

out_close:
	close(sock);
	return err;
}

/* the daemon is not there, or goes, or has no free slot yet: all of which pass */
static bool is_passing(int err)
{
	return err == -ECONNREFUSED || err == -ECONNRESET || err == -EPIPE || err == -EAGAIN ||
	       err == -ETIMEDOUT;
}

static void spawn_if_due(uint64_t *last_spawn_ns)
{
	uint64_t now_ns = clock_ns();
	int err;

	if (*last_spawn_ns != NEVER && now_ns - *last_spawn_ns < SPAWN_INTERVAL_NS)
		return;
	*last_spawn_ns = now_ns;
	err = portd_spawn();
	if (err)
		log_warn("cannot start the port daemon: %s", strerror(-err));
}

/* a first daemon, within ANSWER_NS. Return: 0 or a negative errno, and then a message was logged */
static int find_daemon(struct portd_client *client)
{
	uint64_t deadline_ns = clock_ns() + ANSWER_NS, last_spawn_ns = NEVER;
	unsigned int pause_us = 500;
	char why[256];
	int sock;

	for (;;) {
		sock = try_daemon(client, deadline_ns, why);
		if (sock >= 0)
			break;
		if (!is_passing(sock) || clock_ns() >= deadline_ns)
			goto out_failed;
		if (sock == -ECONNREFUSED)
			spawn_if_due(&last_spawn_ns);
		usleep(pause_us);
		pause_us = MIN(pause_us * 2, 20000);
	}
	client->sock = sock;
	return 0;

out_failed:
	if (why[0])
		log_error("%s", why);
	else if (sock == -ECONNREFUSED)
		log_error("the port daemon does not start; 'softhca portd' in a terminal shows "
			  "why");
	else
		log_error("cannot reach the port daemon: %s", strerror(-sock));
	return sock;
}

/* --- the thread --- */

static void handle_mad(struct portd_client *client, const struct portd_mad *mad)
{
	if (mad_tap_rx(client->tap, mad) && client->on_mad)
		client->on_mad(client->arg, mad);
}

static void handle_message(struct portd_client *client, const struct portd_msg *msg,
			   struct portd_fds *fds)
{
	switch (msg->type) {
	case MSG_RESULT:
		pthread_mutex_lock(&client->lock);
		client->answered_seq = msg->seq;
		client->answered_result = msg->result;
		/* here and not where it was asked: the next daemon must not miss it */
		if (client->asked && msg->seq == client->seq) {
			if (!msg->result) {
				list_add_tail(&client->listens, &client->asked->node);
				client->asked = NULL;
			}
		}
		pthread_cond_broadcast(&client->changed);
		pthread_mutex_unlock(&client->lock);
		break;
	case MSG_GROUP:
		/* kept for one purpose: to hand it to the next daemon */
		pthread_mutex_lock(&client->lock);
		portd_fds_close(&client->group);
		client->group = *fds;
		portd_fds_init(fds);
		pthread_mutex_unlock(&client->lock);
		break;
	default:
		log_debug("portd: the daemon sent message %u", msg->type);
	}
}

/*
 * Take one message from the daemon.
 * @defer_mads: the thread waits for an answer inside a callback: keep MADs for later.
 * Return: 1; -EAGAIN: nothing there; else the connection is over.
 */
static int read_daemon(struct portd_client *client, bool defer_mads)
{
	struct portd_msg msg;
	struct portd_fds fds;
	int n = portd_msg_recv(client->sock, &msg, &fds, MSG_DONTWAIT);

	if (n <= 0)
		return n;
	if (msg.type != MSG_MAD) {
		handle_message(client, &msg, &fds);
	} else if (defer_mads) {
		struct pending_mad *pending = malloc(sizeof(*pending));

		if (pending) {
			pending->mad = msg.mad;
			list_add_tail(&client->pending, &pending->node);
		} else {
			counter_inc(CNT_DROP_MAD);
		}
	} else {
		handle_mad(client, &msg.mad);
	}
	portd_fds_close(&fds);
	return 1;
}

static void run_pending(struct portd_client *client)
{
	struct list_node *node;

	while ((node = list_pop(&client->pending))) {
		struct pending_mad *pending = list_entry(node, struct pending_mad, node);

		handle_mad(client, &pending->mad);
		free(pending);
	}
}

static void set_sock(struct portd_client *client, int sock)
{
	pthread_mutex_lock(&client->lock);
	if (client->sock >= 0)
		close(client->sock);
	client->sock = sock;
	client->connection++;
	pthread_cond_broadcast(&client->changed);
	pthread_mutex_unlock(&client->lock);
}

/* sleep; woken by portd_disconnect() */
static void pause_ms(struct portd_client *client, unsigned int ms)
{
	struct pollfd pfd = { .fd = client->wake_fd, .events = POLLIN };

	poll(&pfd, 1, (int)ms);
}

static unsigned int random_below(unsigned int n)
{
	uint32_t value = 0;

	if (getrandom(&value, sizeof(value), GRND_NONBLOCK) < 0)
		value = (uint32_t)clock_ns();
	return value % n;
}

static bool is_stopped(struct portd_client *client)
{
	bool stop;

	pthread_mutex_lock(&client->lock);
	stop = client->stop;
	pthread_mutex_unlock(&client->lock);
	return stop;
}

static void lose_slot(struct portd_client *client, const char *why)
{
	log_error("%s", why);
	pthread_mutex_lock(&client->lock);
	client->lost = true;
	pthread_cond_broadcast(&client->changed);
	pthread_mutex_unlock(&client->lock);
}

/* The daemon is gone. Find or start the next one, however long it takes. */
static void find_next_daemon(struct portd_client *client)
{
	uint64_t gone_since_ns = clock_ns(), last_spawn_ns = NEVER;
	unsigned int longest_ms = 10;
	bool complained = false;
	char why[256];

	log_debug("portd: the daemon is gone");
	set_sock(client, -1);
	while (!is_stopped(client)) {
		int sock;

		/* not all clients at the same moment */
		pause_ms(client, random_below(longest_ms));
		if (is_stopped(client))
			return;
		longest_ms = MIN(longest_ms * 2, RETRY_MAX_MS);
		sock = try_daemon(client, clock_ns() + ANSWER_NS, why);
		if (sock >= 0) {
			set_sock(client, sock);
			if (complained)
				log_warn("a port daemon runs again");
			return;
		}
		if (sock == -EBUSY) {
			lose_slot(client, why);
			return;
		}
		if (sock == -ECONNREFUSED && client->may_spawn)
			spawn_if_due(&last_spawn_ns);
		if (complained || clock_ns() - gone_since_ns < COMPLAIN_NS)
			continue;
		complained = true;
		if (why[0])
			log_warn("no port daemon: %s; existing connections go on, trying again",
				 why);
		else
			log_warn("no port daemon%s: existing connections go on, new ones wait for "
				 "it",
				 client->may_spawn ? ""
						   : " (it was another user's, who alone can start "
						     "it again)");
	}
}

static void client_free(struct portd_client *client)
{
	struct list_node *node;

	pthread_mutex_lock(&all_clients_lock);
	list_del(&client->node);
	pthread_mutex_unlock(&all_clients_lock);
	for (int family = 0; family < 2; family++)
		if (client->fd[family] >= 0)
			close(client->fd[family]);
	if (client->sock >= 0)
		close(client->sock);
	if (client->wake_fd >= 0)
		close(client->wake_fd);
	portd_fds_close(&client->group);
	while ((node = list_pop(&client->listens)))
		free(list_entry(node, struct listen, node));
	while ((node = list_pop(&client->pending)))
		free(list_entry(node, struct pending_mad, node));
	mad_tap_close(client->tap);
	pthread_cond_destroy(&client->changed);
	pthread_mutex_destroy(&client->lock);
	pthread_mutex_destroy(&client->request_lock);
	free(client);
}

static void *client_thread(void *arg)
{
	struct portd_client *client = arg;
	bool detached;

	while (!is_stopped(client)) {
		struct pollfd pfd[2] = {
			{ .fd = client->wake_fd, .events = POLLIN },
			{ .fd = client->lost ? -1 : client->sock, .events = POLLIN },
		};
		int n;

		if (poll(pfd, 2, -1) < 0 || !pfd[1].revents)
			continue;
		n = read_daemon(client, false);
		run_pending(client);
		if (n <= 0 && n != -EAGAIN && !is_stopped(client))
			find_next_daemon(client);
	}
	pthread_mutex_lock(&client->lock);
	detached = client->detached;
	pthread_mutex_unlock(&client->lock);
	if (detached)
		client_free(client);
	return NULL;
}

static int start_thread(struct portd_client *client)
{
	sigset_t all, before;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(&client->thread, NULL, client_thread, client);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!err)
		pthread_setname_np(client->thread, "softhca-portd");
	return -err;
}

/* --- the interface --- */

static bool sockets_are_ours(const struct portd_client *client)
{
	struct stat st;
	int fd = client->fd[0] >= 0 ? client->fd[0] : client->fd[1];

	return !fstat(fd, &st) && st.st_uid == geteuid();
}

int portd_connect(struct portd_client **out, void (*on_mad)(void *arg, const struct portd_mad *mad),
		  void *arg)
{
	struct portd_client *client = calloc(1, sizeof(*client));
	pthread_condattr_t attr;
	int err;

	if (!client)
		return -ENOMEM;
	portd_client_init();
	client->on_mad = on_mad;
	client->arg = arg;
	client->fd[0] = client->fd[1] = client->sock = -1;
	client->psn = random_below(PSN_MASK);
	portd_fds_init(&client->group);
	list_init(&client->listens);
	list_init(&client->pending);
	pthread_mutex_init(&client->request_lock, NULL);
	pthread_mutex_init(&client->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&client->changed, &attr);
	pthread_condattr_destroy(&attr);
	client->wake_fd = portd_fd_move_up(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	pthread_mutex_lock(&all_clients_lock);
	list_add(&all_clients, &client->node);
	pthread_mutex_unlock(&all_clients_lock);

	err = client->wake_fd < 0 ? -EMFILE : mad_tap_open(&client->tap);
	if (!err)
		err = find_daemon(client);
	if (err)
		goto out_free;
	client->may_spawn = sockets_are_ours(client);
	err = start_thread(client);
	if (err)
		goto out_free;
	*out = client;
	return 0;

out_free:
	client_free(client);
	return err;
}

void portd_disconnect(struct portd_client *client)
{
	const uint64_t one = 1;
	bool from_itself = pthread_equal(pthread_self(), client->thread);

	pthread_mutex_lock(&client->lock);
	client->stop = true;
	client->detached = from_itself;
	pthread_cond_broadcast(&client->changed);
	pthread_mutex_unlock(&client->lock);
	if (from_itself) { /* called in a callback: the thread frees all when it returns */
		pthread_detach(client->thread);
		return;
	}
	if (write(client->wake_fd, &one, sizeof(one)) < 0)
		log_debug("portd: cannot wake the client's thread: %s", strerror(errno));
	pthread_join(client->thread, NULL);
	client_free(client);
}

uint8_t portd_slot(const struct portd_client *client)
{
	return client->slot;
}

static int duplicate(int fd)
{
	int copy;

	if (fd < 0)
		return -1;
	copy = fcntl(fd, F_DUPFD_CLOEXEC, PORTD_FD_MIN);
	return copy >= 0 ? copy : fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

void portd_sockets(const struct portd_client *client, int *fd4, int *fd6)
{
	*fd4 = duplicate(client->fd[0]);
	*fd6 = duplicate(client->fd[1]);
}

static void deadline_timespec(struct timespec *ts, uint64_t ns)
{
	ts->tv_sec = (time_t)(ns / NSEC_PER_SEC);
	ts->tv_nsec = (long)(ns % NSEC_PER_SEC);
}

/* lock held. Wait for a daemon; -ETIMEDOUT, -ECONNRESET (slot lost), -ECANCELED */
static int wait_connected(struct portd_client *client, const struct timespec *deadline)
{
	while (client->sock < 0 || client->lost || client->stop) {
		if (client->lost)
			return -ECONNRESET;
		if (client->stop)
			return -ECANCELED;
		if (pthread_cond_timedwait(&client->changed, &client->lock, deadline))
			return -ETIMEDOUT;
	}
	return 0;
}

/* the answer, read by another thread. lock held. -EAGAIN: that daemon is gone, ask the next */
static int wait_answer(struct portd_client *client, uint32_t seq, const struct timespec *deadline)
{
	uint32_t connection = client->connection;

	while (client->answered_seq != seq) {
		if (client->connection != connection)
			return -EAGAIN;
		if (client->stop)
			return -ECANCELED;
		if (pthread_cond_timedwait(&client->changed, &client->lock, deadline))
			return -ETIMEDOUT;
	}
	return client->answered_result;
}

/* the same on the client's own thread, inside a callback */
static int read_answer(struct portd_client *client, uint32_t seq, uint64_t deadline_ns)
{
	while (client->answered_seq != seq) {
		int err = wait_readable(client->sock, deadline_ns);

		if (!err)
			err = read_daemon(client, true);
		if (err == 0)
			return -ECONNRESET;
		if (err < 0 && err != -EAGAIN)
			return err;
	}
	return client->answered_result;
}

/*
 * Send @msg and wait for its RESULT; through a change of daemons if need be.
 * @listen: goes to client->listens when it is granted, else it is freed.
 */
static int request(struct portd_client *client, struct portd_msg *msg, struct listen *listen)
{
	uint64_t deadline_ns = clock_ns() + ANSWER_NS;
	bool own_thread = pthread_equal(pthread_self(), client->thread);
	struct timespec deadline;
	int err;

	deadline_timespec(&deadline, deadline_ns);
	pthread_mutex_lock(&client->request_lock);
	pthread_mutex_lock(&client->lock);
	client->asked = listen;
	do {
		err = own_thread ? 0 : wait_connected(client, &deadline);
		if (err)
			break;
		msg->seq = ++client->seq ?: ++client->seq;
		if (portd_msg_send(client->sock, msg, NULL, 0, 0)) {
			err = -EAGAIN; /* the thread sees the end of the connection too */
			if (own_thread)
				break;
			deadline_timespec(&deadline, deadline_ns);
			pthread_mutex_unlock(&client->lock);
			usleep(1000);
			pthread_mutex_lock(&client->lock);
			if (clock_ns() >= deadline_ns)
				err = -ETIMEDOUT;
			continue;
		}
		if (!own_thread) {
			err = wait_answer(client, msg->seq, &deadline);
			continue;
		}
		pthread_mutex_unlock(&client->lock);
		err = read_answer(client, msg->seq, deadline_ns);
		pthread_mutex_lock(&client->lock);
	} while (err == -EAGAIN);
	free(client->asked); /* NULL when it was granted */
	client->asked = NULL;
	pthread_mutex_unlock(&client->lock);
	pthread_mutex_unlock(&client->request_lock);
	return err;
}

int portd_listen(struct portd_client *client, uint64_t service_id, const union ibv_gid *addr)
{
	struct portd_msg msg = { .type = MSG_LISTEN };
	struct listen *listen;
	int err;

	if (!client)
		return -ENODEV;
	listen = calloc(1, sizeof(*listen));
	if (!listen)
		return -ENOMEM;
	listen->service_id = msg.listen.service_id = service_id;
	listen->gid = msg.listen.gid = *addr;
	err = request(client, &msg, listen);
	if (err == -ETIMEDOUT) /* it may be granted yet */
		portd_unlisten(client, service_id, addr);
	return err;
}

void portd_unlisten(struct portd_client *client, uint64_t service_id, const union ibv_gid *addr)
{
	struct portd_msg msg = { .type = MSG_UNLISTEN };
	struct list_node *node, *next;

	if (!client)
		return;
	msg.listen.service_id = service_id;
	msg.listen.gid = *addr;
	pthread_mutex_lock(&client->lock);
	list_for_each_safe(node, next, &client->listens) {
		struct listen *listen = list_entry(node, struct listen, node);

		if (listen->service_id != service_id || memcmp(&listen->gid, addr, sizeof(*addr)))
			continue;
		list_del(&listen->node);
		free(listen);
	}
	/* without a daemon there is nothing to undo: the next one gets the list */
	if (client->sock >= 0)
		portd_msg_send(client->sock, &msg, NULL, 0, 0);
	pthread_mutex_unlock(&client->lock);
}

int portd_send_mad(struct portd_client *client, const struct portd_mad *mad)
{
	uint8_t packet[MAD_PACKET_LEN];

	if (!client)
		return -ENODEV;
	mad_build(packet, mad, client->psn++);
	counter_inc(CNT_CM_TX);
	return mad_tap_send(client->tap, client->fd[0], client->fd[1], mad, packet, sizeof(packet));
}
