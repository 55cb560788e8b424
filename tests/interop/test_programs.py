# SPDX-License-Identifier: BSD-2-Clause
"""test_programs.py: the verbs programs of tests/system, one end on SoftHCA, the other on a guest's rxe,
in both directions."""
import programs
from lab import ADDRESS
from testing import add_test, check, check_equal, listening, wait_for

DEVICE = "softhca_br0"
GUEST_DEVICE, GUEST_GID = "rxe0", 1  # GID 0 is the link-local address
PORT = 18600


def by_cm(row):
    return "rping" in row[1] or "-R" in row[1].split()


def our_values(lab, peer):
    text = lab.run("ibv_devinfo", "-v", "-d", DEVICE)
    index = programs.gid_index(text, ADDRESS)
    check(index is not None, "no GID for %s:\n%s" % (ADDRESS, text))
    return dict(dev=DEVICE, gid=index, addr=peer, port=next_port(lab))


def next_port(lab):
    lab.port = getattr(lab, "port", PORT) + 1
    return lab.port


def server_here(row):
    def run(lab):
        values = our_values(lab, ADDRESS)
        server = lab.start(*programs.command(row, True, **values))
        if by_cm(row):
            lab.settle(server)
        else:
            wait_for(lambda: listening(values["port"], lab.prefix) or not server.running(), 10, "server listens")
        theirs = dict(values, dev=GUEST_DEVICE, gid=GUEST_GID)
        lab.a.run("timeout 50 " + " ".join(programs.command(row, False, **theirs)), 60)
        check_equal(server.wait(20), 0, "the server's exit status")
    return run


def client_here(row):
    def run(lab):
        values = our_values(lab, lab.a.address)
        theirs = dict(values, dev=GUEST_DEVICE, gid=GUEST_GID)
        lab.a.run("rm -f /tmp/status; (timeout 50 %s > /tmp/server 2>&1; echo $? > /tmp/status) & sleep 1.2"
                  % " ".join(programs.command(row, True, **theirs)))
        lab.run(*programs.command(row, False, **values), seconds=60)
        status = wait_for(lambda: lab.a.run("cat /tmp/status 2>/dev/null; true").strip(), 20, "the guest's server ends")
        check_equal(status, "0", "the guest's server's exit status:\n" + lab.a.run("tail -5 /tmp/server"))
    return run


for r in programs.PAIRS:
    if r[0] in programs.GUEST_PAIRS:
        add_test("rxe_client_" + r[0], server_here(programs.guest_row(r)))
        add_test("rxe_server_" + r[0], client_here(programs.guest_row(r)))
