# SPDX-License-Identifier: BSD-2-Clause
"""endurance.py: memory over many connects; large writes on deep queues while packets are lost."""
import os

from abuse import tool
from testing import Skip, add_test, check, check_equal, test


@test
def connect_loop(bench):
    """memory stays flat over 10,000 connects (SOFTHCA_TEST_CONNECTS: so many)"""
    if bench.sanitizer:
        raise Skip("a sanitizer's quarantine grows")
    count = os.environ.get("SOFTHCA_TEST_CONNECTS", "10000")
    text = bench.run(tool(bench, "connect_loop"), count, seconds=600)
    check_equal(text.count(count + " connects"), 2, "sides that came to their end")


def deep_queues(faults, writes, *sizes):
    """no write runs out of retries, all data arrive (situation T11). The sockets have what an unprivileged
    user gets"""
    def run(bench):
        text = bench.run(tool(bench, "deep_queues"), writes, *sizes, seconds=120,
                         env=bench.env(SOFTHCA_FAULT=faults))
        check("writes of" in text, text)
    return run


# 8 queue pairs of depth 128, 1 MiB a write, unless said otherwise
add_test("deep_queues", deep_queues("", "64"))
add_test("deep_queues_loss", deep_queues("seed=1,drop=0.001", "64"))
add_test("deep_queues_loss_and_reordering", deep_queues("seed=2,drop=0.005,reorder=0.005", "32"))
add_test("deep_queues_small_writes_loss", deep_queues("seed=3,drop=0.002", "2000", "16", "128", "4"))
