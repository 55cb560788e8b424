// SPDX-License-Identifier: BSD-2-Clause
/*
 * nvme.c: softhca nvme: options, discover, identify; what the other subcommands share.
 */
#include "cli/nvme.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "target/config.h"
#include "util/bytes.h"

#define NAMESPACES_MAX 1024

static const char help[] =
	"Usage: softhca nvme COMMAND --address ADDRESS[:PORT] [OPTIONS]\n"
	"\n"
	"An NVMe-oF/RDMA host in user space, for trying out, testing and measuring targets.\n"
	"\n"
	"Commands:\n"
	"  discover   list the subsystems that the target offers to this host\n"
	"  identify   connect to a subsystem and list its namespaces\n"
	"  test       discover, connect, write a pattern over the whole namespace (its data are\n"
	"             lost), flush, read it back and compare; then one table. Fails on any\n"
	"             mismatch, and when a SoftHCA target did not offload a command\n"
	"  run        a workload for some seconds\n"
	"\n"
	"Options:\n"
	"  --address ADDRESS[:PORT]  of the target (port 4420)\n"
	"  --subsystem NQN           default: the first that discovery shows\n"
	"  --host-nqn NQN            this host's name (default: made from the machine's id)\n"
	"  --nsid N                  namespace (default: the first)\n"
	"  --queues N                I/O queues (1)\n"
	"  --depth N                 commands in flight on each, 1 to 127 (32)\n"
	"  --size SIZE               of a command (test: 64K, run: 4K)\n"
	"  --limit SIZE              use only so much of the namespace\n"
	"  --no-in-capsule           never send data inside the command capsule\n"
	"  --progress                show progress even when stderr is no terminal\n"
	"  -h, --help                this text\n"
	"Options of run:\n"
	"  --mode read|write|randread|randwrite|randrw   (randread)\n"
	"  --time SECONDS            (5)\n"
	"  --verify                  writes write the test's pattern, reads compare with it\n"
	"  --json                    the result as JSON\n"
	"\n"
	"Exit status: 0 success, 1 failure, 2 wrong usage.\n";

enum option_id {
	ADDRESS = 256,
	SUBSYSTEM,
	HOST_NQN,
	NSID,
	QUEUES,
	DEPTH,
	SIZE,
	LIMIT,
	NO_IN_CAPSULE,
	PROGRESS,
	MODE,
	TIME,
	VERIFY,
	JSON,
};

static const struct option options[] = {
	{ "address", required_argument, NULL, ADDRESS },
	{ "subsystem", required_argument, NULL, SUBSYSTEM },
	{ "host-nqn", required_argument, NULL, HOST_NQN },
	{ "nsid", required_argument, NULL, NSID },
	{ "queues", required_argument, NULL, QUEUES },
	{ "depth", required_argument, NULL, DEPTH },
	{ "size", required_argument, NULL, SIZE },
	{ "limit", required_argument, NULL, LIMIT },
	{ "no-in-capsule", no_argument, NULL, NO_IN_CAPSULE },
	{ "progress", no_argument, NULL, PROGRESS },
	{ "mode", required_argument, NULL, MODE },
	{ "time", required_argument, NULL, TIME },
	{ "verify", no_argument, NULL, VERIFY },
	{ "json", no_argument, NULL, JSON },
	{ "help", no_argument, NULL, 'h' },
	{ 0 },
};

int nvme_fail(const struct nvme_arguments *args, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "%s: ", args->command);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	return 1;
}

static bool parse_address(struct nvme_arguments *args, const char *text)
{
	struct config *config = config_new();
	char error[256];
	bool good = config && config_add_listen(config, text, error, sizeof(error));

	if (good) {
		snprintf(args->address, sizeof(args->address), "%s", config->ports[0].traddr);
		args->port = config->ports[0].port;
	} else {
		cli_usage_error(args->command, "--address %s: not like 10.0.0.5:4420 or [fd00::5]",
				text);
	}
	config_free(config);
	return good;
}

static bool parse_mode(struct nvme_arguments *args, const char *text)
{
	static const char *const modes[] = { "read", "write", "randread", "randwrite", "randrw" };

	for (unsigned int i = 0; i < ARRAY_SIZE(modes); i++) {
		if (strcmp(modes[i], text))
			continue;
		args->mode = (enum nvme_mode)i;
		return true;
	}
	cli_usage_error(args->command,
			"--mode %s: must be read, write, randread, randwrite or randrw", text);
	return false;
}

