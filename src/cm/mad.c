// SPDX-License-Identifier: BSD-2-Clause
/*
 * mad.c: connection management MADs: bytes to structures and back. The tables of IBTA 1.4, 12.6
 * in the order of their offsets; `d` is always the data part, 24 bytes into the MAD.
 */
#include "cm/mad.h"

#include <errno.h>

#include "util/bytes.h"

#define MAD_HEADER_LEN	 24
#define MAD_BASE_VERSION 1
#define MAD_CLASS_CM	 0x07
#define CM_CLASS_VERSION 2
#define MAD_METHOD_SEND	 0x03

static void decode_path(struct cm_path_fields *path, const uint8_t *lids, const uint8_t *gids,
			const uint8_t *rest)
{
	path->local_lid = get_be16(lids);
	path->remote_lid = get_be16(lids + 2);
	memcpy(path->local_gid.raw, gids, 16);
	memcpy(path->remote_gid.raw, gids + 16, 16);
	path->flow_label = get_be32(rest) >> 12;
	path->packet_rate = rest[3] & 0x3f;
	path->traffic_class = rest[4];
	path->hop_limit = rest[5];
	path->sl = rest[6] >> 4;
	path->subnet_local = rest[6] >> 3 & 1;
	path->ack_timeout = rest[7] >> 3;
}

static void encode_path(const struct cm_path_fields *path, uint8_t *lids, uint8_t *gids,
			uint8_t *rest)
{
	put_be16(lids, path->local_lid);
	put_be16(lids + 2, path->remote_lid);
	memcpy(gids, path->local_gid.raw, 16);
	memcpy(gids + 16, path->remote_gid.raw, 16);
	put_be32(rest, path->flow_label << 12 | (path->packet_rate & 0x3f));
	rest[4] = path->traffic_class;
	rest[5] = path->hop_limit;
	rest[6] = (uint8_t)(path->sl << 4 | path->subnet_local << 3);
	rest[7] = (uint8_t)(path->ack_timeout << 3);
}

static void decode_req(struct cm_req *req, const uint8_t *d)
{
	req->local_id = get_be32(d);
	req->vendor_id = get_be24(d + 5);
	req->service_id = get_be64(d + 8);
	req->ca_guid = get_be64(d + 16);
	req->qkey = get_be32(d + 28);
	req->qpn = get_be24(d + 32);
	req->responder_resources = d[35];
	req->local_eecn = get_be24(d + 36);
	req->initiator_depth = d[39];
	req->remote_eecn = get_be24(d + 40);
	req->remote_response_timeout = d[43] >> 3;
	req->transport = (enum cm_transport)(d[43] >> 1 & 3);
	req->flow_control = d[43] & 1;
	req->starting_psn = get_be24(d + 44);
	req->local_response_timeout = d[47] >> 3;
	req->retry_count = d[47] & 7;
	req->pkey = get_be16(d + 48);
	req->path_mtu = d[50] >> 4;
	req->rdc_exists = d[50] >> 3 & 1;
	req->rnr_retry_count = d[50] & 7;
	req->max_cm_retries = d[51] >> 4;
	req->srq = d[51] >> 3 & 1;
	req->extended_transport = d[51] & 7;
	decode_path(&req->primary, d + 52, d + 56, d + 88);
	decode_path(&req->alternate, d + 96, d + 100, d + 132);
	memcpy(req->private_data, d + 140, sizeof(req->private_data));
}

static void encode_req(uint8_t *d, const struct cm_req *req)
{
	put_be32(d, req->local_id);
	put_be24(d + 5, req->vendor_id);
	put_be64(d + 8, req->service_id);
	put_be64(d + 16, req->ca_guid);
	put_be32(d + 28, req->qkey);
	put_be24(d + 32, req->qpn);
	d[35] = req->responder_resources;
	put_be24(d + 36, req->local_eecn);
	d[39] = req->initiator_depth;
	put_be24(d + 40, req->remote_eecn);
	d[43] = (uint8_t)(req->remote_response_timeout << 3 | (req->transport & 3) << 1 |
			  req->flow_control);
	put_be24(d + 44, req->starting_psn);
	d[47] = (uint8_t)(req->local_response_timeout << 3 | (req->retry_count & 7));
	put_be16(d + 48, req->pkey);
	d[50] = (uint8_t)(req->path_mtu << 4 | req->rdc_exists << 3 | (req->rnr_retry_count & 7));
	d[51] = (uint8_t)(req->max_cm_retries << 4 | req->srq << 3 | (req->extended_transport & 7));
	encode_path(&req->primary, d + 52, d + 56, d + 88);
	encode_path(&req->alternate, d + 96, d + 100, d + 132);
	memcpy(d + 140, req->private_data, sizeof(req->private_data));
}

