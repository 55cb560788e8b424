# SPDX-License-Identifier: BSD-2-Clause
"""programs.py: Debian's verbs programs in pairs. A row is a program's name in the test, its arguments
for both ends, and how the client is told where the server is. {dev} {gid} {port} {addr} are filled in."""

PINGPONG = "-d {dev} -g {gid} -p {port}"
PERFTEST = "-d {dev} -x {gid} -F -p {port}"
CONNECTED = "-R -F -p {port}"  # perftest over the RDMA CM finds its device by the address

PAIRS = [
    # name                   both ends                                                server adds    client adds
    ("rc_pingpong",          "ibv_rc_pingpong " + PINGPONG + " -c",                   "",            "{addr}"),
    ("rc_pingpong_events",   "ibv_rc_pingpong " + PINGPONG + " -e -n 300",            "",            "{addr}"),
    ("rc_pingpong_1_byte",   "ibv_rc_pingpong " + PINGPONG + " -s 1 -n 500",          "",            "{addr}"),
    ("rc_pingpong_1_mib",    "ibv_rc_pingpong " + PINGPONG + " -s 1048576 -n 20 -c",  "",            "{addr}"),
    ("rc_pingpong_mtu_256",  "ibv_rc_pingpong " + PINGPONG + " -m 256 -n 200 -c",     "",            "{addr}"),
    ("rc_pingpong_mtu_4096", "ibv_rc_pingpong " + PINGPONG + " -m 4096 -n 200 -c",    "",            "{addr}"),
    ("rc_pingpong_wr_api",   "ibv_rc_pingpong " + PINGPONG + " -N -n 200",            "",            "{addr}"),
    ("srq_pingpong",         "ibv_srq_pingpong " + PINGPONG + " -c",                  "",            "{addr}"),
    ("srq_pingpong_events",  "ibv_srq_pingpong " + PINGPONG + " -e -q 4 -n 200",      "",            "{addr}"),
    ("send_bw",              "ib_send_bw " + PERFTEST + " -n 1000",                   "",            "{addr}"),
    ("send_bw_events",       "ib_send_bw " + PERFTEST + " -n 500 -e",                 "",            "{addr}"),
    ("send_bw_4_qps",        "ib_send_bw " + PERFTEST + " -n 200 -q 4",               "",            "{addr}"),
    ("send_bw_both_ways",    "ib_send_bw " + PERFTEST + " -n 200 -b",                 "",            "{addr}"),
    ("send_bw_srq",          "ib_send_bw " + PERFTEST + " -n 200 --use-srq -q 2",     "",            "{addr}"),
    ("send_bw_cm",           "ib_send_bw " + CONNECTED + " -n 200",                   "",            "{addr}"),
    ("write_bw",             "ib_write_bw " + PERFTEST + " -n 1000",                  "",            "{addr}"),
    ("write_bw_1_mib",       "ib_write_bw " + PERFTEST + " -n 50 -s 1048576",         "",            "{addr}"),
    ("write_bw_cm",          "ib_write_bw " + CONNECTED + " -n 200",                  "",            "{addr}"),
    ("read_bw",              "ib_read_bw " + PERFTEST + " -n 1000",                   "",            "{addr}"),
    ("read_bw_events",       "ib_read_bw " + PERFTEST + " -n 200 -e",                 "",            "{addr}"),
    ("read_bw_cm",           "ib_read_bw " + CONNECTED + " -n 200",                   "",            "{addr}"),
    ("send_lat",             "ib_send_lat " + PERFTEST + " -n 500",                   "",            "{addr}"),
    ("send_lat_events",      "ib_send_lat " + PERFTEST + " -n 200 -e",                "",            "{addr}"),
    ("send_lat_cm",          "ib_send_lat " + CONNECTED + " -n 200",                  "",            "{addr}"),
    ("write_lat",            "ib_write_lat " + PERFTEST + " -n 500",                  "",            "{addr}"),
    ("write_lat_cm",         "ib_write_lat " + CONNECTED + " -n 200",                 "",            "{addr}"),
    ("read_lat",             "ib_read_lat " + PERFTEST + " -n 500",                   "",            "{addr}"),
    ("read_lat_cm",          "ib_read_lat " + CONNECTED + " -n 200",                  "",            "{addr}"),
    ("rping",                "rping -a {addr} -p {port} -C 20 -v -V -S 4000",         "-s",          "-c"),
    ("rping_events_of_many", "rping -a {addr} -p {port} -C 200 -S 64",                "-s",          "-c"),
]

# against rxe under emulation: what exercises both sides' protocol, not how fast
GUEST_PAIRS = ["rc_pingpong", "rc_pingpong_mtu_4096", "srq_pingpong", "send_bw", "send_bw_cm", "write_bw",
               "write_bw_cm", "read_bw", "read_bw_cm", "send_lat", "send_lat_cm", "write_lat", "write_lat_cm", "read_lat",
               "read_lat_cm", "rping"]


def command(row, server, **values):
    """one end of a pair, as a list of words"""
    return (row[1] + " " + (row[2] if server else row[3])).format(**values).split()


def guest_row(row):
    """the row with a fifth of the iterations: a guest under emulation has 2 ms for what takes us 10 us"""
    words = row[1].split()
    if "-n" in words:
        i = words.index("-n") + 1
        words[i] = str(max(20, int(words[i]) // 5))
    return (row[0], " ".join(words)) + row[2:]


def gid_index(devinfo, address):
    """index of @address in the GID table that ibv_devinfo -v prints, or None"""
    for line in devinfo.splitlines():
        if "GID[" not in line:
            continue
        index, _, gid = line.split("GID[", 1)[1].partition("]:")
        if gid.strip().split(",")[0] in (address, "::ffff:" + address):
            return int(index)
    return None
