#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""generate.py: makes the front ends' sources from symbols.txt (see there for the columns).

    generate.py WHAT symbols.txt CPU OUTPUT

WHAT is one of
    core-map            version script of libsofthca.so
    core-unsupported    C: weak "not supported" definitions of what no room of the core defines
    LIB-map             version script of the drop-in libLIB.so.1
    LIB-entries         assembly: LIB's entry points in the drop-in, jumps into libsofthca.so
    ibverbs-stubs       C: the private symbols that hardware providers want
    preload-map         version script of the interposer
    preload-entries     assembly: the interposer's entry points, jumps to whoever owns the object
    preload-table       C: the interposer's table, in the order of its entry points
"""
import collections
import sys

Symbol = collections.namedtuple("Symbol", "library version name kind failure route")
KINDS = {"core", "none", "stub", "object", "own"}
FAILURES = {"errno", "minus1", "neg", "null", "zero", "void", "-"}
ROUTES = {"context", "device", "object", "core", "special", "-"}

# ibv_query_gid_type's node has the provider ABI's number in it, which differs between releases of
# rdma-core; a program asks for the one it was linked with
PRIVATE_NODES = [33, 34, 57, 59, 64, 65]


def read_table(path):
    table = []
    for number, line in enumerate(open(path), 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        if len(words) != 6 or words[3] not in KINDS or words[4] not in FAILURES or words[5] not in ROUTES:
            sys.exit("%s:%d: not a row: %s" % (path, number, line.rstrip()))
        table.append(Symbol(*words))
    return table


def version_script(symbols, local=True):
    nodes = collections.OrderedDict()
    for s in symbols:
        nodes.setdefault(s.version, []).append(s.name)
    out, parent = [], None
    for node, names in nodes.items():
        private = "PRIVATE" in node
        out.append("%s {\n\tglobal:\n%s" % (node, "".join("\t\t%s;\n" % n for n in sorted(names))))
        if local and parent is None:
            out.append("\tlocal: *;\n")
        out.append("}%s;\n" % (" " + parent if parent and not private else ""))
        if not private:
            parent = node
    return "".join(out)


FAIL_BODY = {
    "errno": ("int", "return EOPNOTSUPP;"),
    "minus1": ("int", "errno = EOPNOTSUPP;\n\treturn -1;"),
    "neg": ("int", "return -EOPNOTSUPP;"),
    "null": ("void *", "errno = EOPNOTSUPP;\n\treturn NULL;"),
    "zero": ("unsigned long", "return 0;"),
    "void": ("void", ""),
}


def not_supported(name, failure, attributes):
    kind, body = FAIL_BODY[failure]
    kind = kind if kind.endswith("*") else kind + " "
    # no prototype on purpose: the caller's arguments are of no interest
    return "%s %s%s(void);\n%s %s%s(void)\n{\n\t%s\n}\n" % (
        attributes, kind, name, attributes, kind, name, body)


def core_name(s):
    return s.name if s.kind == "own" else "softhca_" + s.name


def core_unsupported(table):
    out = ["#include <errno.h>\n#include <stddef.h>\n"]
    for s in table:
        if s.kind in ("core", "none", "own"):
            out.append(not_supported(core_name(s), s.failure,
                                     '__attribute__((weak, visibility("default")))'))
    return "\n".join(out)


def stubs(table):
    out = ["#include <errno.h>\n#include <stddef.h>\n"]
    for s in table:
        if s.kind == "object":
            out.append('extern char %s;\n__attribute__((visibility("default"))) char %s;\n' % (s.name, s.name))
        elif s.kind == "stub":
            out.append(not_supported(s.name, s.failure, '__attribute__((visibility("default")))'))
    return "\n".join(out)


JUMP = {
    "x86_64": "\tendbr64\n\tjmp *{0}@GOTPCREL(%rip)\n",
    "aarch64": "\thint #34\n\tb {0}\n",  # bti c
}
# the interposer: number of the symbol to the register that a function call may clobber
INDEXED = {
    "x86_64": "\tendbr64\n\tmovl ${0}, %r11d\n\tjmp preload_dispatch\n",
    "aarch64": "\thint #34\n\tmov x16, #{0}\n\tb preload_dispatch\n",
}


# asks preload_target() and jumps there with all argument registers as they were
DISPATCH = {
    "x86_64": """
\t.type preload_dispatch, %function
preload_dispatch:
\t.cfi_startproc
\tpush %rax; push %rdi; push %rsi; push %rdx; push %rcx; push %r8; push %r9
\t.cfi_adjust_cfa_offset 56
\tmov %rdi, %rsi
\tmov %r11d, %edi
\tcall preload_target
\tmov %rax, %r11
\tpop %r9; pop %r8; pop %rcx; pop %rdx; pop %rsi; pop %rdi; pop %rax
\t.cfi_adjust_cfa_offset -56
\tjmp *%r11
\t.cfi_endproc
""",
    "aarch64": """
