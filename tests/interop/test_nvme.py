# SPDX-License-Identifier: BSD-2-Clause
"""test_nvme.py: stock Linux hosts (nvme-rdma over rdma_rxe) on `softhca target`."""
import hashlib
import signal
import subprocess
import threading
import time

from lab import ADDRESS, ADDRESS6, DISCOVERY_NQN, NQN, Target, total
from testing import check, check_equal, test, wait_for


def check_offloaded(stats):
    """the adapter served the I/O: none of it came to the target's software"""
    for name in ("offloaded_read", "offloaded_write", "offloaded_flush"):
        check(total(stats, name) > 0, "%s is 0 in %r" % (name, stats))
    for name in ("software_read", "software_write", "software_flush"):
        check_equal(total(stats, name), 0, name)


def check_image(image, sums):
    """the files of the guest's file system, read from the image by our side"""
    files = [line.split() for line in sums.splitlines() if len(line.split("  ")[0]) == 64]
    check(len(files) > 10, "too few files:\n" + sums)
    for digest, name in files:
        data = subprocess.run(["debugfs", "-R", "cat /" + name, image], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, check=True).stdout
        check_equal(hashlib.sha256(data).hexdigest(), digest, "%s in %s" % (name, image))


def in_parallel(*functions):
    """run them at once; the first failure is ours"""
    failures = []

    def guarded(function):
        try:
            function()
        except Exception as e:  # handed to the caller below
            failures.append(e)
    threads = [threading.Thread(target=guarded, args=(f,)) for f in functions]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if failures:
        raise failures[0]


@test
def nvme_discover_ipv4(lab):
    target = Target(lab)
    text = lab.a.nvme("discover " + ADDRESS)
    check(NQN in text and "trtype:  rdma" in text, text)
    check("trsvcid: 4420" in text, text)
    target.stop()


@test
def nvme_discover_ipv6(lab):
    target = Target(lab, listen="[::]:4420")
    text = lab.a.nvme("discover " + ADDRESS6)
    check(NQN in text and "adrfam:  ipv6" in text, text)
    target.stop()


def connect_and_check(lab, address, queues, listen):
    target = Target(lab, listen=listen)
    text = lab.a.nvme("connect %s %s %d; D=$(disk %s 1); queues %s; nvme id-ctrl $D; nvme id-ns $D; "
                      "nvme smart-log $D; nvme error-log $D; nvme list-ns $D; disconnect %s" % (
                          address, NQN, queues, NQN, NQN, NQN), 60)
    check_equal(text.splitlines()[0], str(queues + 1), "queues, with the admin queue")
    check(NQN in text, "identify controller does not name the subsystem:\n" + text)
    target.stop()


@test
def nvme_connect_1_queue_ipv4(lab):
    connect_and_check(lab, ADDRESS, 1, "0.0.0.0:4420")


@test
def nvme_connect_8_queues_ipv4(lab):
    connect_and_check(lab, ADDRESS, 8, "0.0.0.0:4420")


@test
def nvme_connect_1_queue_ipv6(lab):
    connect_and_check(lab, ADDRESS6, 1, "[::]:4420")


@test
def nvme_connect_8_queues_ipv6(lab):
    connect_and_check(lab, ADDRESS6, 8, "[::]:4420")


@test
def nvme_file_system_is_offloaded(lab):
    """mkfs, files of 1 B to 32 MiB, away and back, fsck, checksums; the image has the same bytes"""
    target = Target(lab)
    sums = lab.a.nvme("files %s %s 1 8" % (ADDRESS, NQN), 180)
    stats = target.stop()
    check_image(target.images[0], sums)
    check_offloaded(stats)


@test
def nvme_two_guests_two_namespaces(lab):
    target = Target(lab, namespaces=2)
    sums = {}

    def host(guest, nsid):
        sums[nsid] = guest.nvme("BIG=8; files %s %s %d 2" % (ADDRESS, NQN, nsid), 240)
    in_parallel(lambda: host(lab.a, 1), lambda: host(lab.b, 2))
    stats = target.stop()
    for nsid in sums:
        check_image(target.images[nsid - 1], sums[nsid])
    check_offloaded(stats)


@test
def nvme_wrong_nqn_is_refused(lab):
    target = Target(lab)
    lab.a.nvme("nvme connect -t rdma -a %s -s 4420 -n nqn.2026-01.test.softhca:nosuch $HOST" % ADDRESS, status=1)
    text = lab.a.run("dmesg")
    check("Connect Invalid Data Parameter, subsysnqn" in text, text[-1500:])
    check("nvme0n1" not in lab.a.run("ls /sys/block"), "there is a disk")
    target.stop()


@test
def nvme_host_that_is_not_allowed(lab):
    """A is allowed, B is not"""
    host_a = lab.a.nvme("echo $HOSTNQN").strip()
    target = Target(lab, ["--allow-host", host_a])
    lab.b.nvme("nvme connect -t rdma -a %s -s 4420 -n %s $HOST" % (ADDRESS, NQN), status=1)
    text = lab.b.run("dmesg")
    check("is not allowed, hostnqn" in text, text[-1500:])
    lab.a.nvme("connect %s %s 1; dd if=$(disk %s 1) of=/dev/null bs=4k count=4 iflag=direct; disconnect %s" % (
        ADDRESS, NQN, NQN, NQN))
    target.stop()


