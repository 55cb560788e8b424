// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_config.c: the target's configuration: what is read, and for every error the file's line and
 * the key's path.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <cmocka.h>

#include "target/config.h"
#include "util/bytes.h"

static char error[512];

static struct config *parse(const char *text)
{
	error[0] = 0;
	return config_parse_json("t.json", text, strlen(text), error, sizeof(error));
}

/* what nvmetcli saves */
static const char nvmetcli[] =
	"{\n"
	"  \"hosts\": [ { \"nqn\": \"nqn.2014-08.org.example:host\" } ],\n"
	"  \"ports\": [\n"
	"    {\n"
	"      \"addr\": { \"adrfam\": \"ipv4\", \"traddr\": \"10.0.0.5\", \"treq\": \"not specified\",\n"
	"                \"trsvcid\": \"4421\", \"trtype\": \"rdma\" },\n"
	"      \"ana_groups\": [ { \"ana\": { \"state\": \"optimized\" }, \"grpid\": 1 } ],\n"
	"      \"param\": { \"inline_data_size\": \"16384\" },\n"
	"      \"portid\": 7,\n"
	"      \"referrals\": [],\n"
	"      \"subsystems\": [ \"nqn.2026-01.org.example:s\" ]\n"
	"    },\n"
	"    { \"addr\": { \"traddr\": \"fd00:0::5\", \"adrfam\": \"ipv6\" } }\n"
	"  ],\n"
	"  \"subsystems\": [\n"
	"    {\n"
	"      \"allowed_hosts\": [ \"nqn.2014-08.org.example:host\" ],\n"
	"      \"attr\": { \"allow_any_host\": \"0\", \"serial\": \"123\", \"version\": \"1.3\" },\n"
	"      \"namespaces\": [\n"
	"        { \"ana\": { \"grpid\": \"1\" },\n"
	"          \"device\": { \"nguid\": \"ef90689c-6c46-d44c-89c1-4067801309a8\",\n"
	"                      \"path\": \"/dev/nvme0n1\",\n"
	"                      \"uuid\": \"00112233-4455-6677-8899-aabbccddeeff\" },\n"
	"          \"enable\": 1, \"nsid\": 3 },\n"
	"        { \"device\": { \"path\": \"memory:64M\", \"block_size\": 4096 }, \"nsid\": 1 }\n"
	"      ],\n"
	"      \"nqn\": \"nqn.2026-01.org.example:s\"\n"
	"    }\n"
	"  ]\n"
	"}\n";

static void test_nvmetcli_file(void **state)
{
	struct config *c = parse(nvmetcli);

	assert_string_equal(error, "");
	assert_non_null(c);
	assert_int_equal(c->host_count, 1);
	assert_int_equal(c->port_count, 2);
	assert_int_equal(c->ports[0].portid, 7);
	assert_int_equal(c->ports[0].port, 4421);
	assert_int_equal(c->ports[0].family, AF_INET);
	assert_string_equal(c->ports[0].traddr, "10.0.0.5");
	assert_string_equal(c->ports[0].subsystems[0], "nqn.2026-01.org.example:s");
	assert_int_equal(c->in_capsule_bytes, 16384);
	assert_int_equal(c->ports[1].family, AF_INET6);
	assert_string_equal(c->ports[1].traddr, "fd00::5");
	assert_int_equal(c->ports[1].port, 4420);
	assert_int_equal(c->subsystem_count, 1);
	assert_false(c->subsystems[0].allow_any_host);
	assert_string_equal(c->subsystems[0].serial, "123");
	assert_string_equal(c->subsystems[0].allowed_hosts[0], "nqn.2014-08.org.example:host");
	assert_int_equal(c->subsystems[0].namespace_count, 2);
	assert_int_equal(c->subsystems[0].namespaces[0].nsid, 3);
	assert_true(c->subsystems[0].namespaces[0].enabled);
	assert_string_equal(c->subsystems[0].namespaces[0].path, "/dev/nvme0n1");
	assert_int_equal(c->subsystems[0].namespaces[0].uuid[15], 0xff);
	assert_int_equal(c->subsystems[0].namespaces[0].nguid[0], 0xef);
	assert_int_equal(c->subsystems[0].namespaces[1].memory_bytes, 64 << 20);
	assert_int_equal(c->subsystems[0].namespaces[1].lba_size, 4096);
	assert_false(c->subsystems[0].namespaces[1].enabled);
	config_free(c);
}

#define SUB "{\"subsystems\":[\n{\"nqn\":\"nqn.x:s\",\n"

