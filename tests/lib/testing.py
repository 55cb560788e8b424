# SPDX-License-Identifier: BSD-2-Clause
"""testing.py: what the system and interop tests share: a registry of test functions, processes that
end with their test, and SoftHCA's programs and libraries copied to where any user may read them."""
import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

NOBODY = 65534
TESTS = []


class Failure(Exception):
    pass


class Skip(Exception):
    pass


def test(function):
    """register @function as a test; its name is its identity"""
    TESTS.append((function.__name__, function))
    return function


def add_test(name, function):
    TESTS.append((name, function))


def check(condition, message):
    if not condition:
        raise Failure(message)


def check_equal(got, want, what):
    check(got == want, "%s: got %r, want %r" % (what, got, want))


def wait_for(condition, seconds, what, interval=0.1):
    """poll until condition() is true; its value"""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        check(time.monotonic() < end, "%s: not within %g s" % (what, seconds))
        time.sleep(interval)


class Process:
    """a program in a session of its own, its output in a file; ended by stop()"""

    def __init__(self, command, log, env=None):
        self.command, self.log = command, log
        self.file = open(log, "wb")
        self.popen = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.file,
                                      stderr=subprocess.STDOUT, env=env, start_new_session=True)

    def output(self):
        with open(self.log, errors="replace") as f:
            return f.read()

    def running(self):
        return self.popen.poll() is None

    def wait(self, seconds):
        """exit status"""
        try:
            return self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Failure("still running after %g s: %s\n%s" % (
                seconds, " ".join(self.command), self.tail())) from None

    def kill(self, number):
        self.popen.send_signal(number)

    def stop(self, number=signal.SIGTERM, seconds=10):
        """end it and what it started; its exit status"""
        if self.running():
            self.popen.send_signal(number)
            try:
                self.popen.wait(seconds)
            except subprocess.TimeoutExpired:
                os.killpg(self.popen.pid, signal.SIGKILL)
                self.popen.wait()
        self.file.close()
        return self.popen.returncode

    def tail(self, lines=12):
        text = self.output().rstrip().splitlines()
        return "\n".join("    | " + line for line in text[-lines:])


class Bench:
    """a scratch directory with a copy of SoftHCA in it, and the processes of the running test"""

    def __init__(self, build):
        self.build = os.path.abspath(build)
        self.dir = tempfile.mkdtemp(prefix="softhca-test-")
        os.chmod(self.dir, 0o755)
        self.tmp = os.path.join(self.dir, "tmp")
        os.mkdir(self.tmp)
        os.chmod(self.tmp, 0o777)
        self.processes = []
        self.prefix = []      # before every command, e.g. ip netns exec NAME
        self.count = 0
        self.stage()
        self.sanitizer = self.find_sanitizer()

    def stage(self):
        """copy programs and libraries: the libraries find each other by $ORIGIN, as in the build tree"""
        self.front = os.path.join(self.dir, "src/front")
        self.dropin = os.path.join(self.front, "dropin")
        self.softhca = os.path.join(self.dir, "src/cli/softhca")
        for part, wanted in (("src/front", ".so"), ("src/front/dropin", ".so"), ("src/cli", "softhca")):
            source, target = os.path.join(self.build, part), os.path.join(self.dir, part)
            os.makedirs(target, exist_ok=True)
            for name in os.listdir(source):
                path = os.path.join(source, name)
                if wanted in name and not os.path.isdir(path) and not name.endswith(".symbols"):
                    shutil.copy2(path, os.path.join(target, name), follow_symlinks=False)

    def env(self, **more):
        env = dict(os.environ, LD_LIBRARY_PATH=self.dropin, LC_ALL="C", HOME=self.tmp)
        if self.sanitizer:
            # the programs are not ours: what they leak is not looked at
            env.update(LD_PRELOAD=self.sanitizer, ASAN_OPTIONS="detect_leaks=0",
                       UBSAN_OPTIONS="halt_on_error=1:print_stacktrace=1")
        env.update(more)
        return env

    def find_sanitizer(self):
        """a sanitizer's library must come first in a program that is not built with it"""
        core = os.path.join(self.front, "libsofthca.so.0")
        out = subprocess.run(["ldd", core], stdout=subprocess.PIPE, universal_newlines=True).stdout
        return " ".join(line.split()[2] for line in out.splitlines() if "libasan" in line)

    def command(self, argv, user=NOBODY):
        drop = []
        if os.getuid() == 0 and user is not None:
            drop = ["setpriv", "--reuid=%d" % user, "--regid=%d" % user, "--clear-groups"]
        return self.prefix + drop + list(argv)

    def start(self, *argv, env=None, user=NOBODY):
        """a program in the background, as an unprivileged user"""
        self.count += 1
        log = os.path.join(self.dir, "%03d-%s.log" % (self.count, os.path.basename(argv[0])))
        process = Process(self.command(argv, user), log, env or self.env())
        self.processes.append(process)
        return process

    def run(self, *argv, seconds=30, env=None, user=NOBODY, status=0):
        """a program to its end; its output. @status None: any"""
        process = self.start(*argv, env=env, user=user)
        got = process.wait(seconds)
        if status is not None and got != status:
            raise Failure("exit status %d, want %d: %s\n%s" % (got, status, " ".join(argv), process.tail()))
        return process.output()

    @staticmethod
    def settle(process, seconds=1.0):
        """give a server without a TCP port to look at the time to listen"""
        end = time.monotonic() + seconds
        while process.running() and time.monotonic() < end:
            time.sleep(0.05)

    def stop_all(self):
        for process in reversed(self.processes):
            process.stop()
        self.processes = []

    def close(self, keep=False):
        self.stop_all()
        if not keep:
            shutil.rmtree(self.dir, ignore_errors=True)


