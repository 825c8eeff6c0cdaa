"""Writes initramfs archives: the "newc" cpio format, everything owned by root."""
import gzip
import os
import stat
from pathlib import Path


def pack(root, archive):
    """Packs the tree below `root` into a gzipped archive, which appears under its name only when complete."""
    unfinished = Path(f"{archive}.{os.getpid()}.tmp")
    with gzip.open(unfinished, "wb", compresslevel=1) as out:
        inode = 0
        for path in sorted(Path(root).rglob("*")):
            inode += 1
            _entry(out, inode, str(path.relative_to(root)), os.lstat(path).st_mode, _content(path))
        _entry(out, 0, "TRAILER!!!", 0, b"")
    unfinished.replace(archive)


def _content(path):
    if path.is_symlink():
        return os.readlink(path).encode()
    return path.read_bytes() if path.is_file() else b""


def _entry(out, inode, name, mode, content):
    links = 2 if stat.S_ISDIR(mode) else 1
    name_bytes = name.encode() + b"\0"
    fields = (inode, mode, 0, 0, links, 0, len(content), 0, 0, 0, 0, len(name_bytes), 0)
    header = b"070701" + b"".join(b"%08x" % f for f in fields)
    out.write(_padded(header + name_bytes) + _padded(content))


def _padded(data):
    return data + bytes(-len(data) % 4)
