# SPDX-License-Identifier: BSD-2-Clause
"""abuse.py: tests of `softhca target` under hostile hosts, hosts that die, and unlucky machines. After each
the target must be alive, serve a well-behaved host, end in order, and have said nothing of a sanitizer."""
import os
import shutil
import signal
import subprocess
import time

from testing import Skip, add_test, check, check_equal, free_port, test, wait_for

NQN = "nqn.2026-01.org.example:abuse"
MIB = 1 << 20


def image(bench, name, size):
    path = os.path.join(bench.tmp, name)
    with open(path, "wb") as f:
        f.truncate(size)
    os.chmod(path, 0o666)
    return path


class Target:
    """a target on a fresh image of 4 MiB (or @namespaces), on loopback"""

    def __init__(self, bench, *more, namespaces=None, address="127.0.0.1", devices="lo"):
        self.bench, self.port = bench, free_port()
        self.offload = "--no-offload" not in more
        self.image = image(bench, "abuse.img", 4 * MIB)
        words = [bench.softhca, "target", "--listen", "%s:%d" % (address, self.port), "--subsystem", NQN]
        for namespace in namespaces or [self.image]:
            words += ["--namespace", namespace]
        self.process = bench.start(*words, *more, env=bench.env(SOFTHCA_DEVICES=devices))
        wait_for(lambda: "listening on" in self.process.output() or not self.process.running(), 10,
                 "the target does not listen")
        check(self.process.running(), "the target has ended")

    def host(self, command, *more):
        return [self.bench.softhca, "nvme", command, "--address", "127.0.0.1:%d" % self.port, "--subsystem", NQN] + \
            list(more)

    def end(self):
        """a good host is served, then an orderly end"""
        check(self.process.running(), "the target has died")
        if self.offload:
            self.bench.run(*self.host("test", "--limit", "1M"))
        else:  # which "test" would not accept
            self.bench.run(*self.host("run", "--limit", "1M", "--time", "1"))
        check_equal(self.process.stop(), 0, "the target's exit status")
        text = self.process.output()
        check("Sanitizer" not in text and "runtime error" not in text, "a sanitizer has something to say:\n" + text)


def tool(bench, name):
    """one of this directory's programs, where any user may run it"""
    source = os.path.join(bench.build, "tests/system", name)
    place = os.path.join(bench.dir, "tests/system")
    os.makedirs(place, exist_ok=True)
    shutil.copy2(source, place)
    return os.path.join(place, name)


def hostile(scenario, count=None, arguments=()):
    def run(bench):
        target = Target(bench, *arguments)
        words = [tool(bench, "hostile_host"), "127.0.0.1", str(target.port), NQN, scenario]
        bench.run(*words, *([str(count)] if count else []), seconds=60)
        target.end()
    return run


for _scenario in ("private_data", "connect_fields", "before_connect", "io_commands", "admin_commands"):
    add_test("hostile_" + _scenario, hostile(_scenario))
add_test("hostile_io_commands_without_offload", hostile("io_commands", arguments=["--no-offload"]))
add_test("hostile_random_capsules", hostile("random_capsules", 1000))
add_test("hostile_dereg_in_flight", hostile("dereg_in_flight", 8))


def unwilling(*arguments):
    """a host with hundreds of large reads and no receives posted; another one is served meanwhile"""
    def run(bench):
        target = Target(bench, *arguments)
        bad = bench.start(tool(bench, "hostile_host"), "127.0.0.1", str(target.port), NQN, "no_receives", "60")
        wait_for(lambda: "ready" in bad.output(), 30, "the hostile host is not ready")
        bench.run(*target.host("run", "--time", "1", "--limit", "1M"), seconds=20)
        check(bad.running(), "the hostile host has ended")
        bad.stop(signal.SIGKILL)
        target.end()
    return run


add_test("host_without_receives_starves_nobody", unwilling())
add_test("host_without_receives_starves_nobody_software", unwilling("--no-offload"))


@test
def hosts_that_die_starve_nobody(bench):
    """hosts are killed with large commands in flight; another one's data stay right, and it never waits long"""
    target = Target(bench)
    bench.run(*target.host("test"))
    good = bench.start(*target.host("run", "--mode", "randrw", "--verify", "--time", "5"))
    for i in range(12):
        victim = bench.start(*target.host("run", "--size", "64K", "--queues", "3", "--time", "30", "--host-nqn",
                                          "nqn.2026-01.org.example:victim%d" % i))
        time.sleep(0.3)
        victim.stop(signal.SIGKILL)
    check_equal(good.wait(30), 0, "the verifying host's exit status")
    target.end()


def peer(scenario, count):
    def run(bench):
        target = Target(bench)
        bench.run(tool(bench, "hostile_peer"), "127.0.0.2", "127.0.0.1", str(target.port), scenario, str(count),
                  seconds=60)
        target.end()
    return run