static bool parse_option(struct nvme_arguments *args, int c)
{
	const char *name = args->command;
	uint64_t n;

	switch (c) {
	case ADDRESS:
		return parse_address(args, optarg);
	case SUBSYSTEM:
		args->subsystem = optarg;
		return true;
	case HOST_NQN:
		args->hostnqn = optarg;
		return true;
	case NSID:
		if (!cli_number(name, "--nsid", optarg, 1, NVME_NSID_ALL - 1, &n))
			return false;
		args->nsid = (uint32_t)n;
		return true;
	case QUEUES:
		if (!cli_number(name, "--queues", optarg, 1, 128, &n))
			return false;
		args->queues = (unsigned int)n;
		return true;
	case DEPTH:
		if (!cli_number(name, "--depth", optarg, 1, 127, &n))
			return false;
		args->depth = (unsigned int)n;
		return true;
	case SIZE:
		return cli_size(name, "--size", optarg, 512, 1 << 20, &args->io_bytes);
	case LIMIT:
		return cli_size(name, "--limit", optarg, 4096, UINT64_MAX, &args->limit_bytes);
	case TIME:
		return cli_number(name, "--time", optarg, 1, 86400, &args->seconds);
	case MODE:
		return parse_mode(args, optarg);
	case NO_IN_CAPSULE:
		args->no_in_capsule = true;
		return true;
	case PROGRESS:
		args->progress = true;
		return true;
	case VERIFY:
		args->verify = true;
		return true;
	case JSON:
		args->json = true;
		return true;
	case 'h':
		args->help = true;
		return true;
	default:
		return false;
	}
}

bool nvme_parse(int argc, char **argv, struct nvme_arguments *args)
{
	int c;

	while ((c = cli_getopt(argc, argv, args->command, options)) != -1) {
		if (!parse_option(args, c))
			return false;
		if (args->help)
			return true;
	}
	if (optind < argc) {
		cli_usage_error(args->command, "unknown argument '%s'", argv[optind]);
		return false;
	}
	if (!args->port) {
		cli_usage_error(args->command, "needs --address");
		return false;
	}
	return true;
}

struct initiator *nvme_connect(const struct nvme_arguments *args, const char *nqn,
			       unsigned int queues)
{
	struct initiator_options o = {
		.address = args->address,
		.port = args->port,
		.subnqn = nqn,
		.hostnqn = args->hostnqn,
		.io_queues = queues,
		.depth = args->depth,
		.kato_ms = queues ? 10000 : 0,
		.no_in_capsule = args->no_in_capsule,
	};
	struct initiator *host;
	char error[512];

	host = initiator_connect(&o, error, sizeof(error));
	if (!host)
		nvme_fail(args, "cannot connect to %s port %u: %s", args->address, args->port,
			  error);
	return host;
}

bool nvme_find_namespace(const struct nvme_arguments *args, struct initiator *host,
			 struct initiator_namespace *ns)
{
	static struct initiator_namespace list[NAMESPACES_MAX];
	char text[96];
	uint16_t status;
	int n = initiator_namespaces(host, list, NAMESPACES_MAX, &status);

	if (n < 0) {
		nvme_fail(args, "cannot list the namespaces: %s",
			  initiator_status_text(status, text, sizeof(text)));
		return false;
	}
	for (int i = 0; i < n; i++) {
		if (args->nsid && list[i].nsid != args->nsid)
			continue;
		*ns = list[i];
		return true;
	}
	if (args->nsid)
		nvme_fail(args, "there is no namespace %u (see 'softhca nvme identify')",
			  args->nsid);
	else
		nvme_fail(args, "the subsystem has no namespace");
	return false;
}

struct nvmf_discovery_record *nvme_discover_records(const struct nvme_arguments *args,
						    size_t *count)
{
	struct initiator *host = nvme_connect(args, NVMF_DISCOVERY_NQN, 0);
	struct nvmf_discovery_record *records;
	char text[96];
	uint16_t status;

	if (!host)
		return NULL;
	records = initiator_discovery_log(host, count, &status);
	if (!records)
		nvme_fail(args, "cannot read the discovery log: %s",
			  initiator_status_text(status, text, sizeof(text)));
	initiator_disconnect(host);
	return records;
}