static void decode_rep(struct cm_rep *rep, const uint8_t *d)
{
	rep->local_id = get_be32(d);
	rep->remote_id = get_be32(d + 4);
	rep->qkey = get_be32(d + 8);
	rep->qpn = get_be24(d + 12);
	rep->eecn = get_be24(d + 16);
	rep->starting_psn = get_be24(d + 20);
	rep->responder_resources = d[24];
	rep->initiator_depth = d[25];
	rep->target_ack_delay = d[26] >> 3;
	rep->failover = d[26] >> 1 & 3;
	rep->flow_control = d[26] & 1;
	rep->rnr_retry_count = d[27] >> 5;
	rep->srq = d[27] >> 4 & 1;
	rep->ca_guid = get_be64(d + 28);
	memcpy(rep->private_data, d + 36, sizeof(rep->private_data));
}

static void encode_rep(uint8_t *d, const struct cm_rep *rep)
{
	put_be32(d, rep->local_id);
	put_be32(d + 4, rep->remote_id);
	put_be32(d + 8, rep->qkey);
	put_be24(d + 12, rep->qpn);
	put_be24(d + 16, rep->eecn);
	put_be24(d + 20, rep->starting_psn);
	d[24] = rep->responder_resources;
	d[25] = rep->initiator_depth;
	d[26] = (uint8_t)(rep->target_ack_delay << 3 | (rep->failover & 3) << 1 |
			  rep->flow_control);
	d[27] = (uint8_t)(rep->rnr_retry_count << 5 | rep->srq << 4);
	put_be64(d + 28, rep->ca_guid);
	memcpy(d + 36, rep->private_data, sizeof(rep->private_data));
}

static void decode_rej(struct cm_rej *rej, const uint8_t *d)
{
	rej->local_id = get_be32(d);
	rej->remote_id = get_be32(d + 4);
	rej->answers = d[8] >> 6;
	rej->ari_len = (uint8_t)MIN(d[9] >> 1, CM_REJ_ARI_LEN);
	rej->reason = get_be16(d + 10);
	memcpy(rej->ari, d + 12, sizeof(rej->ari));
	memcpy(rej->private_data, d + 84, sizeof(rej->private_data));
}

static void encode_rej(uint8_t *d, const struct cm_rej *rej)
{
	put_be32(d, rej->local_id);
	put_be32(d + 4, rej->remote_id);
	d[8] = (uint8_t)(rej->answers << 6);
	d[9] = (uint8_t)(rej->ari_len << 1);
	put_be16(d + 10, rej->reason);
	memcpy(d + 12, rej->ari, sizeof(rej->ari));
	memcpy(d + 84, rej->private_data, sizeof(rej->private_data));
}

static void decode_sidr_rep(struct cm_sidr_rep *rep, const uint8_t *d)
{
	rep->request_id = get_be32(d);
	rep->status = d[4];
	rep->info_len = (uint8_t)MIN(d[5], sizeof(rep->info));
	rep->qpn = get_be24(d + 8);
	rep->service_id = get_be64(d + 12);
	rep->qkey = get_be32(d + 20);
	memcpy(rep->info, d + 24, sizeof(rep->info));
	memcpy(rep->private_data, d + 96, sizeof(rep->private_data));
}

static void encode_sidr_rep(uint8_t *d, const struct cm_sidr_rep *rep)
{
	put_be32(d, rep->request_id);
	d[4] = rep->status;
	d[5] = rep->info_len;
	put_be24(d + 8, rep->qpn);
	put_be64(d + 12, rep->service_id);
	put_be32(d + 20, rep->qkey);
	memcpy(d + 24, rep->info, sizeof(rep->info));
	memcpy(d + 96, rep->private_data, sizeof(rep->private_data));
}

