#!/usr/bin/env python3
"""Enforces the structure of the tree: who may include whom, where DPDK and casts may stand, and sizes.

Usage: layering.py [SOURCE_ROOT]
Prints one line per offence, "file:line: what; why", and fails if there is any.
"""
import re
import sys

import tree

# layer: the layers whose headers it may include besides its own
MAY_INCLUDE = {
    "base": (),
    "wire": ("base",),
    "mem": ("base",),
    "port": ("base",),
    "transport": ("base", "wire", "mem", "port"),
    "engine": ("base", "wire", "mem", "port", "transport"),
    "config": ("base",),
    "verbs": ("base", "mem", "transport", "engine", "config"),
    "cm": ("base", "verbs"),
    "abi": ("base",),
    "drivers": ("base", "port"),
    "apps": (),
    "include": (),
}

# layer: the public headers it may include ("*": all of them)
VALUES = ("types", "result")
# values and enums, no objects
PLAIN = VALUES + ("access", "ah_attr", "async_event", "config", "ece", "qp_attr", "wc", "wr")
PUBLIC = {
    "base": VALUES,
    "wire": VALUES,
    "mem": VALUES + ("access", "wr"),
    "port": VALUES,
    "transport": PLAIN,
    "engine": PLAIN,
    "config": VALUES + ("config",),
    "verbs": "*",
    "cm": "*",
    "abi": "*",
    "drivers": VALUES,
    "apps": "*",
    "include": "*",
}

# file: single headers that it may include beyond its layer's
EXTRA = {
    "lib/verbs/device_impl.h": ("port/port.h",),
    "lib/verbs/device.cc": ("drivers/registry.h", "port/port.h"),
    "lib/verbs/raw_port.cc": ("drivers/registry.h", "port/port.h"),
    "lib/verbs/loop_counters.h": ("port/port.h",),
    "apps/stat/page.cc": ("lib/verbs/stat_layout.h",),  # what writer and reader agree on
    "apps/stat/explain.cc": ("lib/base/counters.h", "lib/port/port.h"),  # names and meanings
    "apps/bench/stage.cc": ("lib/wire/crc32.h",),  # what is measured without ICRC
}
CM_WIRE = ("wire/mad.h", "wire/cm_mad.h")

MAY_USE_DPDK = ("drivers/dpdk/", "lib/mem/hugepage.cc", "lib/engine/lcore.cc", "lib/engine/telemetry.cc")
MAY_USE_RDMA_CORE = ("lib/abi/",)
MAY_CAST = ("drivers/dpdk/", "drivers/shm/", "lib/mem/", "lib/abi/", "apps/")
NO_CLOCK = ("lib/wire/", "lib/mem/", "lib/port/", "lib/transport/")

MAX_FILE_LINES = 700
MAX_COLUMNS = 110
MAX_FUNCTION_LINES = 60
MAX_TEST_CASE_LINES = 80  # a list of steps or of samples

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
CLOCK = re.compile(r"\b(clock_gettime|gettimeofday|(?:steady|system|high_resolution)_clock|__rdtscp?|_rdtsc|"
                   r"s?rand|random_device)\b")
COMMENT_OR_LITERAL = re.compile(
    r"""//[^\n]*|/\*.*?\*/|R"([^(\s]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'""",
    re.S)


def layer_of(path):
    """The layer that a file belongs to; None for tests and benchmarks, which may look anywhere."""
    parts = path.split("/")
    if parts[0] == "lib" and len(parts) > 2:
        return parts[1]
    return parts[0] if parts[0] in ("drivers", "apps", "include") else None


def header_layer(header):
    """The layer of a header that is named from the root or from lib/; None for any other name."""
    first = header.split("/")[0]
    return first if first in MAY_INCLUDE and "/" in header else None


