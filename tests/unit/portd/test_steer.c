// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_steer.c: the kernel gives a packet to the socket of its slot; in a fresh group, and in one
 * that lost members and was completed again.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>

#include "namespace.h"
#include "portd/steer.h"
#include "util/bytes.h"

static void send_to_slot(int family, uint8_t slot, uint8_t mark)
{
	uint8_t data[16] = { 0x04, [5] = slot, [15] = mark };
	struct sockaddr_in to4 = { .sin_family = AF_INET,
				   .sin_port = htons(4791),
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_in6 to6 = { .sin6_family = AF_INET6,
				    .sin6_port = htons(4791),
				    .sin6_addr = in6addr_loopback };
	int fd = socket(family ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	ssize_t n = family ? sendto(fd, data, 16, 0, (struct sockaddr *)&to6, sizeof(to6))
			   : sendto(fd, data, 16, 0, (struct sockaddr *)&to4, sizeof(to4));

	CHECK_EQUAL(n, 16);
	close(fd);
}

/* the mark of the next datagram, -1: nothing comes */
static int receive(int fd)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	uint8_t data[64];

	if (poll(&pfd, 1, 200) <= 0)
		return -1;
	return recv(fd, data, sizeof(data), MSG_DONTWAIT) == 16 ? data[15] : -2;
}

static void check_steering(const struct portd_fds *fds, int family)
{
	for (int slot = 0; slot < PORTD_SLOTS; slot++) {
		send_to_slot(family, (uint8_t)slot, (uint8_t)(slot ^ 0x55));
		CHECK_EQUAL(receive(fds->fd[family][slot]), slot ^ 0x55);
	}
}

static void make_group(struct portd_fds *fds)
{
	portd_fds_init(fds);
	for (int family = 0; family < 2; family++) {
		CHECK_EQUAL(steer_port_free(family), 0);
		CHECK_EQUAL(steer_fill(fds, family), 0);
		CHECK_EQUAL(steer_port_free(family), -EADDRINUSE);
		CHECK_EQUAL(steer_attach(fds, family, false), 0);
	}
}

static void fresh_group(void)
{
	struct portd_fds fds;

	make_group(&fds);
	for (int family = 0; family < 2; family++) {
		check_steering(&fds, family);
		for (int slot = 0; slot < PORTD_SLOTS; slot++) {
			CHECK(steer_is_group_socket(fds.fd[family][slot], family));
			CHECK(!steer_is_group_socket(fds.fd[family][slot], !family));
		}
	}
	CHECK(!steer_is_group_socket(STDIN_FILENO, FAMILY_IPV4));
	CHECK(!steer_is_group_socket(-1, FAMILY_IPV4));
	CHECK(steer_same_socket(fds.fd[0][1], dup(fds.fd[0][1])));
	CHECK(!steer_same_socket(fds.fd[0][1], fds.fd[0][2]));
}

/* an inherited, complete group: what waits in the sockets stays, and nobody sees a probe */
static void inherited_group(void)
{
	struct portd_fds fds;

	make_group(&fds);
	for (int family = 0; family < 2; family++) {
		send_to_slot(family, 7, 77);
		CHECK_EQUAL(steer_attach(&fds, family, true), 0);
		CHECK_EQUAL(receive(fds.fd[family][7]), 77);
		check_steering(&fds, family);
		for (int slot = 0; slot < PORTD_SLOTS; slot++)
			CHECK_EQUAL(recv(fds.fd[family][slot], (uint8_t[1]){ 0 }, 1, MSG_DONTWAIT),
				    -1);
	}
}

/* sockets closed for good move the last ones into their places; the new ones go to the end */
static void group_with_losses(void)
{
	static const int lost[] = { 0, 3, 20, 63, 62, 1 };
	struct portd_fds fds;

	make_group(&fds);
	for (int family = 0; family < 2; family++) {
		for (unsigned int i = 0; i < ARRAY_SIZE(lost); i++) {
			close(fds.fd[family][lost[i]]);
			fds.fd[family][lost[i]] = -1;
		}
		CHECK_EQUAL(steer_fill(&fds, family), 0);
		CHECK_EQUAL(steer_attach(&fds, family, true), 0);
		check_steering(&fds, family);
		/* and again, from a program with a map */
		for (unsigned int i = 0; i < 3; i++) {
			close(fds.fd[family][lost[i] + 5]);
			fds.fd[family][lost[i] + 5] = -1;
		}
		CHECK_EQUAL(steer_fill(&fds, family), 0);
		CHECK_EQUAL(steer_attach(&fds, family, true), 0);
		check_steering(&fds, family);
	}
}

/* only some sockets came back: the others are in processes that did not */
static void group_with_strangers(void)
{
	struct portd_fds fds, mine;

	make_group(&fds);
	portd_fds_init(&mine);
	mine.fd[0][9] = fds.fd[0][9];
	mine.fd[0][40] = fds.fd[0][40];
	CHECK_EQUAL(steer_fill(&mine, FAMILY_IPV4), 0);
	CHECK_EQUAL(steer_attach(&mine, FAMILY_IPV4, true), 0);
	check_steering(&mine, FAMILY_IPV4);
}

static void group_without_program(void)
{
	struct portd_fds fds;

	portd_fds_init(&fds);
	CHECK_EQUAL(steer_fill(&fds, FAMILY_IPV4), 0);
	CHECK_EQUAL(steer_attach(&fds, FAMILY_IPV4, true), 0);
	check_steering(&fds, FAMILY_IPV4);
}

static void without_loopback(void)
{
	struct portd_fds fds;

	make_group(&fds);
	CHECK_EQUAL(steer_attach(&fds, FAMILY_IPV4, true), 0);
	loopback_up();
	check_steering(&fds, FAMILY_IPV4);
}

/* a socket of another network namespace looks the same but is in no group of ours */
static void another_namespace(void)
{
	struct portd_fds fds;

	portd_fds_init(&fds);
	CHECK_EQUAL(steer_fill(&fds, FAMILY_IPV4), 0);
	CHECK(steer_is_group_socket(fds.fd[0][1], FAMILY_IPV4));
	if (unshare(CLONE_NEWNET))
		_exit(NO_NAMESPACE);
	CHECK(!steer_is_group_socket(fds.fd[0][1], FAMILY_IPV4));
}

static void port_busy(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(4791) };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct portd_fds fds;

	CHECK(!bind(fd, (struct sockaddr *)&a, sizeof(a)));
	portd_fds_init(&fds);
	CHECK_EQUAL(steer_port_free(FAMILY_IPV4), -EADDRINUSE);
	CHECK_EQUAL(steer_fill(&fds, FAMILY_IPV4), -EADDRINUSE);
	CHECK_EQUAL(steer_port_free(FAMILY_IPV6), 0);
}

