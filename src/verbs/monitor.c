/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * monitor.c: notices that addresses or interfaces change, for the GID table and the port events.
 * One thread a process, asleep in a netlink socket; it starts with the first engine.
 */
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/log.h"
#include "verbs/objects.h"

#define SETTLE_US 20000 /* changes come in groups: an address and its routes, a link's flags */

static struct {
	pthread_mutex_t lock;
	bool running;
	int fd;
	ino_t inode; /* of the socket: a program may close all descriptors and reuse the number */
} monitor = { .lock = PTHREAD_MUTEX_INITIALIZER };

static bool is_ours(int fd, ino_t inode)
{
	struct stat st;

	return !fstat(fd, &st) && S_ISSOCK(st.st_mode) && st.st_ino == inode;
}

/* wait for a message and take all that are there. Return: false = the socket is no more */
static bool wait_for_change(int fd, ino_t inode)
{
	char buf[8192];

	if (!is_ours(fd, inode))
		return false;
	/* ENOBUFS: messages were lost, so there were some */
	if (recv(fd, buf, sizeof(buf), 0) < 0 && errno != ENOBUFS && errno != EINTR)
		return false;
	usleep(SETTLE_US);
	while (is_ours(fd, inode) && recv(fd, buf, sizeof(buf), MSG_DONTWAIT) > 0)
		;
	return true;
}

static void *monitor_main(void *arg)
{
	int fd = monitor.fd;
	ino_t inode = monitor.inode;

	pthread_setname_np(pthread_self(), "softhca-monitor");
	while (wait_for_change(fd, inode))
		device_refresh();
	log_debug("the monitor of interfaces ends: its socket is gone");
	return NULL;
}

static int open_socket(void)
{
	struct sockaddr_nl addr = {
		.nl_family = AF_NETLINK,
		.nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR,
	};
	struct stat st;
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

	if (fd < 0)
		return -1;
	if (bind(fd, (struct sockaddr *)&addr, sizeof(addr)) || fstat(fd, &st)) {
		close(fd);
		return -1;
	}
	monitor.fd = fd;
	monitor.inode = st.st_ino;
	return fd;
}

/* a fork()ed child has the socket but not the thread */
static void after_fork_child(void)
{
	pthread_mutex_init(&monitor.lock, NULL);
	if (monitor.running && is_ours(monitor.fd, monitor.inode))
		close(monitor.fd);
	monitor.running = false;
}

static int start_thread(void)
{
	pthread_attr_t attr;
	sigset_t all, old;
	pthread_t thread;
	int ret;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	sigfillset(&all); /* signals are the application's */
	pthread_sigmask(SIG_SETMASK, &all, &old);
	ret = pthread_create(&thread, &attr, monitor_main, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	return ret;
}

void monitor_start(void)
{
	static bool has_handler;
	int fd;

	pthread_mutex_lock(&monitor.lock);
	if (monitor.running)
		goto out_unlock;
	if (!has_handler)
		has_handler = !pthread_atfork(NULL, NULL, after_fork_child);
	fd = open_socket();
	if (fd < 0) {
		log_debug("no netlink socket (%s): changes of addresses go unnoticed",
			  strerror(errno));
		goto out_unlock;
	}
	if (start_thread()) {
		close(fd);
		goto out_unlock;
	}
	monitor.running = true;
out_unlock:
	pthread_mutex_unlock(&monitor.lock);
}