def include_offence(path, layer, quote, header):
    """Why `path` may not include `header`, or None."""
    if re.match(r"rte_\w+\.h$", header):
        return None if path.startswith(MAY_USE_DPDK) else "DPDK is known to drivers/dpdk only"
    if header.startswith(("infiniband/", "rdma/")):
        return None if path.startswith(MAY_USE_RDMA_CORE) else "rdma-core is known to lib/abi only"
    if quote == "<":
        return "the project's headers are included with quotes" if header.startswith("uroce/") else None
    if header in EXTRA.get(path, ()) or (layer == "cm" and header in CM_WIRE):
        return None
    if header.startswith("uroce/"):
        allowed = PUBLIC[layer]
        name = header[len("uroce/"):].removesuffix(".h")
        if allowed == "*" or name in allowed:
            return None
        return f"{layer} may not know this part of the public API"
    target = header_layer(header)
    if target is None:
        return "headers are named from the root, include/ or lib/"
    if target == layer or target in MAY_INCLUDE[layer]:
        return None
    return f"{layer} may include {', '.join((layer,) + MAY_INCLUDE[layer])}"


def without_comments_and_literals(text):
    """The same text with comments and literals blanked, every line break in its place."""
    return COMMENT_OR_LITERAL.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)


def functions(code):
    """(first line, last line) of each outermost function body with its head; `code` is free of literals."""
    scopes = []  # (is a function, first line of the head)
    head, head_line, line = "", None, 1
    for char in code:
        if char == "{":
            declares_scope = re.search(r"\b(namespace|class|struct|union|enum|extern)\b", head)
            initialises = re.search(r"[=,(]\s*$|\breturn\s*$", head)
            is_function = bool(")" in head and not declares_scope and not initialises)
            is_outermost = not any(is_outer_function for is_outer_function, _ in scopes)
            scopes.append((is_function and is_outermost, head_line or line))
            head, head_line = "", None
        elif char == "}":
            if scopes:
                is_function, first = scopes.pop()
                if is_function:
                    yield first, line
            head, head_line = "", None
        elif char == ";":
            head, head_line = "", None
        else:
            if not char.isspace() and head_line is None:
                head_line = line
            head += char
        line += char == "\n"


def function_offences(path, code):
    lines = code.split("\n")
    for first, last in functions(code):
        flat_cases = sum(bool(re.match(r"\s*case\b.*;\s*$", text)) for text in lines[first - 1:last])
        size = last - first + 1 - flat_cases
        most = MAX_TEST_CASE_LINES if lines[first - 1].startswith("TEST_CASE") else MAX_FUNCTION_LINES
        if size > most:
            yield f"{path}:{first}: function of {size} lines; at most {most}"


def code_offences(path, text):
    """Offences that only C and C++ sources can commit."""
    layer = layer_of(path)
    if layer is not None and layer not in MAY_INCLUDE:
        yield f"{path}:1: layer '{layer}' is unknown to test/layering.py"
        return
    code = without_comments_and_literals(text)
    if layer is not None:
        for number, line in enumerate(text.split("\n"), 1):
            include = INCLUDE.match(line)
            why = include and include_offence(path, layer, *include.groups())
            if why:
                yield f"{path}:{number}: includes {include.group(2)}; {why}"
        for number, line in enumerate(code.split("\n"), 1):
            if "reinterpret_cast" in line and not path.startswith(MAY_CAST):
                yield f"{path}:{number}: reinterpret_cast; allowed in {' '.join(MAY_CAST)} only"
            clock = CLOCK.search(line)
            if clock and path.startswith(NO_CLOCK):
                yield f"{path}:{number}: {clock.group()}; below engine time and chance are arguments"
    yield from function_offences(path, code)


def size_offences(path, text):
    lines = text.split("\n")
    if len(lines) - 1 > MAX_FILE_LINES:
        yield f"{path}:1: {len(lines) - 1} lines; at most {MAX_FILE_LINES}, split by topic"
    for number, line in enumerate(lines, 1):
        if len(line) > MAX_COLUMNS:
            yield f"{path}:{number}: {len(line)} columns; at most {MAX_COLUMNS}"


def main():
    root = tree.root_of(sys.argv)
    offences = []
    files = tree.source_files(root, tree.CPP + (".py",))
    for file in files:
        path = file.relative_to(root).as_posix()
        text = file.read_text(encoding="utf-8")
        offences += size_offences(path, text)
        if file.suffix in tree.CPP:
            offences += code_offences(path, text)
    print("\n".join(offences) if offences else f"{len(files)} files keep to the structure")
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())