def listening(port, prefix=()):
    """a TCP server listens on @port here (or where @prefix leads)"""
    text = subprocess.run(list(prefix) + ["cat", "/proc/net/tcp", "/proc/net/tcp6"],
                          stdout=subprocess.PIPE, universal_newlines=True).stdout
    return any(line.split()[1].endswith(":%04X" % port) and line.split()[3] == "0A"
               for line in text.splitlines() if ":" in line.split()[0])


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def arguments(doc):
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build", help="build directory (default: build)")
    parser.add_argument("--list", action="store_true", help="print the tests' names")
    parser.add_argument("--keep", action="store_true", help="keep the scratch directory with all logs")
    parser.add_argument("--retry", action="store_true", help="a second try for a test that failed; it is named at the end")
    parser.add_argument("names", nargs="*", help="only tests whose name contains one of these")
    return parser


def run_tests(options, make, between=lambda bench: None):
    """run the chosen tests on the bench that make() sets up; exit status"""
    chosen = [(n, f) for n, f in TESTS if not options.names or any(x in n for x in options.names)]
    if options.list:
        print("\n".join(n for n, _ in chosen))
        return 0
    passed, failed, skipped, again = 0, [], 0, []
    bench = make()

    def attempt(name, function):
        """'ok', 'skipped' or 'failed'"""
        begin = time.monotonic()
        result, verdict = "ok", "ok"
        try:
            function(bench)
        except Skip as e:
            result, verdict = "skipped", "skipped: %s" % e
        except Exception as e:  # also a mistake in a test is that test's failure
            result, verdict = "failed", "FAILED: %s" % (e if isinstance(e, Failure) else repr(e))
            for process in bench.processes[-3:]:
                verdict += "\n  %s\n%s" % (" ".join(process.command), process.tail())
        bench.stop_all()
        print("%-44s %5.1f s  %s" % (name, time.monotonic() - begin, verdict), flush=True)
        between(bench)
        return result

    try:
        for name, function in chosen:
            result = attempt(name, function)
            if result == "failed" and options.retry:
                again.append(name)
                result = attempt(name, function)
            passed += result == "ok"
            skipped += result == "skipped"
            if result == "failed":
                failed.append(name)
    finally:
        bench.close(options.keep)
        if options.keep:
            print("logs are in " + bench.dir)
    for name in again:
        print("second try: " + name)
    for name in failed:
        print("failed: " + name)
    if skipped:
        print("%d skipped" % skipped)
    print("%d passed, %d failed" % (passed, len(failed)))
    return 1 if failed else 0


def main(options, make, between=lambda bench: None):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    sys.exit(run_tests(options, make, between))
