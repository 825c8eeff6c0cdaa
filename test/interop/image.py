"""The guest's kernel and initramfs, made from Debian packages and kept in the cache by package versions."""
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import cpio
from elf import Elf
from packages import CACHE, Apt, Package, Unavailable

HERE = Path(__file__).resolve().parent
KERNEL_METAPACKAGE = "linux-image-amd64"
PACKAGES = ("busybox-static", "dash", "iproute2", "ethtool", "ibverbs-utils", "ibverbs-providers", "perftest",
            "rdmacm-utils", "libibverbs1", "libc6", "libgcc-s1")
PROGRAMS = (["bin/dash", "bin/ip", "usr/bin/rdma", "sbin/ethtool"] +
            [f"usr/bin/ibv_{name}" for name in ("devices", "devinfo", "rc_pingpong",
                                        "uc_pingpong", "ud_pingpong", "srq_pingpong")] +
            [f"usr/bin/ib_{verb}_{what}" for verb in ("send", "write", "read", "atomic")
             for what in ("bw", "lat")] +
            [f"usr/bin/{name}" for name in ("rping", "ucmatose", "udaddy", "mckey", "cmtime", "rstream",
                                        "riostream", "rcopy")])
OPENED_LIBRARIES = ("libgcc_s.so.1",)  # by the C library, when a thread ends itself
LIBRARY_FOLDERS = ("usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu", "usr/lib", "lib", "lib64")
MODULES = ("virtio_pci", "virtio_net", "virtio_console", "virtio_rng", "crc32_generic", "crc32c_generic",
           "ib_uverbs", "rdma_ucm", "rdma_rxe")
BUILD_SECONDS = 600
IMAGES_KEPT = 3


@dataclass(frozen=True)
class Image:
    """What QEMU boots."""
    kernel: Path
    initrd: Path


def prepare():
    """The image for the present package versions, built if the cache does not hold it.

    Raises Unavailable when this machine cannot provide it.
    """
    if platform.machine() != "x86_64":
        raise Unavailable(f"the guest is for x86_64 machines, this is {platform.machine()}")
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w") as lock:
        _lock(lock)
        apt = Apt()
        try:
            kernel = Package(apt, apt.first_dependency(KERNEL_METAPACKAGE), prefer_installed=False)
            packages = [Package(apt, name) for name in PACKAGES]
        except Unavailable:
            return _newest()
        folder = CACHE / f"image-{_key(kernel, packages)}"
        if not folder.exists():
            _build(folder, apt, kernel, packages)
        os.utime(folder)
        return _image(folder)


def _lock(lock):
    deadline = time.monotonic() + BUILD_SECONDS
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise Unavailable(f"another process holds {CACHE}/lock for {BUILD_SECONDS} s") from None
            time.sleep(0.2)


def _image(folder):
    return Image(folder / "vmlinuz", folder / "initrd.gz")


def _newest():
    """Without package lists: the image used last, if there is one."""
    images = _by_age()
    if not images:
        raise Unavailable(f"no package lists can be had (apt-get update) and {CACHE} holds no image")
    return _image(images[-1])


def _by_age():
    """The images in the cache, the one used last at the end."""
    return sorted(CACHE.glob("image-*"), key=lambda folder: folder.stat().st_mtime)


def _key(kernel, packages):
    digest = hashlib.sha256()
    for package in (kernel, *packages):
        digest.update(f"{package.name} {package.version}\n".encode())
    for source in ("image.py", "cpio.py", "elf.py", "guest_init.sh", "guest_agent.c"):
        digest.update((HERE / source).read_bytes())
    return digest.hexdigest()[:16]


def _build(folder, apt, kernel, packages):
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="building.") as scratch:
        tree, out = Path(scratch) / "tree", Path(scratch) / "out"
        out.mkdir()
        _base(tree)
        _Userspace(tree, apt, packages).install()
        kernel_root = kernel.root()
        _modules(tree, kernel_root)
        cpio.pack(tree, out / "initrd.gz")
        vmlinuz, = (kernel_root / "boot").glob("vmlinuz-*")
        shutil.copy(vmlinuz, out / "vmlinuz")
        out.rename(folder)
    for old in _by_age()[:-IMAGES_KEPT]:
        shutil.rmtree(old, ignore_errors=True)


