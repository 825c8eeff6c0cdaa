"""Just enough ELF to follow dependencies: shared libraries of programs, and kernel modules' modinfo."""
import struct
from pathlib import Path


class Elf:
    """The sections of a little-endian 64-bit ELF file. Raises ValueError for anything else."""

    def __init__(self, path):
        self.data = Path(path).read_bytes()
        if self.data[:6] != b"\x7fELF\x02\x01":
            raise ValueError(f"{path} is not a little-endian 64-bit ELF file")
        table, = struct.unpack_from("<Q", self.data, 0x28)
        entry_bytes, count, names_index = struct.unpack_from("<HHH", self.data, 0x3A)
        raw = [struct.unpack_from("<IIQQQQIIQQ", self.data, table + i * entry_bytes) for i in range(count)]
        names = self._slice(raw[names_index]) if raw else b""
        self.sections = {_text(names, s[0]): s for s in raw}

    def _slice(self, section):
        return self.data[section[4]:section[4] + section[5]]

    def section(self, name):
        """Bytes of a section; empty if there is none."""
        found = self.sections.get(name)
        return self._slice(found) if found else b""

    def needed(self):
        """Names of the shared libraries (DT_NEEDED) in link order."""
        strings = self.section(".dynstr")
        return [_text(strings, value) for tag, value in struct.iter_unpack("<QQ", self.section(".dynamic"))
                if tag == 1]

    def interpreter(self):
        """Path of the program interpreter, or an empty string."""
        return _text(self.section(".interp") or b"\0", 0)

    def modinfo(self):
        """A kernel module's modinfo as a list of (key, value)."""
        fields = [f.decode() for f in self.section(".modinfo").split(b"\0") if f]
        return [tuple(f.split("=", 1)) for f in fields if "=" in f]


def _text(table, offset):
    return table[offset:table.index(b"\0", offset)].decode()
