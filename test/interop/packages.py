"""Debian packages by name: those installed are used where they are, others are unpacked into the cache."""
import os
import re
import subprocess
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "uroce-interop"
DOWNLOAD_SECONDS = 300


class Unavailable(Exception):
    """The lab cannot be had on this machine; the text says why. Tests skip on it."""


def _run(*command, **options):
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS, **options)
    except FileNotFoundError:
        raise Unavailable(f"{command[0]} is missing: the guest is made from Debian packages") from None
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{' '.join(command)} took longer than {DOWNLOAD_SECONDS} s") from None


def _own_lists():
    """apt options for package lists of our own, for machines whose lists are missing or stale."""
    state = CACHE / "apt"
    (state / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    (state / "cache" / "archives" / "partial").mkdir(parents=True, exist_ok=True)
    return ["-o", f"Dir::State::lists={state}/lists", "-o", f"Dir::Cache={state}/cache",
            "-o", "APT::Sandbox::User=root"]


class Apt:
    """Questions to apt: with the system's lists first, with freshly fetched ones of our own if need be."""

    def __init__(self):
        self.options = ["-o", "APT::Sandbox::User=root"]
        self.fetched = False

    def fetch_lists(self):
        if self.fetched:
            return False
        self.fetched = True
        self.options = _own_lists()
        return _run("apt-get", *self.options, "update").returncode == 0

    def candidate(self, name):
        """The version that would be installed."""
        while True:
            policy = _run("apt-cache", *self.options, "policy", name).stdout
            version = re.search(r"Candidate: (\S+)", policy)
            if version and version[1] != "(none)":
                return version[1]
            if not self.fetch_lists():
                raise Unavailable(f"no Debian package {name} can be found (apt-cache policy {name})")

    def first_dependency(self, name):
        """What a metapackage stands for."""
        self.candidate(name)
        found = re.search(r"Depends: (\S+)", _run("apt-cache", *self.options, "depends", name).stdout)
        if not found:
            raise Unavailable(f"package {name} depends on nothing")
        return found[1]

    def closure(self, names):
        """The packages that `names` depend on, directly or not, besides themselves."""
        flags = [f"--no-{kind}" for kind in "recommends suggests conflicts breaks replaces enhances".split()]
        lines = _run("apt-cache", *self.options, "depends", "--recurse", *flags, *names).stdout.splitlines()
        real = [line for line in dict.fromkeys(lines) if re.fullmatch(r"[a-z0-9][a-z0-9.+-]*", line)]
        return [name for name in real if name not in names]

    def download(self, name, version, folder):
        """Fetches one package file into `folder`."""
        while True:
            folder.mkdir(parents=True, exist_ok=True)
            result = _run("apt-get", *self.options, "download", f"{name}={version}", cwd=folder)
            files = list(folder.glob("*.deb"))
            if result.returncode == 0 and files:
                return files[0]
            if not self.fetch_lists():
                raise Unavailable(f"cannot download {name} {version}: {result.stderr.strip()[-300:]}")


def installed_version(name):
    """Version of an installed package, or None."""
    result = _run("dpkg-query", "-W", "-f=${db:Status-Abbrev} ${Version}", name)
    words = result.stdout.split()
    return words[1] if result.returncode == 0 and words[:1] == ["ii"] else None


class Package:
    """A package whose files can be read below `root()`."""

    def __init__(self, apt, name, prefer_installed=True):
        self.apt = apt
        self.name = name
        self.installed = installed_version(name) if prefer_installed else None
        self.version = self.installed or apt.candidate(name)

    def root(self):
        """Folder that stands for "/": the machine's own, or that of the unpacked package."""
        if self.installed:
            return Path("/")
        folder = CACHE / "unpacked" / f"{self.name}_{self.version.replace(':', '%')}"
        if not folder.exists():
            self._unpack(folder)
        return folder

    def _unpack(self, folder):
        staging = folder.with_name(f"{folder.name}.{os.getpid()}.tmp")
        archive = self.apt.download(self.name, self.version, staging / "deb")
        result = _run("dpkg-deb", "-x", str(archive), str(staging / "tree"))
        if result.returncode:
            raise Unavailable(f"cannot unpack {archive.name}: {result.stderr.strip()}")
        (staging / "tree").rename(folder)
        archive.unlink()
        (staging / "deb").rmdir()
        staging.rmdir()
