#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""test_symbols.py: the front ends' symbols.

    test_symbols.py stock LIBIBVERBS LIBRDMACM   the drop-in libraries have exactly the stock ones' default symbols,
                                                 names and version nodes, where those are installed
    test_symbols.py table LIBSOFTHCA SYMBOLS     libsofthca.so has what the table says; the generated "not supported"
                                                 stands in only for what the table says is not supported
    test_symbols.py preload PRELOAD SYMBOLS      the interposer has every public symbol, in its version; libc's without
"""
import glob
import subprocess
import sys

SKIP = 77
# a missing one is silently not interposed
LIBC = "access dlopen fopen open openat opendir readlink realpath scandir stat statx __realpath_chk".split()


def dynamic_symbols(path):
    """(name, version or "", type, binding, default) of what @path defines"""
    out = subprocess.run(["readelf", "--dyn-syms", "-W", path], stdout=subprocess.PIPE, check=True,
                         universal_newlines=True).stdout
    symbols = []
    for line in out.splitlines():
        w = line.split()
        if len(w) < 8 or not w[0].endswith(":") or not w[0][:-1].isdigit() or w[6] in ("UND", "ABS"):
            continue
        name, _, version = w[7].partition("@")
        symbols.append((name, version.lstrip("@"), w[3], w[4], version.startswith("@") or not version))
    return symbols


def parents(path):
    out = subprocess.run(["readelf", "-V", "-W", path], stdout=subprocess.PIPE, check=True,
                         universal_newlines=True).stdout
    chain, node = {}, None
    for line in out.partition("Version needs")[0].splitlines():
        if " Name: " in line:
            node = line.split()[-1]
        elif " Parent " in line:
            chain[node] = line.split()[-1]
    return chain


def table(path):
    return [line.split("#")[0].split() for line in open(path) if line.split("#")[0].strip()]


def compare(what, got, want):
    missing, extra = sorted(want - got), sorted(got - want)
    for x in missing:
        print("%s: missing %s" % (what, x))
    for x in extra:
        print("%s: too many %s" % (what, x))
    return not missing and not extra


def test_stock(ours):
    ok = True
    for path in ours:
        name = path.split("/")[-1]
        stock = glob.glob("/usr/lib/*-linux-gnu/" + name)
        if not stock:
            print(name + " is not installed")
            sys.exit(SKIP)
        got = {s[:3] for s in dynamic_symbols(path) if s[4]}
        want = {s[:3] for s in dynamic_symbols(stock[0]) if s[4]}
        ok &= compare(name, got, want)
        ok &= compare(name + " node", set(parents(path).items()), set(parents(stock[0]).items()))
    return ok


def test_table(core, symbols):
    rows = table(symbols)
    exported = dynamic_symbols(core)

    def name(row):
        return row[2] if row[3] == "own" else "softhca_" + row[2]
    every = {name(r) for r in rows if r[3] in ("core", "none", "own")}
    unsupported = {name(r) for r in rows if r[3] == "none"}
    ok = compare("libsofthca.so", {s[0] for s in exported}, every)
    for s in sorted({s[0] for s in exported if s[3] == "WEAK"} - unsupported):
        print("libsofthca.so: no room defines " + s)
        ok = False
    return ok


def test_preload(library, symbols):
    got = {(s[0], s[1]) for s in dynamic_symbols(library)}
    want = {(r[2], r[1]) for r in table(symbols) if r[5] != "-"} | {(n, "") for n in LIBC}
    missing = want - got
    for x in sorted(missing):
        print("interposer: missing %s@%s" % x)
    return not missing


def main():
    what, args = sys.argv[1], sys.argv[2:]
    ok = {"stock": lambda: test_stock(args), "table": lambda: test_table(*args),
          "preload": lambda: test_preload(*args)}[what]()
    sys.exit(0 if ok else 1)


main()