def namespace(bench):
    """a network namespace, for as long as the test; the words that lead into it"""
    holder = bench.start("unshare", "-n", "sleep", "120", user=None)
    own = os.readlink("/proc/self/ns/net")
    path = "/proc/%d/ns/net" % holder.popen.pid
    wait_for(lambda: os.readlink(path) != own or not holder.running(), 5, "no network namespace")
    return holder.popen.pid, ["nsenter", "-t", str(holder.popen.pid), "-n"]


def remote_peer(scenario, count):
    """the peer is on another host, so that it sees the answers and has live queue pairs"""
    def run(bench):
        if os.getuid():
            raise Skip("needs root for network namespaces")
        _, near = namespace(bench)
        there, far = namespace(bench)

        def ip(where, *words):
            subprocess.run(where + ["ip"] + list(words), check=True)

        ip(near, "link", "set", "lo", "up")
        ip(near, "link", "add", "v0", "type", "veth", "peer", "name", "v1", "netns", str(there))
        for where, name, address in ((near, "v0", "10.7.0.1/24"), (far, "v1", "10.7.0.2/24")):
            ip(where, "address", "add", address, "dev", name)
            ip(where, "link", "set", name, "up")
        try:
            bench.prefix = near
            target = Target(bench, address="0.0.0.0", devices="lo,v0")
            bench.prefix = far
            bench.run(tool(bench, "hostile_peer"), "10.7.0.2", "10.7.0.1", str(target.port), scenario, str(count),
                      seconds=60)
            bench.prefix = near
            target.end()
        finally:
            bench.prefix = []
    return run


add_test("hostile_peer_packets", remote_peer("rc_fuzz", 10000))
add_test("hostile_peer_datagrams_answered", remote_peer("mad_fuzz", 20000))
add_test("hostile_peer_requests", peer("req_flood", 5000))
add_test("hostile_peer_datagrams", peer("mad_fuzz", 10000))


@test
def closed_standard_descriptors_leave_the_image_alone(bench):
    """a namespace's file must not become standard output"""
    path, port = image(bench, "closed.img", MIB), free_port()
    process = bench.start("sh", "-c", "exec \"$@\" <&- >&- 2>&-", "sh", bench.softhca, "target", "--listen",
                          "127.0.0.1:%d" % port, "--subsystem", NQN, "--namespace", path,
                          env=bench.env(SOFTHCA_DEVICES="lo"))
    wait_for(lambda: served(bench, port), 10, "the target does not serve")
    check_equal(process.stop(), 0, "the target's exit status")
    with open(path, "rb") as f:
        check(not any(f.read()), "messages were written into the image")


def served(bench, port):
    command = bench.command([bench.softhca, "nvme", "identify", "--address", "127.0.0.1:%d" % port,
                             "--subsystem", NQN])
    return not subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, env=bench.env()).returncode


@test
def file_is_truncated_under_load(bench):
    """NVMe errors, no signal; what is left of the file is served"""
    target = Target(bench)
    bench.run(*target.host("test"))
    load = bench.start(*target.host("run", "--time", "20"))
    time.sleep(0.7)
    os.truncate(target.image, MIB)
    check_equal(load.wait(20), 1, "the host's exit status")
    check("(0x28" in load.output(), "no media error:\n" + load.tail())
    target.end()


@test
def few_descriptors(bench):
    """64 are enough; too few: a message that names them"""
    for limit, status in ((64, None), (10, 1)):
        path = image(bench, "few.img", MIB)
        process = bench.start("sh", "-c", "ulimit -n %d; exec \"$@\"" % limit, "sh", bench.softhca, "target", "--listen",
                              "127.0.0.1:%d" % free_port(), "--subsystem", NQN, "--namespace", path,
                              env=bench.env(SOFTHCA_DEVICES="lo"))
        if status is None:
            wait_for(lambda: "listening on" in process.output(), 10, "does not listen with %d descriptors" % limit)
            check_equal(process.stop(), 0, "exit status with %d descriptors" % limit)
        else:
            check_equal(process.wait(20), status, "exit status with %d descriptors" % limit)
            check("descriptor" in process.output() or "Too many open files" in process.output(),
                  "no word of descriptors:\n" + process.tail())


@test
def sigterm_twice_and_early(bench):
    """at every moment of its start, and again while it ends"""
    path, port = image(bench, "term.img", MIB), free_port()
    for delay in (0.0, 0.005, 0.02, 0.05, 0.1, 0.3):
        process = bench.start(bench.softhca, "target", "--listen", "127.0.0.1:%d" % port, "--subsystem", NQN,
                              "--namespace", path, env=bench.env(SOFTHCA_DEVICES="lo"))
        time.sleep(delay)
        process.kill(signal.SIGTERM)
        process.kill(signal.SIGTERM)
        check(process.wait(15) in (0, -signal.SIGTERM), "exit status %r" % process.popen.returncode)


@test
def stats_file_in_a_missing_directory(bench):
    """is refused at the start, not noticed at the end"""
    text = bench.run(bench.softhca, "target", "--listen", "127.0.0.1:%d" % free_port(), "--subsystem", NQN, "--namespace",
                     image(bench, "stats.img", MIB), "--stats-file", bench.tmp + "/nosuch/file", status=1)
    check("--stats-file" in text and "No such file" in text, text)
