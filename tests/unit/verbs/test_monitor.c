/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_monitor.c: addresses and interfaces that change while a device is open (A9), in a network
 * namespace of the test's own.
 */
#include <poll.h>

#include "../portd/namespace.h"
#include "verbs_fixture.h"

static void run(const char *command)
{
	CHECK_EQUAL(system(command), 0);
}

/* the next event, which must be @type and come within 5 s */
static void expect(struct ibv_context *context, enum ibv_event_type type)
{
	struct pollfd p = { .fd = context->async_fd, .events = POLLIN };
	struct ibv_async_event event;

	CHECK_EQUAL(poll(&p, 1, 5000), 1);
	CHECK_EQUAL(softhca_ibv_get_async_event(context, &event), 0);
	CHECK_EQUAL(event.event_type, type);
	CHECK_EQUAL(event.element.port_num, 1);
	softhca_ibv_ack_async_event(&event);
}

static int index_of(struct ibv_context *context, uint8_t last_byte)
{
	union ibv_gid gid = { .raw = { [10] = 0xff, 0xff, 10, 9, 8, last_byte } };

	return device_gid_index(context->device, &gid);
}

static void changes(void)
{
	struct ibv_context *context = open_loopback();
	struct ibv_pd *pd = softhca_ibv_alloc_pd(context); /* the monitor starts with the engine */
	struct ibv_device **list;
	struct ibv_port_attr port;
	int index, n;

	CHECK(pd);
	CHECK_EQUAL(index_of(context, 1), -1);
	run("ip address add 10.9.8.1/32 dev lo");
	expect(context, IBV_EVENT_GID_CHANGE);
	index = index_of(context, 1);
	CHECK(index > 0);
	run("ip address add 10.9.8.2/32 dev lo");
	expect(context, IBV_EVENT_GID_CHANGE);
	CHECK_EQUAL(index_of(context, 1), index); /* nobody's index moves */
	CHECK_EQUAL(index_of(context, 2), index + 1);
	run("ip address del 10.9.8.1/32 dev lo");
	expect(context, IBV_EVENT_GID_CHANGE);
	CHECK_EQUAL(index_of(context, 1), -1);
	CHECK_EQUAL(index_of(context, 2), index + 1);

	run("ip link set lo down");
	/* the addresses of IPv6 go with it, where there are any */
	CHECK_EQUAL(poll(&(struct pollfd){ .fd = context->async_fd, .events = POLLIN }, 1, 5000),
		    1);
	usleep(100000);
	verbs_get_ctx(context)->query_port(context, 1, &port, sizeof(port));
	CHECK_EQUAL(port.state, IBV_PORT_DOWN);
	list = softhca_ibv_get_device_list(&n);
	CHECK_EQUAL(n, 0);
	softhca_ibv_free_device_list(list);
	run("ip link set lo up");
	for (int i = 0; i < 50 && port.state != IBV_PORT_ACTIVE; i++) {
		usleep(100000);
		verbs_get_ctx(context)->query_port(context, 1, &port, sizeof(port));
	}
	CHECK_EQUAL(port.state, IBV_PORT_ACTIVE);
	CHECK_EQUAL(softhca_ibv_dealloc_pd(pd), 0);
	CHECK_EQUAL(softhca_ibv_close_device(context), 0);
}
NAMESPACE_TEST(changes)

static int guid_pipe[2];

static void report_guid(void)
{
	struct ibv_context *context = open_loopback();
	__be64 guid = device_guid(context->device);

	CHECK_EQUAL(write(guid_pipe[1], &guid, sizeof(guid)), sizeof(guid));
}

static __be64 namespace_guid(void (*fn)(void))
{
	__be64 guid = 0;
	int status = run_in_namespace(fn, 1, 0);

	if (status == NO_NAMESPACE)
		return 0;
	assert_int_equal(status, 0);
	assert_int_equal(read(guid_pipe[0], &guid, sizeof(guid)), sizeof(guid));
	return guid;
}

static void guid_differs_between_namespaces(void **state)
{
	__be64 guid, ours;

	assert_int_equal(pipe(guid_pipe), 0);
	guid = namespace_guid(report_guid);
	if (!guid)
		skip();
	report_guid();
	assert_int_equal(read(guid_pipe[0], &ours, sizeof(ours)), sizeof(ours));
	assert_true(ours != 0 && guid != ours);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_changes),
		cmocka_unit_test(guid_differs_between_namespaces),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
