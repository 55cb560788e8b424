// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_pcap.c: the capture's bytes, two links with one file, a file that cannot be made.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "util/bytes.h"
#include "wire/pcap.h"

static void test_file(void **state)
{
	static const uint8_t ip4[] = {
		0x45, 0x01, 0x00, 0x2c, 0x00, 0x05, 0x40, 0x00, 0x3f, 0x11, 0x00, 0x00, 10,   1,
		2,    3,    10,	  1,	2,    4,    0x12, 0xb7, 0x12, 0xb7, 0x00, 0x18, 0x00, 0x00,
	};
	union ibv_gid sgid = { .raw = { [10] = 0xff, 0xff, 10, 1, 2, 3 } };
	union ibv_gid dgid = { .raw = { [10] = 0xff, 0xff, 10, 1, 2, 4 } };
	union ibv_gid six = { .raw = { 0xfd, [15] = 6 } };
	char template[64] = "/tmp/softhca-pcap-XXXXXX", path[128], real[128];
	uint8_t data[16], file[512], expected[sizeof(ip4)];
	struct pcap_writer *w, *second;
	uint32_t sum = 0;
	size_t len, i;
	FILE *f;

	assert_non_null(mkdtemp(template));
	snprintf(path, sizeof(path), "%s/%%p.pcap", template);
	snprintf(real, sizeof(real), "%s/%ld.pcap", template, (long)getpid());
	memset(data, 0xd0, sizeof(data));
	assert_int_equal(pcap_open(&w, path), 0);
	assert_int_equal(pcap_open(&second, path), 0);
	pcap_write(w, &sgid, &dgid, 4791, 5, 1, 63, data, sizeof(data));
	pcap_close(w);
	pcap_write(second, &six, &six, 4791, 0, 2, 64, data, sizeof(data));
	pcap_close(second);
	pcap_close(NULL);

	f = fopen(real, "rb");
	assert_non_null(f);
	len = fread(file, 1, sizeof(file), f);
	fclose(f);
	unlink(real);
	rmdir(template);
	assert_int_equal(len, 24 + (16 + 28 + 16) + (16 + 48 + 16));
	assert_int_equal(get_le32(file), 0xa1b23c4d);
	assert_int_equal(get_le32(file + 20), 101);
	assert_int_equal(get_le32(file + 24 + 8), 44);
	assert_int_equal(get_le32(file + 24 + 12), 44);

	memcpy(expected, ip4, sizeof(ip4));
	memcpy(expected + 10, file + 40 + 10, 2);
	assert_memory_equal(file + 40, expected, sizeof(expected));
	for (i = 0; i < 20; i += 2)
		sum += get_be16(file + 40 + i);
	assert_int_equal((sum & 0xffff) + (sum >> 16), 0xffff);
	assert_memory_equal(file + 68, data, 16);

	assert_int_equal(get_be32(file + 100), 0x60200000);
	assert_int_equal(get_be16(file + 104), 24);
	assert_memory_equal(file + 108, six.raw, 16);
	assert_memory_equal(file + 124, six.raw, 16);
	assert_int_equal(get_be16(file + 142), 4791);
}

static void test_cannot_open(void **state)
{
	struct pcap_writer *w;

	assert_int_equal(pcap_open(&w, "/nonexistent/x.pcap"), -ENOENT);
	assert_int_equal(pcap_open(&w, "/"), -EISDIR);
}

static void test_disk_full(void **state)
{
	union ibv_gid gid = { .raw = { [10] = 0xff, 0xff, 127, 0, 0, 1 } };
	struct pcap_writer *w;
	uint8_t data[16] = { 0 };

	if (access("/dev/full", W_OK))
		skip();
	/* not even the header fits */
	assert_int_equal(pcap_open(&w, "/dev/full"), -ENOSPC);
	/* a file that stops being writable: traffic goes on */
	assert_int_equal(pcap_open(&w, "/dev/null"), 0);
	pcap_write(w, &gid, &gid, 1, 0, 0, 1, data, sizeof(data));
	pcap_write(w, &gid, &gid, 1, 0, 0, 1, data, 0xffffffff);
	pcap_close(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_file),
		cmocka_unit_test(test_cannot_open),
		cmocka_unit_test(test_disk_full),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
