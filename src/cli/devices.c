// SPDX-License-Identifier: BSD-2-Clause
/*
 * devices.c: softhca devices: the RDMA devices that programs see, with their addresses.
 */
#include "cli/cli.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <infiniband/verbs.h>

#include "softhca/softhca.h"

static const char help[] =
	"Usage: softhca devices\n"
	"\n"
	"Lists the RDMA devices: one softhca_<interface> for each network interface that is up and\n"
	"has an address, with port state, active MTU and the addresses (GIDs, RoCEv2).\n"
	"SOFTHCA_DEVICES=eth0,lo chooses interfaces.\n"
	"\n"
	"  -h, --help  this text\n";

static const char *const port_states[] = {
	[IBV_PORT_NOP] = "nop",	      [IBV_PORT_DOWN] = "down",
	[IBV_PORT_INIT] = "init",     [IBV_PORT_ARMED] = "armed",
	[IBV_PORT_ACTIVE] = "active", [IBV_PORT_ACTIVE_DEFER] = "active defer",
};

static void gid_text(const union ibv_gid *gid, char *text, size_t len)
{
	struct in6_addr addr;

	memcpy(&addr, gid->raw, sizeof(addr));
	if (IN6_IS_ADDR_V4MAPPED(&addr))
		inet_ntop(AF_INET, &gid->raw[12], text, (socklen_t)len);
	else
		inet_ntop(AF_INET6, &addr, text, (socklen_t)len);
}

static void print_device(struct ibv_device *device)
{
	static const union ibv_gid none;
	struct ibv_context *context = ibv_open_device(device);
	struct ibv_port_attr port;
	char text[INET6_ADDRSTRLEN];
	union ibv_gid gid;

	if (!context) {
		printf("%-20s cannot be opened: %s\n", ibv_get_device_name(device),
		       strerror(errno));
		return;
	}
	if (ibv_query_port(context, 1, &port)) {
		printf("%-20s port 1 cannot be queried\n", ibv_get_device_name(device));
		goto out;
	}
	printf("%-20s %-7s %-8s MTU %u\n", ibv_get_device_name(device),
	       softhca_is_device(context) ? "softhca" : "other",
	       port.state <= IBV_PORT_ACTIVE_DEFER ? port_states[port.state] : "?",
	       port.active_mtu ? 128U << port.active_mtu : 0);
	for (int i = 0; i < port.gid_tbl_len; i++) {
		if (ibv_query_gid(context, 1, i, &gid) || !memcmp(&gid, &none, sizeof(gid)))
			continue;
		gid_text(&gid, text, sizeof(text));
		printf("  GID %-3d %s\n", i, text);
	}
out:
	ibv_close_device(context);
}

int cli_devices(int argc, char **argv)
{
	static const struct option options[] = {
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	struct ibv_device **list;
	int count, c;

	while ((c = cli_getopt(argc, argv, "softhca devices", options)) != -1) {
		if (c != 'h')
			return CLI_USAGE;
		fputs(help, stdout);
		return 0;
	}
	if (optind < argc)
		return cli_usage_error("softhca devices", "unknown argument '%s'", argv[optind]);
	list = ibv_get_device_list(&count);
	if (!list) {
		fprintf(stderr, "softhca devices: cannot list the devices: %s\n", strerror(errno));
		return 1;
	}
	if (!count)
		fprintf(stderr, "softhca devices: none: no network interface is up with an address"
				" (SOFTHCA_DEVICES may exclude some)\n");
	for (int i = 0; i < count; i++)
		print_device(list[i]);
	ibv_free_device_list(list);
	return count ? 0 : 1;
}
