// SPDX-License-Identifier: BSD-2-Clause
/*
 * server.c: the target's life: listen, serve, and on SIGTERM an orderly end. One thread does all:
 * it polls completions while there is work and sleeps on the descriptors of everything that can
 * happen when there is none.
 */
#include "target/server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "target/rdma.h"
#include "util/bytes.h"
#include "util/clock.h"
#include "util/log.h"

#define LISTEN_BACKLOG	  128
#define IDLE_BEFORE_SLEEP (50 * NSEC_PER_USEC)	/* a wake-up costs 12 to 25 us */
#define EVENT_CHECK_NS	  (200 * NSEC_PER_USEC) /* of the descriptors, while busy */
#define TICK_MS		  100
#define CLOSE_TIMEOUT_NS  (5 * NSEC_PER_SEC)
#define DESCRIPTORS_MAX	  256

struct server {
	struct transport transport;
	int signal_fd;
	bool terminate;
};

/* ---- listening ---- */

static void port_address(const struct port *port, struct sockaddr_storage *storage)
{
	struct sockaddr_in *in = (struct sockaddr_in *)storage;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)storage;

	memset(storage, 0, sizeof(*storage));
	storage->ss_family = (sa_family_t)port->family;
	if (port->family == AF_INET6) {
		in6->sin6_port = htons(port->port);
		inet_pton(AF_INET6, port->traddr, &in6->sin6_addr);
	} else {
		in->sin_port = htons(port->port);
		inet_pton(AF_INET, port->traddr, &in->sin_addr);
	}
}

static const char *listen_error(int err)
{
	switch (err) {
	case EADDRINUSE:
		return "another program listens there";
	case EADDRNOTAVAIL:
	case ENODEV:
		return "no device has this address (see 'softhca devices')";
	default:
		return strerror(err);
	}
}

static bool start_listener(struct transport *transport, struct port *port, char *error,
			   unsigned int error_len)
{
	struct rdma_cm_id *id = NULL;
	struct sockaddr_storage addr;
	int only_ipv6 = 1;

	port_address(port, &addr);
	if (rdma_create_id(transport->channel, &id, port, RDMA_PS_TCP))
		goto out_error;
	if (port->family == AF_INET6)
		rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &only_ipv6,
				sizeof(only_ipv6));
	if (rdma_bind_addr(id, (struct sockaddr *)&addr) || rdma_listen(id, LISTEN_BACKLOG))
		goto out_error;
	port->listener = id;
	/* with its address known the device can be made ready before the first host comes */
	if (id->verbs && !device_get(transport, id->verbs)) {
		snprintf(error, error_len, "the device of %s cannot be used", port->traddr);
		return false;
	}
	if (!transport->options.quiet)
		printf("listening on %s%s%s:%u\n", port->family == AF_INET6 ? "[" : "",
		       port->traddr, port->family == AF_INET6 ? "]" : "", port->port);
	fflush(stdout);
	return true;

out_error:
	snprintf(error, error_len, "cannot listen on %s%s%s:%u: %s",
		 port->family == AF_INET6 ? "[" : "", port->traddr,
		 port->family == AF_INET6 ? "]" : "", port->port, listen_error(errno));
	if (id)
		rdma_destroy_id(id);
	return false;
}

static void stop_listeners(struct transport *transport)
{
	struct list_node *pos;

	list_for_each(pos, &transport->target.ports) {
		struct port *port = list_entry(pos, struct port, node);

		if (port->listener)
			rdma_destroy_id(port->listener);
		port->listener = NULL;
	}
}

/* ---- CM events ---- */

static void cm_event(struct transport *transport, struct rdma_cm_event *event)
{
	enum rdma_cm_event_type type = event->event;
	unsigned int depth = event->param.conn.initiator_depth;
	uint8_t private_data[sizeof(struct nvmf_rdma_request)];
	struct rdma_cm_id *id = event->id;
	struct connection *conn = id->context;
	const struct port *port = NULL;
	unsigned int len = 0;
	int status = event->status;

	if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
		port = event->listen_id->context;
		len = MIN(event->param.conn.private_data_len, sizeof(private_data));
		if (event->param.conn.private_data)
			memcpy(private_data, event->param.conn.private_data, len);
		else
			len = 0;
	}
	rdma_ack_cm_event(event);
	switch (type) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		connection_request(transport, id, port, private_data, len, depth);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		connection_established(conn);
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		connection_close(conn, "the host has disconnected");
		break;
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_REJECTED:
		log_debug("%s, status %d", rdma_event_str(type), status);
		connection_close(conn, "the host has not answered");
		break;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		if (id->qp)
			connection_close(conn, "its device is gone");
		break;
	default: /* ADDR_CHANGE, TIMEWAIT_EXIT */
		log_debug("%s", rdma_event_str(type));
	}
}

