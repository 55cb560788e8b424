#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Interop tests: SoftHCA against stock Linux guests (QEMU, Debian's kernel: rdma_rxe, nvme-rdma), in a
network namespace of their own. Needs root for the namespace; SoftHCA itself runs as nobody.

    tests/interop/run.py [--build DIR] [--list] [--keep] [NAME...]
"""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "../lib")]
from testing import arguments, main  # noqa: E402
from lab import Lab  # noqa: E402
import test_nvme  # noqa: E402,F401
import test_programs  # noqa: E402,F401

if __name__ == "__main__":
    options = arguments(__doc__).parse_args()
    if os.getuid() != 0 and not options.list:
        sys.exit("interop: needs root for a network namespace\n0 passed, 1 failed")
    main(options, lambda: Lab(options.build), lambda lab: lab.clean())