def _base(tree):
    """Folders, account files, first process and agent."""
    for name in ("bin", "dev", "etc", "proc", "root", "run", "sys", "tmp", "usr/sbin"):
        (tree / name).mkdir(parents=True)
    (tree / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (tree / "etc/group").write_text("root:x:0:\n")
    (tree / "etc/nsswitch.conf").write_text("hosts: files\n")
    (tree / "etc/hosts").write_text("127.0.0.1 localhost\n")
    _copy(HERE / "guest_init.sh", tree / "init", mode=0o755)
    compiler = os.environ.get("CC", "cc").split()
    command = [*compiler, "-std=gnu17", "-O2", "-static", "-s", "-o", tree / "usr/sbin/agent",
               HERE / "guest_agent.c"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    except FileNotFoundError:
        raise Unavailable(f"no C compiler ({compiler[0]}) for the guest's agent") from None
    if result.returncode:
        raise Unavailable(f"the guest's agent does not compile: {result.stderr.strip()[-500:]}")


def _copy(source, target, mode=None):
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(mode if mode is not None else 0o755 if os.access(source, os.X_OK) else 0o644)


class _Userspace:
    """Copies programs with the closure of their libraries."""

    def __init__(self, tree, apt, packages):
        self.tree = tree
        self.apt = apt
        self.packages = list(packages)
        self.library_packages = None
        self.done = set()

    def install(self):
        _copy(self._find("bin/busybox"), self.tree / "bin/busybox")
        for program in PROGRAMS:
            self._program(program)
        self._provider("rxe")
        self._copy_libraries(OPENED_LIBRARIES)

    def _find(self, path):
        """A file by its path below "/", in whichever package has it."""
        found = self._look(path)
        if not found:
            raise Unavailable(f"none of the packages {', '.join(PACKAGES)} holds /{path}")
        return found

    def _look(self, path):
        roots = dict.fromkeys(p.root() for p in self.packages)
        for candidate in (path, f"usr/{path}"):
            for root in roots:
                if (root / candidate).is_file():
                    return root / candidate
        return None

    def _program(self, path):
        source = self._find(path)
        _copy(source, self.tree / "usr/bin" / source.name)
        self._libraries(source)

    def _provider(self, name):
        """A verbs provider: a plug-in library and the line that makes libibverbs load it."""
        driver = self._find(f"etc/libibverbs.d/{name}.driver")
        _copy(driver, self.tree / "etc/libibverbs.d" / driver.name)
        for package in self.packages:
            for plugin in (package.root() / LIBRARY_FOLDERS[0] / "libibverbs").glob(f"lib{name}-rdmav*.so"):
                _copy(plugin, self.tree / LIBRARY_FOLDERS[0] / "libibverbs" / plugin.name)
                self._libraries(plugin)

    def _libraries(self, binary):
        elf = Elf(binary)
        interpreter = elf.interpreter().lstrip("/")
        if interpreter and interpreter not in self.done:
            self.done.add(interpreter)
            _copy(self._find(interpreter), self.tree / interpreter, mode=0o755)
        self._copy_libraries(elf.needed())

    def _copy_libraries(self, names):
        for name in names:
            if name in self.done:
                continue
            self.done.add(name)
            library = self._library(name)
            _copy(library, self.tree / LIBRARY_FOLDERS[0] / name)
            self._libraries(library)

    def _library(self, name):
        while True:
            for folder in LIBRARY_FOLDERS:
                found = self._look(f"{folder}/{name}")
                if found:
                    return found
            if not self._add_library_package():
                raise Unavailable(f"no package holds the library {name}")

    def _add_library_package(self):
        """Makes one more dependency of the packages searchable."""
        if self.library_packages is None:
            self.library_packages = iter(self.apt.closure(PACKAGES))
        for name in self.library_packages:
            try:
                self.packages.append(Package(self.apt, name))
                return True
            except Unavailable:
                continue
        return False


def _modules(tree, kernel_root):
    """Copies kernel modules and lists them in an order in which they can be loaded."""
    found = (kernel_root / "lib/modules").rglob("*.ko")
    files = {path.name.removesuffix(".ko").replace("-", "_"): path for path in found}
    order = []

    def add(name):
        path = files.get(name)
        if path is None or path in order:
            return
        for key, value in Elf(path).modinfo():
            if key == "depends":
                for dependency in filter(None, value.split(",")):
                    add(dependency.replace("-", "_"))
        order.append(path)

    for module in MODULES:
        add(module)
    if files.get("rdma_rxe") not in order:
        raise Unavailable(f"the kernel in {kernel_root} has no rdma_rxe module")
    for path in order:
        _copy(path, tree / "lib/modules" / path.name, mode=0o644)
    (tree / "lib/modules/order").write_text("".join(f"/lib/modules/{p.name}\n" for p in order))