/* MRA, RTU, DREQ, DREP: both communication IDs come first */
static void decode_ids(uint32_t *local_id, uint32_t *remote_id, const uint8_t *d)
{
	*local_id = get_be32(d);
	*remote_id = get_be32(d + 4);
}

static void encode_ids(uint8_t *d, uint32_t local_id, uint32_t remote_id)
{
	put_be32(d, local_id);
	put_be32(d + 4, remote_id);
}

enum cm_mad_error cm_mad_decode(struct cm_mad *mad, const uint8_t data[CM_MAD_LEN])
{
	const uint8_t *d = data + MAD_HEADER_LEN;

	if (data[0] != MAD_BASE_VERSION || data[1] != MAD_CLASS_CM || data[2] != CM_CLASS_VERSION)
		return CM_MAD_BAD_VERSION;
	if (data[3] != MAD_METHOD_SEND)
		return CM_MAD_BAD_METHOD;

	memset(mad, 0, sizeof(*mad));
	mad->tid = get_be64(data + 8);
	mad->attribute = get_be16(data + 16);
	mad->attribute_modifier = get_be32(data + 20);
	switch (mad->attribute) {
	case CM_REQ:
		decode_req(&mad->req, d);
		return CM_MAD_OK;
	case CM_MRA:
		decode_ids(&mad->mra.local_id, &mad->mra.remote_id, d);
		mad->mra.answers = d[8] >> 6;
		mad->mra.service_timeout = d[9] >> 3;
		memcpy(mad->mra.private_data, d + 10, sizeof(mad->mra.private_data));
		return CM_MAD_OK;
	case CM_REJ:
		decode_rej(&mad->rej, d);
		return CM_MAD_OK;
	case CM_REP:
		decode_rep(&mad->rep, d);
		return CM_MAD_OK;
	case CM_RTU:
		decode_ids(&mad->rtu.local_id, &mad->rtu.remote_id, d);
		memcpy(mad->rtu.private_data, d + 8, sizeof(mad->rtu.private_data));
		return CM_MAD_OK;
	case CM_DREQ:
		decode_ids(&mad->dreq.local_id, &mad->dreq.remote_id, d);
		mad->dreq.remote_qpn = get_be24(d + 8);
		memcpy(mad->dreq.private_data, d + 12, sizeof(mad->dreq.private_data));
		return CM_MAD_OK;
	case CM_DREP:
		decode_ids(&mad->drep.local_id, &mad->drep.remote_id, d);
		memcpy(mad->drep.private_data, d + 8, sizeof(mad->drep.private_data));
		return CM_MAD_OK;
	case CM_SIDR_REQ:
		mad->sidr_req.request_id = get_be32(d);
		mad->sidr_req.pkey = get_be16(d + 4);
		mad->sidr_req.service_id = get_be64(d + 8);
		memcpy(mad->sidr_req.private_data, d + 16, sizeof(mad->sidr_req.private_data));
		return CM_MAD_OK;
	case CM_SIDR_REP:
		decode_sidr_rep(&mad->sidr_rep, d);
		return CM_MAD_OK;
	default:
		return CM_MAD_BAD_ATTRIBUTE;
	}
}