@test
def nvme_software_commands(lab):
    """what is not offloaded: Compare, Write Zeroes, Dataset Management; and errors with exact status"""
    target = Target(lab)
    text = lab.a.nvme(
        "connect %s %s 1; D=$(disk %s 1); head -c 4096 /dev/urandom > /tmp/w; "
        "nvme write $D -s 8 -c 7 -z 4096 -d /tmp/w && nvme compare $D -s 8 -c 7 -z 4096 -d /tmp/w && echo same; "
        "head -c 4096 /dev/zero > /tmp/z; nvme compare $D -s 8 -c 7 -z 4096 -d /tmp/z 2>&1; "
        "nvme write-zeroes $D -n 1 -s 8 -c 7; nvme compare $D -s 8 -c 7 -z 4096 -d /tmp/z && echo zero; "
        "nvme dsm $D -n 1 -d -b 8 -s 8; nvme flush $D -n 1; nvme read $D -s 99999999 -c 0 -z 512 2>&1; "
        "disconnect %s" % (ADDRESS, NQN, NQN, NQN))
    check("same" in text and "zero" in text, text)
    check("Compare Failure" in text, "no Compare Failure:\n" + text)
    check("LBA Out of Range" in text, "no LBA Out of Range:\n" + text)
    target.stop()


@test
def nvme_host_dies_in_flight(lab):
    """B powers off with writes in flight: the target drops it, A's I/O goes on, B comes back"""
    target = Target(lab, namespaces=2)
    lab.b.nvme("connect %s %s 2; D=$(disk %s 2); "
               "(while :; do dd if=/dev/zero of=$D bs=64k count=200 oflag=direct 2>/dev/null; done) > /dev/null 2>&1 &"
               % (ADDRESS, NQN, NQN))
    time.sleep(1)
    lab.b.die()
    lab.b.boot()
    sums = lab.a.nvme("BIG=4; files %s %s 1 2" % (ADDRESS, NQN), 180)
    lab.b.booted()
    lab.b.nvme("connect %s %s 1; dd if=$(disk %s 2) of=/dev/null bs=4k count=4 iflag=direct || fail read; disconnect %s" % (
        ADDRESS, NQN, NQN, NQN))
    check(target.process.running(), "the target ended:\n" + target.process.tail())
    target.stop()
    check_image(target.images[0], sums)


@test
def nvme_target_killed_and_restarted(lab):
    """kill -9 under I/O, start again: the host reconnects by itself, no acknowledged write is lost"""
    target = Target(lab)
    lab.a.nvme("connect %s %s 2" % (ADDRESS, NQN))
    lab.a.nvme("rm -f /tmp/acked; D=$(disk %s 1); numbered_writes $D > /tmp/writer 2>&1 &" % NQN)

    def count():
        return int(lab.a.run("cat /tmp/acked 2>/dev/null | wc -l"))
    wait_for(lambda: count() > 10, 10, "ten writes")
    target.process.stop(signal.SIGKILL)
    before = count()
    time.sleep(1)
    target.start()
    wait_for(lambda: count() > before + 10, 60, "ten more writes after the restart", interval=0.5)
    lab.a.run("touch /tmp/stop; sleep 0.5")
    acked = int(lab.a.nvme("verify_numbered $(disk %s 1)" % NQN, 120).split()[-1])
    check(acked > before + 10, "%d writes, %d of them before the kill" % (acked, before))
    lab.a.nvme("disconnect " + NQN)
    target.stop()
    with open(target.images[0], "rb") as f:
        for i in range(acked):
            want = (("block %d\n" % i) * 1024).encode()[:4096]
            check_equal(f.read(4096) == want, True, "block %d in the image" % i)


@test
def nvme_loss_and_reordering(lab):
    """1 % loss and reordering in both directions: the same checksums"""
    target = Target(lab, megabytes=32, env={"SOFTHCA_FAULT": "seed=3,drop=0.01,reorder=0.01"})
    # rxe's requester sometimes stops for good after a NAK that a reordered packet overtook; the host then waits
    # for its I/O timeout and connects anew. Five seconds of that are as good as thirty
    timeout = "/sys/module/nvme_core/parameters/io_timeout"
    lab.a.nvme("echo 5 > " + timeout)
    lab.a.run("tc qdisc add dev eth0 root netem limit 10000 delay 1ms reorder 99% loss 1%")
    sums = lab.a.nvme("TRIES=4; MORE=1048577; BIG=2; files %s %s 1 1" % (ADDRESS, NQN), 300)
    lab.a.run("tc qdisc del dev eth0 root; echo 30 > " + timeout)
    target.stop()
    check_image(target.images[0], sums)


@test
def nvme_sigterm_disconnects_hosts(lab):
    """SIGTERM with a host connected and data written: the target ends in order, the data are in the image"""
    target = Target(lab)
    lab.a.nvme("connect %s %s 1; numbered_writes $(disk %s 1) 20" % (ADDRESS, NQN, NQN))
    count = int(lab.a.run("wc -l < /tmp/acked"))
    target.stop()
    with open(target.images[0], "rb") as f:
        for i in range(count):
            check_equal(f.read(4096)[:8], ("block %d\n" % i).encode()[:8], "block %d" % i)


@test
def nvme_discovery_subsystem_is_the_well_known_one(lab):
    target = Target(lab)
    text = lab.a.nvme("nvme connect -t rdma -a %s -s 4420 -n %s $HOST --duplicate-connect; "
                      "cat /sys/class/nvme/nvme*/subsysnqn; disconnect %s" % (ADDRESS, DISCOVERY_NQN, DISCOVERY_NQN))
    check(DISCOVERY_NQN in text, text)
    target.stop()
