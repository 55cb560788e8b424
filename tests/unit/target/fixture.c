// SPDX-License-Identifier: BSD-2-Clause
#include "fixture.h"

#include <sys/socket.h>

struct target target;
struct port *port, *wildcard_port;

static void on_complete(struct queue *queue, struct command *cmd)
{
	struct test_queue *tq = list_entry(queue, struct test_queue, queue);

	tq->completed++;
	tq->last_completed = cmd;
}

static void on_shutdown(struct queue *queue)
{
	list_entry(queue, struct test_queue, queue)->shut_down++;
}

static void on_connected(struct queue *queue)
{
	list_entry(queue, struct test_queue, queue)->connects++;
}

static const struct queue_ops ops = {
	.complete = on_complete,
	.shutdown = on_shutdown,
	.connected = on_connected,
};

static const char text[] =
	"{\"hosts\": [{\"nqn\": \"" HOST_B "\"}],"
	"\"ports\": [{\"addr\": {\"traddr\": \"10.0.0.5\", \"trsvcid\": 4420}, \"portid\": 1,"
	" \"subsystems\": [\"" NQN_A "\", \"" NQN_B "\"]},"
	"{\"addr\": {\"traddr\": \"0.0.0.0\", \"trsvcid\": 4421}, \"portid\": 2,"
	" \"subsystems\": [\"" NQN_B "\"]}],"
	"\"subsystems\": [{\"nqn\": \"" NQN_A
	"\", \"attr\": {\"allow_any_host\": 1, \"qid_max\": 4,"
	" \"serial\": \"SN1\"}, \"namespaces\": ["
	"{\"nsid\": 3, \"enable\": 1, \"device\": {\"path\": \"memory:1M\", \"block_size\": 4096}},"
	"{\"nsid\": 1, \"enable\": 1, \"device\": {\"path\": \"memory:1M\","
	" \"uuid\": \"00112233-4455-6677-8899-aabbccddeeff\"}},"
	"{\"nsid\": 5, \"enable\": 0, \"device\": {\"path\": \"memory:1M\"}}]},"
	"{\"nqn\": \"" NQN_B "\", \"attr\": {\"allow_any_host\": 0}, \"allowed_hosts\": [\"" HOST_B
	"\"], \"namespaces\": [{\"nsid\": 1, \"enable\": 1, \"device\": {\"path\": \"memory:1M\"}}]}]}";

int fixture_setup(void **state)
{
	char error[512] = "";
	struct config *config = config_parse_json("t", text, strlen(text), error, sizeof(error));

	assert_string_equal(error, "");
	target_init(&target);
	assert_true(target_configure(&target, config, error, sizeof(error)));
	config_free(config);
	port = list_entry(target.ports.next, struct port, node);
	wildcard_port = list_entry(target.ports.next->next, struct port, node);
	return 0;
}

int fixture_teardown(void **state)
{
	target_free(&target);
	clock_set_source(NULL);
	return 0;
}

struct test_queue *new_queue(uint16_t qid)
{
	struct test_queue *tq = calloc(1, sizeof(*tq));

	assert_non_null(tq);
	tq->queue.ops = &ops;
	tq->queue.target = &target;
	tq->queue.port = port;
	tq->queue.cm_qid = qid;
	tq->queue.cm_entries = 127;
	strcpy(tq->queue.local_address, "192.0.2.7");
	return tq;
}

void free_queue(struct test_queue *tq)
{
	queue_closed(&tq->queue);
	free(tq);
}

uint16_t run(struct test_queue *tq, struct command *cmd, const struct nvme_sqe *sqe, void *data,
	     size_t len)
{
	struct transfer transfer;
	uint16_t status;

	memset(cmd, 0, sizeof(*cmd));
	list_init(&cmd->node);
	cmd->sqe = *sqe;
	cmd->sqe.flags = NVME_SQE_PSDT_SGL | (sqe->flags & ~NVME_SQE_PSDT_MASK);
	cmd->queue = &tq->queue;
	status = command_transfer(cmd, &transfer);
	if (status)
		return status;
	if (transfer.bytes > len)
		return NVME_SC_SGL_DATA_LENGTH | DNR;
	if (transfer.bytes > TARGET_MAX_IO_BYTES)
		return NVME_SC_INVALID_FIELD | DNR;
	if (transfer.direction == TRANSFER_TO_HOST && transfer.bytes && data)
		memset(data, 0, transfer.bytes);
	cmd->data = data;
	cmd->data_len = transfer.bytes;
	return command_execute(cmd) ? cmd->status : PENDING;
}

