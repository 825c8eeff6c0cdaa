#!/usr/bin/env python3
"""layering.py finds what it must find, and nothing in code that keeps the rules."""
import unittest

import layering


def found(path, text):
    return [offence.split(":", 1)[1] for offence in
            list(layering.code_offences(path, text)) + list(layering.size_offences(path, text))]


class Layering(unittest.TestCase):
    def offends(self, path, text, expected):
        offences = found(path, text)
        self.assertEqual(len(offences), 1, offences)
        self.assertIn(expected, offences[0])

    def keeps(self, path, text):
        self.assertEqual(found(path, text), [])

    def test_lower_layers_do_not_see_higher_ones(self):
        self.offends("lib/wire/bth.h", '#include "transport/qp.h"\n', "1: includes transport/qp.h")
        self.offends("lib/mem/region.h", '\n#include "wire/bth.h"\n', "2: includes wire/bth.h")
        self.offends("drivers/shm/port.cc", '#include "wire/bth.h"\n', "drivers may include")
        self.offends("apps/demo/demo.cc", '#include "engine/poll_loop.h"\n', "apps may include apps")
        self.offends("lib/verbs/qp.cc", '#include "wire/bth.h"\n', "verbs may include")
        self.keeps("lib/transport/qp.h", '#include "wire/bth.h"\n#include "uroce/qp_attr.h"\n')

    def test_lower_layers_see_plain_public_headers_only(self):
        self.offends("lib/transport/qp.h", '#include "uroce/device.h"\n', "public API")
        self.offends("lib/wire/bth.h", '#include "uroce/wr.h"\n', "public API")
        self.keeps("lib/base/ring.h", '#include "uroce/types.h"\n#include <array>\n')

    def test_only_the_device_and_the_raw_port_open_drivers(self):
        self.keeps("lib/verbs/device.cc", '#include "drivers/registry.h"\n')
        self.offends("lib/verbs/qp.cc", '#include "drivers/registry.h"\n', "verbs may include")

    def test_headers_are_named_from_the_root(self):
        self.offends("lib/wire/bth.cc", '#include "bth.h"\n', "named from the root")
        self.offends("lib/wire/bth.cc", "#include <uroce/types.h>\n", "with quotes")

    def test_dpdk_and_rdma_core_stay_in_their_places(self):
        self.offends("lib/transport/qp.cc", "#include <rte_mbuf.h>\n", "DPDK is known to")
        self.offends("lib/engine/poll_loop.cc", "#include <infiniband/verbs.h>\n", "rdma-core is known to")
        self.keeps("drivers/dpdk/port.cc", "#include <rte_mbuf.h>\n")

    def test_casts_and_clocks_stay_in_their_places(self):
        self.offends("lib/wire/icrc.cc", "auto x = reinterpret_cast<int*>(y);\n", "reinterpret_cast")
        self.offends("lib/transport/qp.cc", "auto t = std::chrono::steady_clock::now();\n", "steady_clock")
        self.keeps("lib/mem/mr.cc", "auto x = reinterpret_cast<int*>(y);  // steady_clock\n")

    def test_sizes(self):
        self.offends("lib/base/a.h", "//\n" * 701, "701 lines")
        self.offends("lib/base/a.h", "int x = 1;" + " " * 101 + "\n", "111 columns")

    def test_long_functions_are_found_where_they_begin(self):
        body = "  ++x;\n" * 60
        head = "namespace n {\nint x = 1'000'000;\nvoid f(int x) {\n"
        self.offends("lib/base/a.cc", head + body + "}\n}\n", "3: function of 62 lines")
        self.offends("lib/base/a.h", "class A {\n  A(int x)\n      : x_(x) {\n" + body + "  }\n};\n",
                     "2: function of 63 lines")

    def test_classes_tables_and_flat_switches_may_be_long(self):
        self.keeps("lib/base/a.h", "struct A {\n" + "  void f() { g(); }\n" * 80 + "};\n")
        rows = "    Row{.a = f(1)},\n" * 80
        self.keeps("lib/base/a.h", "constexpr std::array kRows = {\n" + rows + "};\n")
        cases = "    case E::k: return g({1});\n" * 80
        self.keeps("lib/base/a.cc", "int f(E e) {\n  switch (e) {\n" + cases + "  }\n  return 0;\n}\n")


if __name__ == "__main__":
    unittest.main()