static void drained(void)
{
	struct portd_fds fds;

	make_group(&fds);
	for (int i = 0; i < 100; i++)
		send_to_slot(FAMILY_IPV4, 2, 1);
	steer_drain(fds.fd[0][2]);
	send_to_slot(FAMILY_IPV4, 2, 2);
	CHECK_EQUAL(receive(fds.fd[0][2]), 2);
}

NAMESPACE_TEST(fresh_group)
NAMESPACE_TEST(inherited_group)
NAMESPACE_TEST(group_with_losses)
NAMESPACE_TEST(group_with_strangers)
NAMESPACE_TEST(group_without_program)
NAMESPACE_TEST(another_namespace)
NAMESPACE_TEST(port_busy)
NAMESPACE_TEST(drained)

static void test_without_loopback(void **state)
{
	int status = run_in_namespace(without_loopback, 0, 0);

	if (status == NO_NAMESPACE)
		skip();
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fresh_group),
		cmocka_unit_test(test_inherited_group),
		cmocka_unit_test(test_group_with_losses),
		cmocka_unit_test(test_group_with_strangers),
		cmocka_unit_test(test_group_without_program),
		cmocka_unit_test(test_without_loopback),
		cmocka_unit_test(test_another_namespace),
		cmocka_unit_test(test_port_busy),
		cmocka_unit_test(test_drained),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
