// SPDX-License-Identifier: BSD-2-Clause
/*
 * mad_route.c: routing of CM messages between the processes of this host (wire-facts 4.1-4.3).
 *
 * REQ and SIDR_REQ open something new and go to the listener. Everything else carries an ID that
 * one of our processes chose, with its slot in the top byte. Where that process is gone the daemon
 * answers for it, as a CM that does not know the ID does: peers learn at once what happened
 * instead of by timeouts.
 */
#include "portd/mad_route.h"

#include <string.h>

#include "util/bytes.h"

/* common MAD header */
#define MAD_BASE_VERSION  1
#define MAD_CLASS_CM	  0x07
#define MAD_CLASS_VERSION 2
#define MAD_METHOD_SEND	  0x03
#define MAD_OFF_TID	  8
#define MAD_OFF_ATTR	  16
#define MAD_OFF_DATA	  24

enum cm_attribute {
	CM_REQ = 0x10,
	CM_MRA = 0x11,
	CM_REJ = 0x12,
	CM_REP = 0x13,
	CM_RTU = 0x14,
	CM_DREQ = 0x15,
	CM_DREP = 0x16,
	CM_SIDR_REQ = 0x17,
	CM_SIDR_REP = 0x18,
	CM_LAP = 0x19,
	CM_APR = 0x1a,
};

#define REJ_INVALID_COMM_ID    6
#define REJ_INVALID_SERVICE_ID 8
#define REJECTED_REQ	       0
#define REJECTED_REP	       1
#define SIDR_UNSUPPORTED       1 /* service ID unsupported */

/* an answer of type @attribute in the same transaction; returns its data part */
static uint8_t *reply_begin(uint8_t *reply, const uint8_t *mad, uint16_t attribute)
{
	memset(reply, 0, MAD_LEN);
	reply[0] = MAD_BASE_VERSION;
	reply[1] = MAD_CLASS_CM;
	reply[2] = MAD_CLASS_VERSION;
	reply[3] = MAD_METHOD_SEND;
	memcpy(reply + MAD_OFF_TID, mad + MAD_OFF_TID, 8);
	put_be16(reply + MAD_OFF_ATTR, attribute);
	return reply + MAD_OFF_DATA;
}

/* @local_id: 4 bytes as they are to be sent, NULL = none was made (0) */
static enum mad_action reply_rej(uint8_t *reply, const uint8_t *mad, const uint8_t *local_id,
				 uint8_t rejected, uint16_t reason)
{
	uint8_t *rej = reply_begin(reply, mad, CM_REJ);

	if (local_id)
		memcpy(rej, local_id, 4);
	memcpy(rej + 4, mad + MAD_OFF_DATA, 4); /* the peer's local ID is our remote one */
	rej[8] = (uint8_t)(rejected << 6);
	put_be16(rej + 10, reason);
	return MAD_REPLY;
}

static enum mad_action reply_drep(uint8_t *reply, const uint8_t *mad)
{
	const uint8_t *dreq = mad + MAD_OFF_DATA;
	uint8_t *drep = reply_begin(reply, mad, CM_DREP);

	memcpy(drep, dreq + 4, 4);
	memcpy(drep + 4, dreq, 4);
	return MAD_REPLY;
}

static enum mad_action reply_sidr_rep(uint8_t *reply, const uint8_t *mad)
{
	const uint8_t *sidr_req = mad + MAD_OFF_DATA;
	uint8_t *sidr_rep = reply_begin(reply, mad, CM_SIDR_REP);

	memcpy(sidr_rep, sidr_req, 4); /* request ID */
	sidr_rep[4] = SIDR_UNSUPPORTED;
	memcpy(sidr_rep + 12, sidr_req + 8, 8); /* service ID */
	return MAD_REPLY;
}

/* the message's own process is gone: what a CM answers to an ID it does not know */
static enum mad_action answer_for_the_dead(uint8_t *reply, const uint8_t *mad, uint16_t attribute)
{
	switch (attribute) {
	case CM_DREQ:
		return reply_drep(reply, mad);
	case CM_REP:
		return reply_rej(reply, mad, mad + MAD_OFF_DATA + 4, REJECTED_REP,
				 REJ_INVALID_COMM_ID);
	default:
		return MAD_DROP;
	}
}

enum mad_action mad_route(const struct listen_table *listens, uint64_t alive, const uint8_t *data,
			  const union ibv_gid *dgid, uint8_t *slot, uint8_t *reply)
{
	const uint8_t *cm = data + MAD_OFF_DATA;
	uint16_t attribute = get_be16(data + MAD_OFF_ATTR);

	if (data[0] != MAD_BASE_VERSION || data[1] != MAD_CLASS_CM ||
	    data[2] != MAD_CLASS_VERSION || data[3] != MAD_METHOD_SEND)
		return MAD_DROP;

	switch (attribute) {
	case CM_REQ:
	case CM_SIDR_REQ:
		*slot = listen_find(listens, get_be64(cm + 8), dgid);
		if (*slot && *slot < PORTD_SLOTS && alive >> *slot & 1)
			return MAD_DELIVER;
		if (attribute == CM_SIDR_REQ)
			return reply_sidr_rep(reply, data);
		return reply_rej(reply, data, NULL, REJECTED_REQ, REJ_INVALID_SERVICE_ID);
	case CM_SIDR_REP:
		*slot = cm[0]; /* request ID, the requester's own */
		break;
	case CM_MRA:
	case CM_REJ:
	case CM_REP:
	case CM_RTU:
	case CM_DREQ:
	case CM_DREP:
	case CM_LAP:
	case CM_APR:
		*slot = cm[4]; /* remote communication ID */
		break;
	default:
		return MAD_DROP;
	}
	if (*slot && *slot < PORTD_SLOTS && alive >> *slot & 1)
		return MAD_DELIVER;
	return answer_for_the_dead(reply, data, attribute);
}