/* a space or NUL padded text of a peer: printable characters only */
static void print_text(const char *name, const char *text, size_t len)
{
	while (len && (text[len - 1] == ' ' || !text[len - 1]))
		len--;
	printf("%s ", name);
	for (size_t i = 0; i < len && text[i]; i++)
		putchar(text[i] >= ' ' && text[i] <= '~' ? text[i] : '?');
	putchar('\n');
}

int nvme_discover(struct nvme_arguments *args)
{
	struct nvmf_discovery_record *records;
	size_t count;

	records = nvme_discover_records(args, &count);
	if (!records)
		return 1;
	printf("%zu record%s\n", count, count == 1 ? "" : "s");
	for (size_t i = 0; i < count; i++) {
		const struct nvmf_discovery_record *r = &records[i];

		print_text("\nsubnqn: ", r->subnqn, sizeof(r->subnqn));
		printf("trtype:  %s\n", r->trtype == NVMF_TRTYPE_RDMA ? "rdma" : "other");
		printf("adrfam:  %s\n", r->adrfam == NVMF_ADRFAM_IPV4	? "ipv4"
					: r->adrfam == NVMF_ADRFAM_IPV6 ? "ipv6"
									: "other");
		print_text("traddr: ", r->traddr, sizeof(r->traddr));
		print_text("trsvcid:", r->trsvcid, sizeof(r->trsvcid));
		printf("portid:  %u\n", le16toh(r->portid));
	}
	free(records);
	return 0;
}

int nvme_identify(struct nvme_arguments *args)
{
	struct initiator_namespace list[64];
	struct initiator_info info;
	struct initiator *host;
	uint16_t status;
	char text[96];
	int n;

	if (!args->subsystem)
		return cli_usage_error(args->command, "needs --subsystem"), CLI_USAGE;
	host = nvme_connect(args, args->subsystem, args->queues);
	if (!host)
		return 1;
	initiator_get_info(host, &info);
	printf("model %s, serial %s, firmware %s, controller %u\n", info.model, info.serial,
	       info.firmware, info.cntlid);
	printf("%u I/O queue%s of depth %u, transfers up to %u KiB, %u bytes in a capsule\n",
	       info.io_queues, info.io_queues == 1 ? "" : "s", info.depth, info.max_transfer / 1024,
	       info.in_capsule_bytes);
	n = initiator_namespaces(host, list, ARRAY_SIZE(list), &status);
	for (int i = 0; i < n; i++)
		printf("namespace %u: %" PRIu64 " blocks of %u bytes, %.1f MiB\n", list[i].nsid,
		       list[i].blocks, list[i].lba_size,
		       (double)list[i].blocks * list[i].lba_size / (1 << 20));
	initiator_disconnect(host);
	if (n >= 0)
		return 0;
	return nvme_fail(args, "cannot list the namespaces: %s",
			 initiator_status_text(status, text, sizeof(text)));
}

int cli_nvme(int argc, char **argv)
{
	static const struct {
		const char *name, *command;
		int (*run)(struct nvme_arguments *args);
	} commands[] = {
		{ "discover", "softhca nvme discover", nvme_discover },
		{ "identify", "softhca nvme identify", nvme_identify },
		{ "test", "softhca nvme test", nvme_test },
		{ "run", "softhca nvme run", nvme_run },
	};
	struct nvme_arguments args = {
		.queues = 1, .depth = 32, .mode = MODE_RANDREAD, .seconds = 5
	};

	if (argc < 2 || !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") ||
	    !strcmp(argv[1], "help")) {
		fputs(help, argc < 2 ? stderr : stdout);
		return argc < 2 ? CLI_USAGE : 0;
	}
	for (unsigned int i = 0; i < ARRAY_SIZE(commands); i++) {
		if (strcmp(commands[i].name, argv[1]))
			continue;
		args.command = commands[i].command;
		if (!nvme_parse(argc - 1, argv + 1, &args))
			return CLI_USAGE;
		if (args.help) {
			fputs(help, stdout);
			return 0;
		}
		return commands[i].run(&args);
	}
	return cli_usage_error("softhca nvme", "unknown command '%s'", argv[1]);
}
