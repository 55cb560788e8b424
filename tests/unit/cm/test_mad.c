// SPDX-License-Identifier: BSD-2-Clause
/*
 * mad.c: the CM messages of the golden captures decode to what tshark shows and encode to the
 * same bytes; bounds of what the wire can claim.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "cm/mad.h"
#include "util/bytes.h"

#define MAX_MADS 64

struct capture {
	unsigned int count;
	uint8_t mads[MAX_MADS][CM_MAD_LEN];
};

#define ETH_LEN	     14
#define BTH_DETH_LEN 20
#define ICRC_LEN     4

/* take the payload of a UD SEND to QP1 out of an Ethernet frame */
static void take_frame(struct capture *capture, const uint8_t *frame, uint32_t len)
{
	uint32_t udp = 0;

	if (len < ETH_LEN + 40)
		return;
	if (get_be16(frame + 12) == 0x0800 && frame[ETH_LEN + 9] == 17)
		udp = ETH_LEN + 20;
	else if (get_be16(frame + 12) == 0x86dd && frame[ETH_LEN + 6] == 17)
		udp = ETH_LEN + 40;
	if (!udp || len < udp + 8 + BTH_DETH_LEN + CM_MAD_LEN + ICRC_LEN)
		return;
	if (get_be16(frame + udp + 2) != 4791 || frame[udp + 8] != 0x64 ||
	    get_be24(frame + udp + 8 + 5) != 1)
		return;
	assert_true(capture->count < MAX_MADS);
	memcpy(capture->mads[capture->count++], frame + udp + 8 + BTH_DETH_LEN, CM_MAD_LEN);
}

static void load(struct capture *capture, const char *name)
{
	char path[512];
	uint8_t header[24], record[16];
	static uint8_t frame[65536];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", CAPTURES, name);
	capture->count = 0;
	f = fopen(path, "rb");
	if (!f)
		fail_msg("%s: cannot be read", path);
	assert_int_equal(fread(header, sizeof(header), 1, f), 1);
	assert_int_equal(get_le32(header), 0xa1b2c3d4);
	while (fread(record, sizeof(record), 1, f) == 1) {
		uint32_t len = get_le32(record + 8);

		assert_true(len <= sizeof(frame));
		assert_int_equal(fread(frame, len, 1, f), 1);
		take_frame(capture, frame, len);
	}
	fclose(f);
}

static const struct {
	const char *name;
	unsigned int mads;
} captures[] = {
	{ "cm-reject.pcap", 2 },     { "cm-rping.pcap", 5 },  { "cm-rping-ipv6.pcap", 5 },
	{ "cm-ucmatose.pcap", 5 },   { "cm-udaddy.pcap", 2 }, { "nvme-badnqn.pcap", 5 },
	{ "nvme-discover.pcap", 5 }, { "nvme-io.pcap", 10 },
};

static void test_captures_round_trip(void **state)
{
	struct capture capture;

	for (unsigned int i = 0; i < ARRAY_SIZE(captures); i++) {
		load(&capture, captures[i].name);
		assert_int_equal(capture.count, captures[i].mads);
		for (unsigned int m = 0; m < capture.count; m++) {
			struct cm_mad mad;
			uint8_t again[CM_MAD_LEN];

			assert_int_equal(cm_mad_decode(&mad, capture.mads[m]), CM_MAD_OK);
			cm_mad_encode(again, &mad);
			assert_memory_equal(again, capture.mads[m], CM_MAD_LEN);
		}
	}
}

/* every field at its limits survives, and none spills into another */
static void test_random_round_trip(void **state)
{
	srandom(1);
	for (int i = 0; i < 20000; i++) {
		uint8_t data[CM_MAD_LEN], once[CM_MAD_LEN], twice[CM_MAD_LEN];
		struct cm_mad mad;

		for (int b = 0; b < CM_MAD_LEN; b++)
			data[b] = (uint8_t)random();
		data[0] = 1;
		data[1] = 7;
		data[2] = 2;
		data[3] = 3;
		put_be16(data + 16, (uint16_t)(CM_REQ + i % 9));
		assert_int_equal(cm_mad_decode(&mad, data), CM_MAD_OK);
		cm_mad_encode(once, &mad);
		assert_int_equal(cm_mad_decode(&mad, once), CM_MAD_OK);
		cm_mad_encode(twice, &mad);
		assert_memory_equal(once, twice, CM_MAD_LEN);
		/* private data reaches to the end in all of them */
		assert_int_equal(once[CM_MAD_LEN - 1], data[CM_MAD_LEN - 1]);
	}
}