static void cm_events(struct transport *transport)
{
	struct rdma_cm_event *event;

	while (!rdma_get_cm_event(transport->channel, &event))
		cm_event(transport, event);
}

/* ---- signals ---- */

static void report(struct server *server)
{
	statistics_print(&server->transport);
	if (server->transport.options.stats_file)
		statistics_write(&server->transport, server->transport.options.stats_file);
}

static const struct config_subsystem *find_config(const struct config *config, const char *nqn)
{
	for (size_t i = 0; i < config->subsystem_count; i++)
		if (!strcmp(config->subsystems[i].nqn, nqn))
			return &config->subsystems[i];
	return NULL;
}

static bool enabled_in(const struct config_subsystem *config, uint32_t nsid)
{
	for (size_t i = 0; config && i < config->namespace_count; i++)
		if (config->namespaces[i].nsid == nsid)
			return config->namespaces[i].enabled;
	return false;
}

/* what is switched off is refused to software first, then to the adapter; hosts are told at once */
static void switch_namespaces(struct transport *transport, const struct config *config)
{
	struct list_node *pos;

	list_for_each(pos, &transport->target.subsystems) {
		struct subsystem *s = list_entry(pos, struct subsystem, node);
		const struct config_subsystem *now = find_config(config, s->nqn);

		for (size_t i = 0; i < s->namespace_count; i++) {
			struct namespace *ns = &s->namespaces[i];
			bool enable = enabled_in(now, ns->nsid);

			if (enable == ns->enabled)
				continue;
			log_info("namespace %u of %s is switched %s", ns->nsid, s->nqn,
				 enable ? "on" : "off");
			subsystem_enable_namespace(&transport->target, s, ns->nsid, enable);
			offload_switch_namespace(s, ns);
		}
	}
}

static void reload(struct transport *transport)
{
	const struct server_options *options = &transport->options;
	struct config *config;
	char error[512];

	if (!options->reload) {
		log_warn("SIGHUP reads --config again, and there is none");
		return;
	}
	config = options->reload(options->reload_arg, error, sizeof(error));
	if (!config) {
		log_error("%s: nothing is changed", error);
		return;
	}
	switch_namespaces(transport, config);
	config_free(config);
}

static void signals(struct server *server)
{
	struct signalfd_siginfo info;

	while (read(server->signal_fd, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo == SIGUSR1)
			report(server);
		else if (info.ssi_signo == SIGHUP)
			reload(&server->transport);
		else
			server->terminate = true;
	}
}

/* ---- the loop ---- */

struct descriptors {
	struct pollfd fd[DESCRIPTORS_MAX];
	struct ring *ring[DESCRIPTORS_MAX];
	struct device *device[DESCRIPTORS_MAX];
	unsigned int count;
};

static void add_descriptor(struct descriptors *d, int fd, struct ring *ring, struct device *device)
{
	if (d->count == DESCRIPTORS_MAX)
		return; /* the tick finds what happens there */
	d->fd[d->count] = (struct pollfd){ .fd = fd, .events = POLLIN };
	d->ring[d->count] = ring;
	d->device[d->count] = device;
	d->count++;
}

static void collect_descriptors(struct server *server, struct descriptors *d)
{
	struct list_node *pos, *inner;

	d->count = 0;
	add_descriptor(d, server->signal_fd, NULL, NULL);
	add_descriptor(d, server->transport.channel->fd, NULL, NULL);
	list_for_each(pos, &server->transport.devices) {
		struct device *device = list_entry(pos, struct device, node);

		add_descriptor(d, device->verbs->async_fd, NULL, device);
		add_descriptor(d, device->ring->comp_channel->fd, device->ring, NULL);
		list_for_each(inner, &device->offloads) {
			struct offload *offload = list_entry(inner, struct offload, node);

			add_descriptor(d, offload->ring->comp_channel->fd, offload->ring, NULL);
			add_descriptor(d, soft_ctrl_fd(subsystem_controller(offload->subsystem)),
				       NULL, NULL);
		}
	}
}

static bool poll_devices(struct transport *transport)
{
	struct list_node *pos;
	bool busy = false;

	list_for_each(pos, &transport->devices)
		busy |= device_poll(list_entry(pos, struct device, node));
	return busy;
}

/* looks at every descriptor, waits for at most @timeout_ms */
static void check_descriptors(struct server *server, int timeout_ms)
{
	struct descriptors d;

	collect_descriptors(server, &d);
	if (poll(d.fd, d.count, timeout_ms) <= 0)
		return;
	for (unsigned int i = 2; i < d.count; i++) {
		if (!d.fd[i].revents)
			continue;
		if (d.ring[i])
			ring_notified(d.ring[i]);
		if (d.device[i])
			device_async_events(d.device[i]);
	}
	if (d.fd[0].revents)
		signals(server);
	if (d.fd[1].revents)
		cm_events(&server->transport);
}

