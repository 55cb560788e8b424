// SPDX-License-Identifier: BSD-2-Clause
/*
 * pcap.c: classic pcap, nanosecond time stamps, raw IP. The links of one process share a file.
 * Every packet is written out at once, so that a crash loses none. One that cannot be written
 * (disk full) ends the file: said once, traffic goes on.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "util/bytes.h"
#include "util/list.h"
#include "util/log.h"
#include "wire/icrc.h"
#include "wire/packet.h"
#include "wire/pcap.h"

#define PCAP_MAGIC_NSEC 0xa1b23c4d
#define LINKTYPE_RAW	101
#define SNAP_LEN	65535
#define IP4_LEN		20
#define IP6_LEN		40
#define UDP_LEN		8

struct pcap_writer {
	struct list_node node; /* in writers */
	unsigned int users;
	FILE *file; /* NULL after an error */
	char *path;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* writers, their users and files */
static struct list_node writers = { &writers, &writers };

struct file_header {
	uint32_t magic;
	uint16_t major, minor;
	uint32_t zone, accuracy, snap_len, link_type;
};

struct record_header {
	uint32_t sec, nsec, captured_len, len;
};

/* %p becomes the pid */
static char *expand_path(const char *path)
{
	const char *mark = strstr(path, "%p");
	char *out;

	if (!mark)
		return strdup(path);
	if (asprintf(&out, "%.*s%ld%s", (int)(mark - path), path, (long)getpid(), mark + 2) < 0)
		return NULL;
	return out;
}

static struct pcap_writer *find_writer(const char *path)
{
	struct list_node *pos;

	list_for_each(pos, &writers)
		if (!strcmp(list_entry(pos, struct pcap_writer, node)->path, path))
			return list_entry(pos, struct pcap_writer, node);
	return NULL;
}

/* takes @path over when it succeeds */
static int create_writer(struct pcap_writer **out, char *path)
{
	const struct file_header header = { .magic = PCAP_MAGIC_NSEC,
					    .major = 2,
					    .minor = 4,
					    .snap_len = SNAP_LEN,
					    .link_type = LINKTYPE_RAW };
	struct pcap_writer *w = calloc(1, sizeof(*w));
	int ret;

	if (!w)
		return -ENOMEM;
	w->file = fopen(path, "we");
	if (!w->file || fwrite(&header, sizeof(header), 1, w->file) != 1 || fflush(w->file)) {
		ret = -errno;
		log_error("cannot write the capture %s: %s (see SOFTHCA_PCAP)", path,
			  strerror(errno));
		if (w->file)
			fclose(w->file);
		free(w);
		return ret;
	}
	w->path = path;
	list_add(&writers, &w->node);
	*out = w;
	return 0;
}

int pcap_open(struct pcap_writer **w, const char *path)
{
	char *expanded = expand_path(path);
	struct pcap_writer *found;
	int ret = 0;

	if (!expanded)
		return -ENOMEM;
	pthread_mutex_lock(&lock);
	found = find_writer(expanded);
	if (!found)
		ret = create_writer(&found, expanded);
	if (ret || found->path != expanded)
		free(expanded);
	if (!ret) {
		found->users++;
		*w = found;
	}
	pthread_mutex_unlock(&lock);
	return ret;
}

void pcap_close(struct pcap_writer *w)
{
	if (!w)
		return;
	pthread_mutex_lock(&lock);
	if (!--w->users) {
		list_del(&w->node);
		if (w->file)
			fclose(w->file);
		free(w->path);
		free(w);
	}
	pthread_mutex_unlock(&lock);
}

static uint16_t ip4_checksum(const uint8_t *header)
{
	uint32_t sum = 0;
	int i;

	for (i = 0; i < IP4_LEN; i += 2)
		sum += get_be16(header + i);
	sum = (sum & 0xffff) + (sum >> 16);
	sum += sum >> 16;
	return (uint16_t)~sum;
}

static size_t put_ip4(uint8_t *h, const union ibv_gid *sgid, const union ibv_gid *dgid,
		      uint16_t ip_id, uint8_t tos, uint8_t ttl, uint32_t udp_payload_len)
{
	memset(h, 0, IP4_LEN);
	h[0] = 0x45;
	h[1] = tos;
	put_be16(h + 2, (uint16_t)(IP4_LEN + UDP_LEN + udp_payload_len));
	put_be16(h + 4, ip_id);
	put_be16(h + 6, 0x4000); /* DF */
	h[8] = ttl;
	h[9] = 17;
	memcpy(h + 12, sgid->raw + 12, 4);
	memcpy(h + 16, dgid->raw + 12, 4);
	put_be16(h + 10, ip4_checksum(h));
	return IP4_LEN;
}

static size_t put_ip6(uint8_t *h, const union ibv_gid *sgid, const union ibv_gid *dgid, uint8_t tos,
		      uint8_t ttl, uint32_t udp_payload_len)
{
	put_be32(h, 6U << 28 | (uint32_t)tos << 20);
	put_be16(h + 4, (uint16_t)(UDP_LEN + udp_payload_len));
	h[6] = 17;
	h[7] = ttl;
	memcpy(h + 8, sgid->raw, 16);
	memcpy(h + 24, dgid->raw, 16);
	return IP6_LEN;
}

void pcap_write(struct pcap_writer *w, const union ibv_gid *sgid, const union ibv_gid *dgid,
		uint16_t sport, uint16_t ip_id, uint8_t tos, uint8_t ttl, const uint8_t *data,
		uint32_t len)
{
	uint8_t h[IP6_LEN + UDP_LEN];
	struct record_header record;
	struct timespec now;
	size_t h_len;

	if (len > SNAP_LEN - sizeof(h))
		return;
	h_len = gid_is_ipv4(dgid) ? put_ip4(h, sgid, dgid, ip_id, tos, ttl, len)
				  : put_ip6(h, sgid, dgid, tos, ttl, len);
	put_be16(h + h_len, sport);
	put_be16(h + h_len + 2, ROCE_UDP_PORT);
	put_be16(h + h_len + 4, (uint16_t)(UDP_LEN + len));
	put_be16(h + h_len + 6, 0); /* no UDP checksum, as rxe and NICs do */
	h_len += UDP_LEN;

	clock_gettime(CLOCK_REALTIME, &now);
	record.sec = (uint32_t)now.tv_sec;
	record.nsec = (uint32_t)now.tv_nsec;
	record.len = record.captured_len = (uint32_t)h_len + len;

	pthread_mutex_lock(&lock);
	if (w->file && (fwrite(&record, sizeof(record), 1, w->file) != 1 ||
			fwrite(h, h_len, 1, w->file) != 1 || fwrite(data, len, 1, w->file) != 1 ||
			fflush(w->file))) {
		log_warn("cannot write the capture %s: %s; it ends here", w->path, strerror(errno));
		fclose(w->file);
		w->file = NULL;
	}
	pthread_mutex_unlock(&lock);
}
