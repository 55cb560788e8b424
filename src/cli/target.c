// SPDX-License-Identifier: BSD-2-Clause
/*
 * target.c: softhca target.
 */
#include "cli/cli.h"

#include <stdio.h>

#include "target/config.h"
#include "target/server.h"

#define COMMAND "softhca target"

static const char help[] =
	"Usage: softhca target --listen ADDRESS[:PORT] --subsystem NQN --namespace FILE ...\n"
	"       softhca target --config FILE\n"
	"\n"
	"Serves files or memory as NVMe-oF/RDMA namespaces. Reads, writes and flushes are served by\n"
	"the adapter's NVMe-oF target offload; everything else by this program.\n"
	"\n"
	"  --listen ADDRESS[:PORT]  listen there: 0.0.0.0:4420, [::]:4420, 10.0.0.5 (port 4420);\n"
	"                           may be given several times\n"
	"  --subsystem NQN          a subsystem; what follows belongs to it until the next one\n"
	"  --namespace FILE[,nsid=N][,lba=512|4096][,ro]\n"
	"                           a namespace on a file or block device, or on memory\n"
	"                           (memory:256M); nsid counts from 1, lba is 512\n"
	"  --allow-host NQN         only hosts so named may use the subsystem (default: any)\n"
	"  --in-capsule BYTES       data that a command may carry in its capsule: 0 to 16384, a\n"
	"                           multiple of 16 (4096)\n"
	"  --config FILE            ports, subsystems, namespaces and hosts from a JSON file in\n"
	"                           nvmetcli's format instead\n"
	"  --no-offload             serve everything by software (to compare)\n"
	"  --stats-file FILE        write statistics as JSON on SIGUSR1 and at the end\n"
	"  --quiet                  do not say on stdout where it listens\n"
	"  -h, --help               this text\n"
	"\n"
	"Signals: SIGTERM, SIGINT disconnect the hosts in order and end it, data are safe; SIGUSR1\n"
	"prints statistics; SIGHUP reads --config again and switches namespaces on and off (their\n"
	"\"enable\"): hosts are told.\n"
	"\n"
	"Example:\n"
	"  truncate -s 1G disk.img\n"
	"  softhca target --listen 0.0.0.0:4420 --subsystem nqn.2026-01.org.example:disk \\\n"
	"          --namespace disk.img\n";

enum option_id {
	LISTEN = 256,
	SUBSYSTEM,
	NAMESPACE,
	ALLOW_HOST,
	IN_CAPSULE,
	CONFIG,
	NO_OFFLOAD,
	STATS,
	QUIET
};

static const struct option options[] = {
	{ "listen", required_argument, NULL, LISTEN },
	{ "subsystem", required_argument, NULL, SUBSYSTEM },
	{ "namespace", required_argument, NULL, NAMESPACE },
	{ "allow-host", required_argument, NULL, ALLOW_HOST },
	{ "in-capsule", required_argument, NULL, IN_CAPSULE },
	{ "config", required_argument, NULL, CONFIG },
	{ "no-offload", no_argument, NULL, NO_OFFLOAD },
	{ "stats-file", required_argument, NULL, STATS },
	{ "quiet", no_argument, NULL, QUIET },
	{ "help", no_argument, NULL, 'h' },
	{ 0 },
};

struct arguments {
	struct server_options server;
	const char *config_file;
	bool simple; /* a part of the simple case was given */
	bool help;
};

/* false after a message */
static bool parse(int argc, char **argv, struct config *config, struct arguments *args)
{
	char error[512] = "";
	bool good = true;
	int c;

	while (good && (c = cli_getopt(argc, argv, COMMAND, options)) != -1) {
		args->simple |= c >= LISTEN && c <= IN_CAPSULE;
		switch (c) {
		case LISTEN:
			good = config_add_listen(config, optarg, error, sizeof(error));
			break;
		case SUBSYSTEM:
			good = config_add_subsystem(config, optarg, error, sizeof(error));
			break;
		case NAMESPACE:
			good = config_add_namespace(config, optarg, error, sizeof(error));
			break;
		case ALLOW_HOST:
			good = config_add_host(config, optarg, error, sizeof(error));
			break;
		case IN_CAPSULE:
			good = config_set_in_capsule(config, optarg, error, sizeof(error));
			break;
		case CONFIG:
			args->config_file = optarg;
			break;
		case NO_OFFLOAD:
			args->server.offload = false;
			break;
		case STATS:
			args->server.stats_file = optarg;
			break;
		case QUIET:
			args->server.quiet = true;
			break;
		case 'h':
			args->help = true;
			return true;
		default:
			return false;
		}
	}
	if (!good) {
		cli_usage_error(COMMAND, "%s", error);
		return false;
	}
	if (optind < argc) {
		cli_usage_error(COMMAND, "unknown argument '%s'", argv[optind]);
		return false;
	}
	if (args->config_file && args->simple) {
		cli_usage_error(COMMAND, "--config goes without --listen, --subsystem, --namespace,"
					 " --allow-host and --in-capsule");
		return false;
	}
	if (!args->config_file && !config_finish(config, error, sizeof(error))) {
		cli_usage_error(COMMAND, "%s", error);
		return false;
	}
	return true;
}

static struct config *reload(const void *arg, char *error, size_t error_len)
{
	return config_load(arg, error, error_len);
}

int cli_target(int argc, char **argv)
{
	struct arguments args = { .server = { .offload = true } };
	struct config *config = config_new();
	char error[1024];
	int status = CLI_USAGE;

	if (!config || !parse(argc, argv, config, &args))
		goto out;
	status = 0;
	if (args.help) {
		fputs(help, stdout);
		goto out;
	}
	status = 1;
	if (args.config_file) {
		config_free(config);
		config = config_load(args.config_file, error, sizeof(error));
		if (!config) {
			fprintf(stderr, COMMAND ": %s\n", error);
			goto out;
		}
		args.server.reload = reload;
		args.server.reload_arg = args.config_file;
	}
	if (server_run(config, &args.server, error, sizeof(error)))
		fprintf(stderr, COMMAND ": %s\n", error);
	else
		status = 0;
out:
	config_free(config);
	return status;
}
