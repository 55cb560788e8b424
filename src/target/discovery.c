// SPDX-License-Identifier: BSD-2-Clause
/*
 * discovery.c: the discovery log page (fabrics 1.1, 5.3): a record for each subsystem on each port
 * that the asking host may use. A port that listens on the wildcard address reports the address the
 * host has connected to: 0.0.0.0 would be of no use to it.
 */
#include "target/model.h"

#include <stdio.h>
#include <string.h>

#include "util/bytes.h"

static void put_text(char *out, size_t size, const char *text)
{
	memset(out, ' ', size);
	memcpy(out, text, MIN(strlen(text), size));
}

static void put_record(const struct queue *queue, const struct port *port,
		       const struct subsystem *subsystem, struct window *window)
{
	struct nvmf_discovery_record record = { 0 };
	char service[8];

	record.trtype = NVMF_TRTYPE_RDMA;
	record.adrfam = port->family == AF_INET6 ? NVMF_ADRFAM_IPV6 : NVMF_ADRFAM_IPV4;
	record.subtype = NVMF_SUBTYPE_NVM;
	record.treq = NVMF_TREQ_NOT_SPECIFIED;
	record.portid = htole16(port->portid);
	record.cntlid = htole16(NVMF_CNTLID_DYNAMIC);
	record.asqsz = htole16(TARGET_ADMIN_ENTRIES);
	snprintf(service, sizeof(service), "%u", port->port);
	put_text(record.trsvcid, sizeof(record.trsvcid), service);
	strcpy(record.subnqn, subsystem->nqn);
	put_text(record.traddr, sizeof(record.traddr),
		 port->wildcard ? queue->local_address : port->traddr);
	record.tsas.qptype = NVMF_RDMA_QPTYPE_RC;
	record.tsas.prtype = NVMF_RDMA_PRTYPE_ROCEV2;
	record.tsas.cms = NVMF_RDMA_CMS_RDMA_CM;
	window_put(window, &record, sizeof(record));
}

/* a wildcard port of the other address family has no address that this host could use */
static bool port_reachable(const struct queue *queue, const struct port *port)
{
	return !port->wildcard || port->family == queue->port->family;
}

void discovery_log(const struct queue *queue, const char *hostnqn, struct window *window)
{
	const struct target *target = queue->target;
	struct nvmf_discovery_header header = { 0 };
	struct list_node *pos;
	uint64_t records = 0;

	list_for_each(pos, &target->ports) {
		const struct port *port = list_entry(pos, struct port, node);

		for (size_t i = 0; port_reachable(queue, port) && i < port->subsystem_count; i++)
			records += subsystem_host_allowed(port->subsystems[i], hostnqn);
	}
	header.genctr = htole64(target->genctr);
	header.numrec = htole64(records);
	window_put(window, &header, sizeof(header));
	list_for_each(pos, &target->ports) {
		const struct port *port = list_entry(pos, struct port, node);

		for (size_t i = 0; port_reachable(queue, port) && i < port->subsystem_count; i++)
			if (subsystem_host_allowed(port->subsystems[i], hostnqn))
				put_record(queue, port, port->subsystems[i], window);
	}
}