static void test_rping_fields(void **state)
{
	struct capture capture;
	struct cm_mad req, rep, rtu, dreq, drep;
	struct cma_header cma;

	load(&capture, "cm-rping.pcap");
	cm_mad_decode(&req, capture.mads[0]);
	cm_mad_decode(&rep, capture.mads[1]);
	cm_mad_decode(&rtu, capture.mads[2]);
	cm_mad_decode(&dreq, capture.mads[3]);
	cm_mad_decode(&drep, capture.mads[4]);

	assert_int_equal(req.attribute, CM_REQ);
	assert_int_equal(req.req.service_id, cma_service_id(0x0106, 7174));
	assert_int_equal(req.req.transport, CM_TRANSPORT_RC);
	assert_int_equal(req.req.remote_response_timeout, 20);
	assert_int_equal(req.req.local_response_timeout, 20);
	assert_int_equal(req.req.max_cm_retries, 15);
	assert_int_equal(req.req.retry_count, 7);
	assert_int_equal(req.req.pkey, 0xffff);
	assert_int_equal(req.req.path_mtu, IBV_MTU_4096);
	assert_int_equal(req.req.primary.local_lid, 0xffff);
	assert_int_equal(req.req.primary.remote_lid, 0xffff);
	assert_int_equal(req.req.primary.hop_limit, 64);
	assert_false(req.req.primary.subnet_local);
	assert_int_equal(req.req.alternate.local_lid, 0);
	assert_int_not_equal(req.req.ca_guid, 0);

	assert_int_equal(cma_header_decode(&cma, req.req.private_data), 0);
	assert_int_equal(cma.ip_version, 4);
	assert_true(gid_equal(&cma.src, &req.req.primary.local_gid));
	assert_true(gid_equal(&cma.dst, &req.req.primary.remote_gid));
	assert_int_equal(cma.src.raw[15], 11);
	assert_int_equal(cma.dst.raw[15], 10);

	assert_int_equal(rep.attribute, CM_REP);
	assert_int_equal(rep.tid, req.tid);
	assert_int_equal(rep.rep.remote_id, req.req.local_id);
	assert_int_equal(rep.rep.target_ack_delay, 15);
	assert_int_equal(rtu.tid, req.tid);
	assert_int_equal(rtu.rtu.local_id, req.req.local_id);
	assert_int_equal(rtu.rtu.remote_id, rep.rep.local_id);
	assert_int_equal(dreq.dreq.remote_qpn, rep.rep.qpn);
	assert_int_equal(drep.tid, dreq.tid);
	assert_int_equal(drep.drep.local_id, dreq.dreq.remote_id);
}

static void test_reject_fields(void **state)
{
	struct capture capture;
	struct cm_mad req, rej;

	load(&capture, "cm-reject.pcap");
	cm_mad_decode(&req, capture.mads[0]);
	cm_mad_decode(&rej, capture.mads[1]);
	assert_int_equal(rej.attribute, CM_REJ);
	assert_int_equal(rej.rej.reason, CM_REJ_INVALID_SERVICE_ID);
	assert_int_equal(rej.rej.answers, CM_ANSWERS_REQ);
	assert_int_equal(rej.rej.local_id, 0);
	assert_int_equal(rej.rej.remote_id, req.req.local_id);
	assert_int_equal(rej.tid, req.tid);
}

static void test_nvme_request(void **state)
{
	struct capture capture;
	struct cm_mad req, rep;
	const uint8_t *private;

	load(&capture, "nvme-io.pcap");
	cm_mad_decode(&req, capture.mads[3]); /* the I/O queue */
	cm_mad_decode(&rep, capture.mads[4]);
	assert_int_equal(req.attribute, CM_REQ);
	assert_int_equal(req.req.service_id, cma_service_id(0x0106, 4420));
	private = req.req.private_data + CMA_HEADER_LEN;
	assert_int_equal(get_le16(private), 0);	     /* recfmt */
	assert_int_equal(get_le16(private + 2), 1);  /* qid */
	assert_int_equal(get_le16(private + 4), 16); /* hrqsize */
	assert_int_equal(get_le16(private + 6), 15); /* hsqsize */
	assert_int_equal(req.req.rnr_retry_count, 7);
	assert_true(req.req.flow_control);
	assert_int_equal(rep.attribute, CM_REP);
	assert_int_equal(get_le16(rep.rep.private_data), 0);
}