struct nvme_sqe sqe_of(uint8_t opcode, uint32_t nsid, uint32_t cdw10, uint32_t cdw11,
		       uint32_t cdw12)
{
	return (struct nvme_sqe){
		.opcode = opcode,
		.nsid = htole32(nsid),
		.cdw10 = htole32(cdw10),
		.cdw11 = htole32(cdw11),
		.cdw12 = htole32(cdw12),
	};
}

struct nvmf_connect_sqe connect_sqe(uint16_t qid)
{
	return (struct nvmf_connect_sqe){
		.opcode = NVME_CMD_FABRICS,
		.fctype = NVME_FABRICS_CONNECT,
		.qid = htole16(qid),
		.sqsize = htole16(31),
		.kato = htole32(qid ? 0 : 5000),
	};
}

struct nvmf_connect_data connect_data(const char *subnqn, const char *hostnqn, uint16_t cntlid)
{
	struct nvmf_connect_data data = { .cntlid = htole16(cntlid) };

	memset(data.hostid, 7, sizeof(data.hostid));
	strcpy(data.subnqn, subnqn);
	strcpy(data.hostnqn, hostnqn);
	return data;
}

uint16_t do_connect(struct test_queue *tq, const struct nvmf_connect_sqe *sqe,
		    struct nvmf_connect_data *data, uint32_t *dw0)
{
	struct command cmd;
	uint16_t status = run(tq, &cmd, (const struct nvme_sqe *)sqe, data, sizeof(*data));

	if (dw0)
		*dw0 = cmd.dw0;
	return status;
}

uint16_t property_set_cc(struct test_queue *tq, uint32_t cc)
{
	struct nvmf_property_sqe sqe = {
		.opcode = NVME_CMD_FABRICS,
		.fctype = NVME_FABRICS_PROPERTY_SET,
		.offset = htole32(NVME_REG_CC),
		.value = htole64(cc),
	};
	struct command cmd;

	return run(tq, &cmd, (const struct nvme_sqe *)&sqe, NULL, 0);
}

uint64_t property_get(struct test_queue *tq, uint32_t offset, bool wide, uint16_t *status)
{
	struct nvmf_property_sqe sqe = {
		.opcode = NVME_CMD_FABRICS,
		.fctype = NVME_FABRICS_PROPERTY_GET,
		.attrib = wide,
		.offset = htole32(offset),
	};
	struct command cmd;

	*status = run(tq, &cmd, (const struct nvme_sqe *)&sqe, NULL, 0);
	return (uint64_t)cmd.dw1 << 32 | cmd.dw0;
}

struct test_queue *new_admin(const char *subnqn, const char *hostnqn)
{
	struct nvmf_connect_data data = connect_data(subnqn, hostnqn, NVMF_CNTLID_DYNAMIC);
	struct nvmf_connect_sqe sqe = connect_sqe(0);
	struct test_queue *tq = new_queue(0);

	assert_int_equal(do_connect(tq, &sqe, &data, NULL), 0);
	assert_int_equal(property_set_cc(tq, CC_ENABLED), 0);
	return tq;
}

struct test_queue *new_io(struct test_queue *admin, uint16_t qid)
{
	struct nvmf_connect_data data = connect_data(admin->queue.ctrl->subsystem->nqn,
						     admin->queue.ctrl->hostnqn,
						     admin->queue.ctrl->cntlid);
	struct nvmf_connect_sqe sqe = connect_sqe(qid);
	struct nvme_sqe set = sqe_of(NVME_ADMIN_SET_FEATURES, 0, NVME_FEAT_QUEUES, 0x00030003, 0);
	struct test_queue *tq = new_queue(qid);
	struct command cmd;

	if (!admin->queue.ctrl->granted_queues)
		assert_int_equal(run(admin, &cmd, &set, NULL, 0), 0);
	assert_int_equal(do_connect(tq, &sqe, &data, NULL), 0);
	return tq;
}