static void test_errors_name_line_and_path(void **state)
{
	static const struct {
		const char *text, *error;
	} rows[] = {
		{ "{\n \"prots\": []\n}", "t.json:2: prots: unknown key" },
		{ "{\n \"ports\":\n [ {\"addr\": {\n\"traddr\": \"1.2.3.4\",\n\"trsvc\": 1}}]}",
		  "t.json:5: ports[0].addr.trsvc: unknown key" },
		{ "{\"ports\": [{\n}]}", "t.json:1: ports[0]: needs the key \"addr\"" },
		{ "{\"ports\": [\n{\"addr\": {\"traddr\": \"1.2.3\"}}]}",
		  "t.json:2: ports[0].addr.traddr: \"1.2.3\" is no IP address" },
		{ "{\"ports\": [\n{\"addr\": {\"traddr\": \"1.2.3.4\",\n\"trtype\": \"tcp\"}}]}",
		  "t.json:3: ports[0].addr.trtype: \"tcp\": only \"rdma\" is served" },
		{ "{\"ports\": [\n{\"addr\": {\"traddr\": \"1.2.3.4\",\n\"trsvcid\": \"x\"}}]}",
		  "t.json:3: ports[0].addr.trsvcid: \"x\" is no number" },
		{ "{\"ports\": [\n{\"addr\": {\"traddr\": \"1.2.3.4\",\n\"trsvcid\": 65536}}]}",
		  "t.json:3: ports[0].addr.trsvcid: must be from 1 to 65535" },
		{ "{\"ports\": [\n{\"addr\": {\"traddr\": \"::1\",\n\"adrfam\": \"ipv4\"}}]}",
		  "t.json:2: ports[0].addr: adrfam does not fit traddr \"::1\"" },
		{ "{\"ports\": [{\"addr\": {\"traddr\": \"::1\"},\n\"subsystems\": [\n\"nqn.x:a\"]}]}",
		  "t.json:3: ports[0].subsystems[0]: there is no subsystem \"nqn.x:a\"" },
		{ "{\"ports\": [{\"addr\": {\"traddr\": \"::1\"},\n\"param\": {\"inline_data_size\": 24}}]}",
		  "t.json:2: ports[0].param.inline_data_size: must be a multiple of 16" },
		{ "{\"ports\": [{\"addr\": {\"traddr\": \"::1\"}, \"param\": {\"inline_data_size\": -1}},\n"
		  "{\"addr\": {\"traddr\": \"::2\"}, \"param\": {\"inline_data_size\": 0}},\n"
		  "{\"addr\": {\"traddr\": \"::3\"}, \"param\": {\"inline_data_size\": 64}}]}",
		  "t.json:3: ports[2].param.inline_data_size: differs from another port's" },
		{ SUB "\"attr\": {\n\"seral\": 1}}]}",
		  "t.json:4: subsystems[0].attr.seral: unknown key" },
		{ SUB "\"attr\": {\"serial\":\n \"123456789012345678901\"}}]}",
		  "t.json:3: subsystems[0].attr.serial: has more than 20 characters" },
		{ SUB "\"attr\": {\"allow_any_host\": 2}}]}",
		  "t.json:3: subsystems[0].attr.allow_any_host: must be from 0 to 1" },
		{ SUB "\"allowed_hosts\": [\"nqn.x:h\"]}]}",
		  "t.json:3: subsystems[0].allowed_hosts[0]: \"hosts\" does not have \"nqn.x:h\"" },
		{ SUB "\"namespaces\": [{\"nsid\": 1,\n\"device\": {\"pth\": \"x\"}}]}]}",
		  "t.json:4: subsystems[0].namespaces[0].device.pth: unknown key" },
		{ SUB "\"namespaces\": [{\"nsid\": 0}]}]}",
		  "t.json:3: subsystems[0].namespaces[0].nsid: must be from 1 to 4294967294" },
		{ SUB "\"namespaces\": [{\"nsid\": -1}]}]}",
		  "t.json:3: subsystems[0].namespaces[0].nsid: must be from 1 to 4294967294" },
		{ SUB "\"namespaces\": [{\"nsid\": 1,\"device\":{\"path\":\"a\"}},\n"
		      "{\"nsid\": 1,\"device\":{\"path\":\"b\"}}]}]}",
		  "t.json:4: subsystems[0].namespaces[1]: namespace 1 is there twice" },
		{ SUB "\"namespaces\": [{\"nsid\": 1,\"device\":{\"path\":\"memory:x\"}}]}]}",
		  "t.json:3: subsystems[0].namespaces[0].device.path: \"memory:x\" is no size (like memory:256M)" },
		{ SUB "\"namespaces\": {}}]}",
		  "t.json:3: subsystems[0].namespaces: must be a list [...]" },
		{ SUB "\"namespaces\": [3]}]}",
		  "t.json:3: subsystems[0].namespaces[0]: must be an object {...}" },
		{ "{\"subsystems\": [\n{}]}", "t.json:2: subsystems[0]: needs the key \"nqn\"" },
		{ "{\"subsystems\": [\n{\"nqn\": \"foo\"}]}",
		  "t.json:2: subsystems[0].nqn: an NQN begins with \"nqn.\", e.g. nqn.2026-01.org.example:disk1" },
		{ "{\"subsystems\": [{\"nqn\": \"nqn.x:a\"},\n{\"nqn\": \"nqn.x:a\"}]}",
		  "t.json:2: subsystems[1]: subsystem nqn.x:a is there twice" },
		{ "[]", "t.json:1: must be an object {...}" },
		{ "{}", "t.json: no address to listen on: use --listen 0.0.0.0:4420" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		assert_null(parse(rows[i].text));
		assert_string_equal(error, rows[i].error);
	}
}

static void test_syntax_error_names_the_line(void **state)
{
	assert_null(parse("{\n \"ports\": [,]\n}"));
	assert_memory_equal(error, "t.json:2: ", 10);
	assert_null(parse("{\"ports\": [],\n \"ports\": []}"));
	assert_memory_equal(error, "t.json:2: ", 10); /* a key that is there twice */
	assert_null(parse(""));
	assert_memory_equal(error, "t.json:1: ", 10);
}

/* found by fuzzing: the parser takes a NUL for white space, the search for the line never passed it
 */
static void test_nul_in_the_text(void **state)
{
	static const char text[] =
		"{ \"subsystems\": [ { \"attr\": { \"qid_max\": 8\0 },\n \"nqn\": 3 } ] }";

	assert_null(config_parse_json("t.json", text, sizeof(text) - 1, error, sizeof(error)));
	assert_non_null(strstr(error, "t.json:"));
}

static void test_missing_file(void **state)
{
	assert_null(config_load("/nonexistent/t.json", error, sizeof(error)));
	assert_string_equal(error, "cannot open /nonexistent/t.json: No such file or directory");
}

static void test_command_line(void **state)
{
	struct config *c = config_new();

	assert_true(config_add_listen(c, "0.0.0.0:4420", error, sizeof(error)));
	assert_true(config_add_listen(c, "[fd00::5]:4421", error, sizeof(error)));
	assert_true(config_add_listen(c, "fd00::6", error, sizeof(error)));
	assert_string_equal(c->ports[1].traddr, "fd00::5");
	assert_int_equal(c->ports[1].port, 4421);
	assert_int_equal(c->ports[2].port, 4420);
	assert_false(config_add_namespace(c, "x", error, sizeof(error)));
	assert_string_equal(error, "--namespace x comes before any --subsystem");
	assert_true(config_add_subsystem(c, "nqn.x:a", error, sizeof(error)));
	assert_true(config_add_namespace(c, "disk.img", error, sizeof(error)));
	assert_true(
		config_add_namespace(c, "memory:1GiB,nsid=9,lba=4096,ro", error, sizeof(error)));
	assert_int_equal(c->subsystems[0].namespaces[0].nsid, 1);
	assert_int_equal(c->subsystems[0].namespaces[1].nsid, 9);
	assert_int_equal(c->subsystems[0].namespaces[1].memory_bytes, 1ULL << 30);
	assert_true(c->subsystems[0].namespaces[1].read_only);
	assert_true(c->subsystems[0].allow_any_host);
	assert_int_equal(c->in_capsule_bytes, 4096);
	assert_true(config_set_in_capsule(c, "8K", error, sizeof(error)));
	assert_int_equal(c->in_capsule_bytes, 8192);
	assert_false(config_set_in_capsule(c, "16400", error, sizeof(error)));
	assert_false(config_set_in_capsule(c, "100", error, sizeof(error)));
	assert_false(config_set_in_capsule(c, "", error, sizeof(error)));
	assert_int_equal(c->in_capsule_bytes, 8192);
	assert_true(config_add_host(c, "nqn.x:h", error, sizeof(error)));
	assert_false(c->subsystems[0].allow_any_host);
	assert_true(config_finish(c, error, sizeof(error)));
	assert_int_equal(c->ports[2].subsystem_count, 1);
	assert_true(config_add_listen(c, "0.0.0.0", error, sizeof(error)));
	assert_false(config_check(c, error, sizeof(error)));
	assert_string_equal(error, "address 0.0.0.0:4420 is there twice");
	config_free(c);
}

static void test_command_line_errors(void **state)
{
	static const char *const addresses[] = { "",	      ":4420", "1.2.3.4:0", "1.2.3.4:65536",
						 "[::",	      "[::]x", "1.2.3",	    "host:1",
						 "1.2.3.4:1x" };
	static const char *const namespaces[] = {
		"",	      "memory:",  "memory:0",
		"memory:1X",  "a,nsid=0", "a,nsid=4294967295",
		"a,lba=1024", "a,x",	  "memory:18446744073709551615K"
	};
	struct config *c = config_new();

	for (size_t i = 0; i < ARRAY_SIZE(addresses); i++)
		assert_false(config_add_listen(c, addresses[i], error, sizeof(error)));
	assert_false(config_add_subsystem(c, "x", error, sizeof(error)));
	assert_true(config_add_subsystem(c, "nqn.x:a", error, sizeof(error)));
	for (size_t i = 0; i < ARRAY_SIZE(namespaces); i++)
		assert_false(config_add_namespace(c, namespaces[i], error, sizeof(error)));
	config_free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nvmetcli_file),
		cmocka_unit_test(test_errors_name_line_and_path),
		cmocka_unit_test(test_syntax_error_names_the_line),
		cmocka_unit_test(test_nul_in_the_text),
		cmocka_unit_test(test_missing_file),
		cmocka_unit_test(test_command_line),
		cmocka_unit_test(test_command_line_errors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