static void test_ipv6_cma_header(void **state)
{
	struct capture capture;
	struct cm_mad req;
	struct cma_header cma;

	load(&capture, "cm-rping-ipv6.pcap");
	cm_mad_decode(&req, capture.mads[0]);
	assert_int_equal(cma_header_decode(&cma, req.req.private_data), 0);
	assert_int_equal(cma.ip_version, 6);
	assert_int_equal(cma.src.raw[0], 0xfd);
	assert_true(gid_equal(&cma.dst, &req.req.primary.remote_gid));
}

static void test_bad_headers(void **state)
{
	struct capture capture;
	struct cm_mad mad;
	struct cma_header cma;
	uint8_t data[CM_MAD_LEN];

	load(&capture, "cm-rping.pcap");
	for (int i = 0; i < 3; i++) {
		memcpy(data, capture.mads[0], sizeof(data));
		data[i] ^= 0x40;
		assert_int_equal(cm_mad_decode(&mad, data), CM_MAD_BAD_VERSION);
	}
	memcpy(data, capture.mads[0], sizeof(data));
	data[3] = 0x01;
	assert_int_equal(cm_mad_decode(&mad, data), CM_MAD_BAD_METHOD);
	memcpy(data, capture.mads[0], sizeof(data));
	put_be16(data + 16, 0x19); /* LAP */
	assert_int_equal(cm_mad_decode(&mad, data), CM_MAD_BAD_ATTRIBUTE);
	put_be16(data + 16, 0x0f);
	assert_int_equal(cm_mad_decode(&mad, data), CM_MAD_BAD_ATTRIBUTE);

	memcpy(data, capture.mads[0] + 24 + 140, CMA_HEADER_LEN);
	data[0] = 1;
	assert_int_equal(cma_header_decode(&cma, data), -EINVAL);
	data[0] = 0;
	data[1] = 0x50;
	assert_int_equal(cma_header_decode(&cma, data), -EINVAL);
}

static void test_lengths_are_cut(void **state)
{
	struct cm_mad mad = { .attribute = CM_REJ, .rej = { .reason = 12, .ari_len = 16 } };
	uint8_t data[CM_MAD_LEN];

	cm_mad_encode(data, &mad);
	data[24 + 9] = 0xff; /* 127 bytes of ARI */
	assert_int_equal(cm_mad_decode(&mad, data), CM_MAD_OK);
	assert_int_equal(mad.rej.ari_len, CM_REJ_ARI_LEN);

	memset(&mad, 0, sizeof(mad));
	mad.attribute = CM_SIDR_REP;
	cm_mad_encode(data, &mad);
	data[24 + 5] = 0xff;
	assert_int_equal(cm_mad_decode(&mad, data), CM_MAD_OK);
	assert_int_equal(mad.sidr_rep.info_len, 72);
}

static void test_names(void **state)
{
	assert_string_equal(cm_attribute_name(CM_REQ), "REQ");
	assert_string_equal(cm_attribute_name(CM_SIDR_REP), "SIDR_REP");
	assert_string_equal(cm_attribute_name(0xffff), "unknown");
	assert_string_equal(cm_rej_reason_name(28), "consumer reject");
	assert_string_equal(cm_rej_reason_name(0), "unknown reason");
	assert_string_equal(cm_rej_reason_name(0xffff), "unknown reason");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_captures_round_trip),
		cmocka_unit_test(test_random_round_trip),
		cmocka_unit_test(test_rping_fields),
		cmocka_unit_test(test_reject_fields),
		cmocka_unit_test(test_nvme_request),
		cmocka_unit_test(test_ipv6_cma_header),
		cmocka_unit_test(test_bad_headers),
		cmocka_unit_test(test_lengths_are_cut),
		cmocka_unit_test(test_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