static void sleep_until_event(struct server *server)
{
	struct list_node *pos;

	list_for_each(pos, &server->transport.devices)
		device_arm(list_entry(pos, struct device, node));
	/* what came before the arming is not announced */
	if (poll_devices(&server->transport))
		return;
	check_descriptors(server, TICK_MS);
}

static void housekeeping(struct server *server, uint64_t now)
{
	target_check_kato(&server->transport.target, now);
	connections_reap(&server->transport, now);
}

static void serve(struct server *server)
{
	uint64_t now = clock_ns(), last_busy = now, last_check = 0, last_housekeeping = 0;

	while (!server->terminate) {
		bool busy = poll_devices(&server->transport);

		now = clock_ns();
		if (busy)
			last_busy = now;
		if (now - last_busy >= IDLE_BEFORE_SLEEP) {
			sleep_until_event(server);
			last_check = last_busy = clock_ns();
		} else if (now - last_check >= EVENT_CHECK_NS) {
			check_descriptors(server, 0);
			last_check = now;
		}
		if (now - last_housekeeping >= 10 * NSEC_PER_MSEC) {
			housekeeping(server, now);
			last_housekeeping = now;
		}
	}
}

/* I/O queues first, then admin queues: a host sees an orderly disconnect, nothing half done */
static void disconnect_hosts(struct server *server)
{
	struct transport *transport = &server->transport;
	uint64_t deadline = clock_ns() + CLOSE_TIMEOUT_NS;
	struct list_node *pos;

	transport->stopping = true;
	for (int admin = 0; admin <= 1; admin++)
		list_for_each(pos, &transport->connections) {
			struct connection *conn = list_entry(pos, struct connection, node);

			if (admin == !conn->queue.qid)
				connection_close(conn, "the target ends");
		}
	while (!list_empty(&transport->connections) && clock_ns() < deadline) {
		if (!poll_devices(transport))
			check_descriptors(server, 1);
		connections_reap(transport, clock_ns());
	}
}

static void transport_free(struct transport *transport)
{
	struct list_node *pos, *tmp;

	list_for_each_safe(pos, tmp, &transport->devices)
		device_free(list_entry(pos, struct device, node));
	list_for_each(pos, &transport->target.subsystems)
		subsystem_controller_free(list_entry(pos, struct subsystem, node));
	if (transport->channel)
		rdma_destroy_event_channel(transport->channel);
	target_free(&transport->target);
}

static bool transport_start(struct transport *transport, const struct config *config, char *error,
			    unsigned int error_len)
{
	struct list_node *pos;

	if (!target_configure(&transport->target, config, error, error_len))
		return false;
	transport->target.offload_totals = offload_totals;
	transport->target.statistics = statistics_json;
	transport->channel = rdma_create_event_channel();
	if (!transport->channel) {
		snprintf(error, error_len, "no RDMA event channel: %s", strerror(errno));
		return false;
	}
	fcntl(transport->channel->fd, F_SETFL, fcntl(transport->channel->fd, F_GETFL) | O_NONBLOCK);
	list_for_each(pos, &transport->target.ports)
		if (!start_listener(transport, list_entry(pos, struct port, node), error,
				    error_len))
			return false;
	return true;
}

int server_run(const struct config *config, const struct server_options *options, char *error,
	       unsigned int error_len)
{
	static struct server server; /* large, and there is one */
	struct transport *transport = &server.transport;
	sigset_t set;
	int result = -1;

	memset(&server, 0, sizeof(server));
	transport->options = *options;
	target_init(&transport->target);
	list_init(&transport->devices);
	list_init(&transport->connections);
	for (int i = 0; i < CONNECTION_HASH; i++)
		list_init(&transport->by_qp_num[i]);
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGHUP);
	/* before the library makes threads: they inherit the mask */
	sigprocmask(SIG_BLOCK, &set, NULL);
	server.signal_fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
	if (server.signal_fd < 0) {
		snprintf(error, error_len, "signalfd: %s", strerror(errno));
		return -1;
	}
	/* where statistics cannot go is said at once, not when there are some */
	if (options->stats_file && !statistics_write(transport, options->stats_file)) {
		snprintf(error, error_len, "--stats-file %s cannot be written",
			 options->stats_file);
	} else if (transport_start(transport, config, error, error_len)) {
		serve(&server);
		disconnect_hosts(&server);
		report(&server);
		result = 0;
	}
	stop_listeners(transport);
	transport_free(transport);
	close(server.signal_fd);
	return result;
}
