#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""System tests: Debian's own verbs programs, unmodified, between two processes over loopback, as an
unprivileged user (nobody, when started by root).

    tests/system/run.py [--build DIR] [--list] [--keep] [NAME...]
"""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import programs  # noqa: E402
import abuse  # noqa: E402,F401
import endurance  # noqa: E402,F401
from testing import (Bench, Skip, add_test, arguments, check, check_equal, free_port, listening, main,  # noqa: E402
                     test, wait_for)

DEVICE = "softhca_lo"
ADDRESS = "127.0.0.1"


@test
def ibv_devices_lists_loopback(bench):
    check(DEVICE in bench.run("ibv_devices"), "no %s in ibv_devices" % DEVICE)


@test
def ibv_devinfo_v(bench):
    text = bench.run("ibv_devinfo", "-v", "-d", DEVICE)
    check("PORT_ACTIVE (4)" in text, "the port is not active:\n" + text)
    check("link_layer:\t\tEthernet" in text, "link layer is not Ethernet:\n" + text)
    check(gid(text) is not None, "no GID for %s:\n%s" % (ADDRESS, text))
    check("RoCE v2" in text, "GID type is not RoCE v2:\n" + text)


@test
def ibv_devinfo_list(bench):
    check(DEVICE in bench.run("ibv_devinfo", "-l"), "no %s in ibv_devinfo -l" % DEVICE)


@test
def unknown_device_is_refused(bench):
    text = bench.run("ibv_rc_pingpong", "-d", "softhca_nosuch", status=1)
    check("not found" in text, text)


@test
def softhca_run_gives_a_program_our_libraries(bench):
    env = bench.env()
    del env["LD_LIBRARY_PATH"]
    check(DEVICE in bench.run(bench.softhca, "run", "ibv_devices", env=env), "no %s" % DEVICE)


@test
def softhca_run_preload(bench):
    no_sanitizer(bench)
    env = bench.env()
    del env["LD_LIBRARY_PATH"]
    check(DEVICE in bench.run(bench.softhca, "run", "--preload", "ibv_devices", env=env), "no %s" % DEVICE)


@test
def softhca_run_keeps_the_exit_status(bench):
    bench.run(bench.softhca, "run", "sh", "-c", "exit 7", status=7)
    bench.run(bench.softhca, "run", "/nosuch/program", status=127)
    bench.run(bench.softhca, "run", "--nosuch", status=2)


@test
def ucx_finds_the_device_under_the_interposer(bench):
    no_sanitizer(bench)
    env = bench.env()
    del env["LD_LIBRARY_PATH"]
    text = bench.run(bench.softhca, "run", "--preload", "ucx_info", "-d", env=env)
    check(DEVICE in text and "rc_verbs" in text, "ucx_info -d does not list rc_verbs on " + DEVICE)


def no_sanitizer(bench):
    if bench.sanitizer:
        raise Skip("the interposer cannot be preloaded after a sanitizer's library")


@test
def installed_tree(bench):
    """what `ninja install` puts down works where it is put, and pkg-config builds a program against it"""
    root, prefix = os.path.join(bench.dir, "root"), "/usr/local"
    subprocess.run(["meson", "install", "-C", bench.build, "--no-rebuild", "--quiet", "--destdir", root], check=True,
                   stdout=subprocess.DEVNULL)
    found = subprocess.run(["find", root, "-name", "softhca.pc"], stdout=subprocess.PIPE, check=True,
                           universal_newlines=True).stdout.strip()
    libdir = os.path.dirname(os.path.dirname(found))
    env = bench.env(LD_LIBRARY_PATH=os.path.join(libdir, "softhca"))
    check(DEVICE in bench.run("ibv_devices", env=env), "no device with the installed libraries")
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "softhca"], stdout=subprocess.PIPE, check=True,
                           universal_newlines=True,
                           env=dict(os.environ, PKG_CONFIG_PATH=os.path.dirname(found),
                                    PKG_CONFIG_SYSROOT_DIR=root)).stdout.split()
    program = os.path.join(bench.dir, "program")
    with open(program + ".c", "w") as f:
        f.write(PROGRAM)
    subprocess.run(["gcc", "-o", program, program + ".c"] + flags, check=True)
    env = bench.env(LD_LIBRARY_PATH=os.path.join(libdir, "softhca") + ":" + libdir)
    check_equal(bench.run(program, env=env), "softhca 1\n", "the program's output")
    for name in ("bin/softhca", "share/man/man7/softhca.7", "include/infiniband/verbs_ext.h"):
        check(os.path.exists(root + prefix + "/" + name), "not installed: " + name)


# finds our device through stock verbs, and asks an extension and SoftHCA's own API
PROGRAM = """
#include <stdio.h>
#include <string.h>
#include <infiniband/verbs_ext.h>
#include <softhca/softhca.h>

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_mp_wr_caps caps;

	for (int i = 0; list && list[i]; i++) {
		if (strcmp(list[i]->name, "softhca_lo"))
			continue;
		struct ibv_context *context = ibv_open_device(list[i]);

		if (!context || ibv_query_mp_wr_caps(context, &caps) || !caps.max_wr_buffer_sz)
			return 1;
		printf("softhca %d\\n", softhca_is_device(context));
		return ibv_close_device(context);
	}
	return 2;
}
"""


def gid(devinfo):
    return programs.gid_index(devinfo, ADDRESS)


def pair(row):
    """a test that runs both ends of @row to their end"""
    def run(bench):
        index = gid(bench.run("ibv_devinfo", "-v", "-d", DEVICE))
        values = dict(dev=DEVICE, gid=index, addr=ADDRESS, port=free_port())
        server = bench.start(*programs.command(row, True, **values))
        if "rping" in row[1] or "-R" in row[1].split():
            bench.settle(server)
        else:
            wait_for(lambda: listening(values["port"]) or not server.running(), 10, "server does not listen")
        bench.run(*programs.command(row, False, **values), seconds=40)
        check_equal(server.wait(20), 0, "the server's exit status")
    return run


for r in programs.PAIRS:
    add_test(r[0], pair(r))

if __name__ == "__main__":
    options = arguments(__doc__).parse_args()
    main(options, lambda: Bench(options.build))
