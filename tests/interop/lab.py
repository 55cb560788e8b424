# SPDX-License-Identifier: BSD-2-Clause
"""lab.py: a network namespace with a bridge, Linux guests on its taps, and SoftHCA on the bridge's
address, as an unprivileged user."""
import json
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "../lib"), os.path.join(HERE, "vm")]
import vmctl  # noqa: E402
from testing import Bench, Failure, check, wait_for  # noqa: E402

ADDRESS, ADDRESS6 = "10.77.0.1", "fd77::1"
NQN = "nqn.2026-01.test.softhca:disk"
DISCOVERY_NQN = "nqn.2014-08.org.nvmexpress.discovery"


class Guest:
    def __init__(self, lab, name, number):
        self.lab, self.name = lab, name
        self.address, self.address6 = "10.77.0.%d" % number, "fd77::%d" % number
        self.base = os.path.join(lab.dir, name)

    def boot(self):
        """start booting; wait with booted()"""
        self.starter = subprocess.Popen(
            [os.path.join(HERE, "vm/run-guest.sh"), "--workdir", self.lab.dir, "--name", self.name,
             "--ip", self.address + "/24", "--ip6", self.address6 + "/64", "--net", "tap:tap" + self.name,
             "--ns", self.lab.ns, "--smp", "4"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def booted(self):
        out, _ = self.starter.communicate()
        check(self.starter.returncode == 0, "guest %s: %s" % (self.name, out.decode(errors="replace")))

    def run(self, command, seconds=60, status=0):
        """a shell command in the guest; its output. @status None: any"""
        try:
            got, out = vmctl.guest_exec(self.base, command, seconds)
        except (TimeoutError, OSError) as e:
            raise Failure("guest %s: %r: no answer within %g s (%s)" % (self.name, command, seconds, e)) from None
        text = out.decode(errors="replace")
        if status is not None and got != status:
            raise Failure("guest %s: %r: exit status %d\n%s" % (self.name, command, got, text[-3000:]))
        return text

    def nvme(self, command, seconds=60, status=0):
        return self.run(". /host/nvme.sh; " + command, seconds, status)

    def clean(self):
        """no connection and no background program of an earlier test is left"""
        self.run("nvme disconnect-all 2>/dev/null; tc qdisc del dev eth0 root 2>/dev/null; umount /mnt/n 2>/dev/null;"
                 "dmesg -c > /dev/null; true", 30)

    def alive(self):
        try:
            with open(self.base + ".pid") as f:
                return os.path.exists("/proc/" + f.read().strip())
        except OSError:
            return False

    def die(self):
        """power off without a word to anyone, nor a sync"""
        try:
            vmctl.guest_exec(self.base, "poweroff -nf", 2)
        except (TimeoutError, OSError):
            pass
        wait_for(lambda: not self.alive() or self.zombie(), 10, "guest %s goes" % self.name)
        os.unlink(self.base + ".pid")

    def zombie(self):
        """it ended and nobody has collected it"""
        with open(self.base + ".pid") as f, open("/proc/%s/stat" % f.read().strip()) as s:
            return s.read().split(") ")[1][0] == "Z"

    def stop(self):
        if os.path.exists(self.base + ".pid"):
            subprocess.run([os.path.join(HERE, "vm/vmctl.py"), self.lab.dir, self.name, "stop"], check=False)


class Target:
    """softhca target with file images as namespaces"""

    def __init__(self, lab, arguments=(), namespaces=1, megabytes=256, listen="0.0.0.0:4420", env=None, keep=False):
        self.lab = lab
        self.images = [os.path.join(lab.tmp, "disk%d.img" % i) for i in range(1, namespaces + 1)]
        for image in self.images:
            if keep and os.path.exists(image):
                continue
            with open(image, "wb") as f:
                f.truncate(megabytes << 20)
            os.chmod(image, 0o666)
        self.stats_file = os.path.join(lab.tmp, "stats.json")
        self.command = [lab.softhca, "target", "--listen", listen, "--subsystem", NQN]
        for image in self.images:
            self.command += ["--namespace", image]
        self.command += ["--stats-file", self.stats_file] + list(arguments)
        self.env = env or {}
        self.start()

    def start(self):
        if os.path.exists(self.stats_file):
            os.unlink(self.stats_file)
        self.process = self.lab.start(*self.command, env=self.lab.env(**self.env))
        wait_for(lambda: not self.process.running() or "listening" in self.process.output().lower(), 10,
                 "the target listens")
        check(self.process.running(), "the target ended:\n" + self.process.tail())

    def stop(self):
        """SIGTERM; its counters"""
        status = self.process.stop()
        check(status == 0, "the target's exit status is %d\n%s" % (status, self.process.tail()))
        with open(self.stats_file) as f:
            return json.load(f)


def total(stats, name):
    """sum of all values called @name anywhere in @stats"""
    if isinstance(stats, dict):
        return sum(v if k == name and isinstance(v, (int, float)) else total(v, name) for k, v in stats.items())
    if isinstance(stats, list):
        return sum(total(v, name) for v in stats)
    return 0


class Lab(Bench):
    def __init__(self, build):
        super().__init__(build)
        self.ns = "softhca-%d" % os.getpid()
        self.prefix = []
        vm = os.path.join(HERE, "vm")
        os.makedirs(os.path.join(self.dir, "share"))
        shutil.copy(os.path.join(HERE, "share/nvme.sh"), os.path.join(self.dir, "share"))
        self.guests = []
        subprocess.run([os.path.join(vm, "build-initramfs.sh"), "--workdir", self.dir], check=True,
                       stdout=subprocess.DEVNULL)
        subprocess.run([os.path.join(vm, "net.sh"), "up", "--ns", self.ns], check=True, stdout=subprocess.DEVNULL)
        self.prefix = ["ip", "netns", "exec", self.ns]
        self.a, self.b = self.guests = [Guest(self, "A", 10), Guest(self, "B", 11)]
        try:
            for guest in self.guests:
                guest.boot()
            for guest in self.guests:
                guest.booted()
        except BaseException:
            self.close()
            raise

    def clean(self):
        for guest in self.guests:
            try:
                guest.clean()
            except Failure as e:
                print("starting guest %s again: %s" % (guest.name, str(e).splitlines()[0]), flush=True)
                guest.stop()
                guest.boot()
                guest.booted()

    def close(self, keep=False):
        self.stop_all()
        for guest in self.guests:
            guest.stop()
        subprocess.run([os.path.join(HERE, "vm/net.sh"), "down", "--ns", self.ns], check=False)
        super().close(keep)