\t.type preload_dispatch, %function
preload_dispatch:
\t.cfi_startproc
\tstp x29, x30, [sp, #-96]!
\t.cfi_adjust_cfa_offset 96
\t.cfi_offset x29, -96
\t.cfi_offset x30, -88
\tstp x0, x1, [sp, #16]
\tstp x2, x3, [sp, #32]
\tstp x4, x5, [sp, #48]
\tstp x6, x7, [sp, #64]
\tstr x8, [sp, #80]
\tmov x1, x0
\tmov w0, w16
\tbl preload_target
\tmov x16, x0
\tldp x0, x1, [sp, #16]
\tldp x2, x3, [sp, #32]
\tldp x4, x5, [sp, #48]
\tldp x6, x7, [sp, #64]
\tldr x8, [sp, #80]
\tldp x29, x30, [sp], #96
\t.cfi_adjust_cfa_offset -96
\tbr x16
\t.cfi_endproc
""",
}


def entry(name, code):
    return "\t.globl %s\n\t.type %s, %%function\n%s:\n%s\t.size %s, . - %s\n" % (name, name, name, code, name, name)


NO_EXEC_STACK = '\t.section .note.GNU-stack, "", %progbits\n'


def entries(symbols, cpu):
    if cpu not in JUMP:
        sys.exit("generate.py: no jump instruction known for CPU family " + cpu)
    return "\t.text\n" + "".join(entry(s.name, JUMP[cpu].format(core_name(s))) for s in symbols) + NO_EXEC_STACK


def preload_symbols(table):
    return [s for s in table if s.route != "-"]


def preload_map(table):
    table = preload_symbols(table)
    text = "".join(version_script([s for s in table if s.library == library and "PRIVATE" not in s.version],
                                  local=False) for library in ("ibverbs", "rdmacm"))
    # the definitions are ibv_query_gid_type@IBVERBS_PRIVATE_NN by .symver; the nodes must exist
    return text + "".join("IBVERBS_PRIVATE_%d {\n};\n" % n for n in PRIVATE_NODES)


def preload_entries(table, cpu):
    out = ["\t.text\n"]
    for i, s in enumerate(preload_symbols(table)):
        if "PRIVATE" not in s.version:
            if s.route == "special":
                out.append(entry(s.name, JUMP[cpu].format("preload_" + s.name)))
            else:
                out.append(entry(s.name, INDEXED[cpu].format(i)))
            continue
        for n in PRIVATE_NODES:
            alias = "preload_%s_%d" % (s.name, n)
            out.append(entry(alias, INDEXED[cpu].format(i)))
            out.append("\t.symver %s, %s@IBVERBS_PRIVATE_%d, remove\n" % (alias, s.name, n))
    # glibc takes the caller of dlopen() from the return address: it too must be jumped to
    out.append(entry("dlopen", INDEXED[cpu].format(len(preload_symbols(table)))))
    return "".join(out) + DISPATCH[cpu] + NO_EXEC_STACK


def preload_table(table):
    symbols = preload_symbols(table)
    out = ['#include "front/preload.h"\n']
    out += ["extern void softhca_%s(void);\n" % s.name for s in symbols]
    out.append("struct preload_symbol preload_table[] = {\n")
    for s in symbols:
        out.append('\t{ "%s", "%s", "lib%s.so.1", ROUTE_%s, softhca_%s, NULL },\n' % (
            s.name, s.version, s.library, s.route.upper(), s.name))
    out.append("};\nconst unsigned int preload_table_len = %d;\n" % len(symbols))
    return "".join(out)


def main():
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    what, path, cpu, output = sys.argv[1:]
    table = read_table(path)
    library, _, part = what.partition("-")
    mine = [s for s in table if s.library == library]
    if what == "core-map":
        text = "SOFTHCA_0 {\n\tglobal:\n%s\tlocal: *;\n};\n" % "".join(
            "\t\t%s;\n" % core_name(s) for s in table if s.kind in ("core", "none", "own"))
    elif what == "core-unsupported":
        text = core_unsupported(table)
    elif what == "ibverbs-stubs":
        text = stubs(table)
    elif what == "preload-map":
        text = preload_map(table)
    elif what == "preload-entries":
        text = preload_entries(table, cpu)
    elif what == "preload-table":
        text = preload_table(table)
    elif part == "map":
        text = version_script(mine)
    elif part == "entries":
        text = entries([s for s in mine if s.kind in ("core", "none")], cpu)
    else:
        sys.exit(__doc__)
    with open(output, "w") as f:
        f.write(text)


main()
