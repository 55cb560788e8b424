// SPDX-License-Identifier: BSD-2-Clause
/*
 * CM MADs: the input is a sequence of commands for two connections, one active, one passive: MADs
 * whose communication IDs may be made right, calls of the user, time. Decoding and encoding are
 * checked against each other on the way.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cm/cm_conn.h"
#include "util/bytes.h"
#include "util/clock.h"

static struct cm_conn *active, *passive;
static const union ibv_gid our_gid = { .raw = { [10] = 0xff, [11] = 0xff, 10, 0, 0, 1 } };
static const union ibv_gid peer_gid = { .raw = { [10] = 0xff, [11] = 0xff, 10, 0, 0, 2 } };

static void check(int ok)
{
	if (!ok)
		__builtin_trap();
}

static void send_mad(void *arg, const struct cm_path *path, const uint8_t data[CM_MAD_LEN])
{
	struct cm_mad mad;

	check(cm_mad_decode(&mad, data) == CM_MAD_OK);
}

static void *lookup(void *arg, const struct cm_req *req, const struct cma_header *cma,
		    const struct cm_path *path, struct cm_refusal *refusal)
{
	if (req->service_id & 1) {
		refusal->reason = CM_REJ_INVALID_SERVICE_ID;
		return NULL;
	}
	return arg;
}

static uint16_t request(void *arg, void *listener, struct cm_conn *conn, const struct cm_req *req,
			const struct cma_header *cma)
{
	if (passive)
		return CM_REJ_CONSUMER;
	passive = conn;
	conn->owner = &passive;
	return 0;
}

static void event(void *arg, struct cm_conn *conn, const struct cm_event *ev)
{
	uint8_t sum = 0;

	for (int i = 0; i < ev->private_len; i++)
		sum = (uint8_t)(sum + ev->private_data[i]);
	if (ev->type == CM_EVENT_REP && !(sum & 1))
		check(!cm_conn_rtu(conn, NULL, 0));
}

static const struct cm_ops ops = {
	.send = send_mad, .lookup = lookup, .request = request, .event = event
};

static void user_call(struct cm *cm, uint8_t what, uint64_t now_ns)
{
	struct cm_conn *conn = what & 0x80 ? passive : active;
	struct cm_conn_param param = { .qpn = 5, .private_data = "x", .private_len = 1 };

	if (!conn)
		return;
	switch (what & 7) {
	case 0:
		if (!cm_conn_prepare_accept(conn, &param))
			cm_conn_accept(conn, &param, now_ns);
		break;
	case 1:
		cm_conn_reject(conn, CM_REJ_CONSUMER, NULL, 0, now_ns);
		break;
	case 2:
		cm_conn_disconnect(conn, now_ns);
		break;
	case 3:
		cm_conn_comm_established(conn);
		break;
	case 4:
		cm_conn_rtu(conn, NULL, 0);
		break;
	case 5:
		cm_conn_destroy(conn, now_ns);
		if (conn == active)
			active = NULL;
		else
			passive = NULL;
		break;
	}
}

static void receive(struct cm *cm, const uint8_t *input, size_t len, uint8_t how, uint64_t now_ns)
{
	struct cm_path path = { .sgid = our_gid, .dgid = peer_gid };
	struct cm_conn *conn = how & 1 ? active : passive;
	uint8_t data[CM_MAD_LEN] = { 1, 7, 2, 3 };
	struct cm_mad mad;

	memcpy(data + 4, input, MIN(len, sizeof(data) - 4));
	if (how & 2)
		put_be16(data + 16, (uint16_t)(CM_REQ + data[17] % 9));
	if (conn && how & 4)
		put_be32(data + 28, conn->local_id);
	if (conn && how & 8)
		put_be32(data + 24, conn->remote_id);
	if (how & 16) { /* a REQ that passes the first checks */
		memcpy(data + 24 + 56, peer_gid.raw, 16);
		memcpy(data + 24 + 72, our_gid.raw, 16);
		data[24 + 43] &= 0xf9;
		data[24 + 50] = IBV_MTU_1024 << 4;
		data[24 + 140] = 0;
		data[24 + 141] = 0x40;
	}
	if (how & 32 && conn)
		put_be24(data + 24 + 8, conn->local_qpn);
	if (!cm_mad_decode(&mad, data)) {
		uint8_t once[CM_MAD_LEN], twice[CM_MAD_LEN];

		cm_mad_encode(once, &mad);
		check(!cm_mad_decode(&mad, once));
		cm_mad_encode(twice, &mad);
		check(!memcmp(once, twice, CM_MAD_LEN));
	}
	cm_receive(cm, &path, data, now_ns);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct cm_connect_param param = {
		.conn = { .ca_guid = 1, .qpn = 17, .starting_psn = 1 },
		.path = { .sgid = our_gid, .dgid = peer_gid },
		.cma = { .ip_version = 4, .src = our_gid, .dst = peer_gid },
		.service_id = 2,
		.path_mtu = IBV_MTU_1024,
		.ack_timeout = 17
	};
	static struct cm cm;
	uint64_t now_ns = NSEC_PER_SEC;

	active = passive = NULL;
	cm_init(&cm, &ops, &cm, 1, 100);
	cm_connect(&cm, &active, &active, &param, now_ns);
	while (size >= 4) {
		uint8_t command = data[0], how = data[1];
		size_t len = MIN((size_t)data[2], size - 4);

		data += 4;
		size -= 4;
		if (command & 1) {
			receive(&cm, data, len, how, now_ns);
			data += len;
			size -= len;
		} else if (command & 2) {
			user_call(&cm, how, now_ns);
		} else {
			now_ns += (uint64_t)how * 50 * NSEC_PER_MSEC;
			cm_run_timers(&cm, now_ns);
		}
	}
	cm_fini(&cm);
	check(cm.conn_count == 0);
	return 0;
}