void cm_mad_encode(uint8_t data[CM_MAD_LEN], const struct cm_mad *mad)
{
	uint8_t *d = data + MAD_HEADER_LEN;

	memset(data, 0, CM_MAD_LEN);
	data[0] = MAD_BASE_VERSION;
	data[1] = MAD_CLASS_CM;
	data[2] = CM_CLASS_VERSION;
	data[3] = MAD_METHOD_SEND;
	put_be64(data + 8, mad->tid);
	put_be16(data + 16, mad->attribute);
	put_be32(data + 20, mad->attribute_modifier);
	switch (mad->attribute) {
	case CM_REQ:
		encode_req(d, &mad->req);
		break;
	case CM_MRA:
		encode_ids(d, mad->mra.local_id, mad->mra.remote_id);
		d[8] = (uint8_t)(mad->mra.answers << 6);
		d[9] = (uint8_t)(mad->mra.service_timeout << 3);
		memcpy(d + 10, mad->mra.private_data, sizeof(mad->mra.private_data));
		break;
	case CM_REJ:
		encode_rej(d, &mad->rej);
		break;
	case CM_REP:
		encode_rep(d, &mad->rep);
		break;
	case CM_RTU:
		encode_ids(d, mad->rtu.local_id, mad->rtu.remote_id);
		memcpy(d + 8, mad->rtu.private_data, sizeof(mad->rtu.private_data));
		break;
	case CM_DREQ:
		encode_ids(d, mad->dreq.local_id, mad->dreq.remote_id);
		put_be24(d + 8, mad->dreq.remote_qpn);
		memcpy(d + 12, mad->dreq.private_data, sizeof(mad->dreq.private_data));
		break;
	case CM_DREP:
		encode_ids(d, mad->drep.local_id, mad->drep.remote_id);
		memcpy(d + 8, mad->drep.private_data, sizeof(mad->drep.private_data));
		break;
	case CM_SIDR_REQ:
		put_be32(d, mad->sidr_req.request_id);
		put_be16(d + 4, mad->sidr_req.pkey);
		put_be64(d + 8, mad->sidr_req.service_id);
		memcpy(d + 16, mad->sidr_req.private_data, sizeof(mad->sidr_req.private_data));
		break;
	case CM_SIDR_REP:
		encode_sidr_rep(d, &mad->sidr_rep);
		break;
	}
}

const char *cm_attribute_name(uint16_t attribute)
{
	static const char *const names[] = { "REQ",  "MRA",  "REJ",	 "REP",	    "RTU",
					     "DREQ", "DREP", "SIDR_REQ", "SIDR_REP" };

	if (attribute < CM_REQ || attribute > CM_SIDR_REP)
		return "unknown";
	return names[attribute - CM_REQ];
}

const char *cm_rej_reason_name(uint16_t reason)
{
	static const char *const names[] = {
		[1] = "no QP",
		[2] = "no EEC",
		[3] = "no resources",
		[4] = "timeout",
		[5] = "unsupported request",
		[6] = "invalid communication ID",
		[7] = "invalid communication instance",
		[8] = "invalid service ID",
		[9] = "invalid transport type",
		[10] = "stale connection",
		[11] = "RDC does not exist",
		[12] = "primary GID",
		[13] = "primary LID",
		[14] = "SL",
		[15] = "traffic class",
		[16] = "hop limit",
		[17] = "packet rate",
		[24] = "port and CM redirect",
		[25] = "port redirect",
		[26] = "invalid path MTU",
		[27] = "insufficient responder resources",
		[28] = "consumer reject",
		[29] = "RNR retry count",
		[30] = "duplicate local communication ID",
		[31] = "class version",
		[32] = "flow label",
	};

	if (reason >= ARRAY_SIZE(names) || !names[reason])
		return "unknown reason";
	return names[reason];
}

static void decode_address(union ibv_gid *gid, const uint8_t *data, uint8_t ip_version)
{
	memcpy(gid->raw, data, 16);
	if (ip_version != 4)
		return;
	memset(gid->raw, 0, 12);
	gid->raw[10] = gid->raw[11] = 0xff;
}

static void encode_address(uint8_t *data, const union ibv_gid *gid, uint8_t ip_version)
{
	memcpy(data, gid->raw, 16);
	if (ip_version == 4)
		memset(data, 0, 12);
}

int cma_header_decode(struct cma_header *header, const uint8_t data[CMA_HEADER_LEN])
{
	header->ip_version = data[1] >> 4;
	if (data[0] || (header->ip_version != 4 && header->ip_version != 6))
		return -EINVAL;
	header->source_port = get_be16(data + 2);
	decode_address(&header->src, data + 4, header->ip_version);
	decode_address(&header->dst, data + 20, header->ip_version);
	return 0;
}

void cma_header_encode(uint8_t data[CMA_HEADER_LEN], const struct cma_header *header)
{
	data[0] = 0;
	data[1] = (uint8_t)(header->ip_version << 4);
	put_be16(data + 2, header->source_port);
	encode_address(data + 4, &header->src, header->ip_version);
	encode_address(data + 20, &header->dst, header->ip_version);
}
