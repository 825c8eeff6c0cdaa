#!/usr/bin/env python3
"""What is preloaded for RDMA-CM stands in the way of nothing else: the number of an event channel belongs to
what is opened next, however the channel was closed, and a path that is none is EFAULT.

descriptors_test.py UROCE
"""
import errno
import os
import subprocess
import sys
import unittest

SECONDS = 60

# In a process of its own, under the drop-in: prints what the file holds that has got the channel's number.
PROGRAM = """
import ctypes, os, tempfile
libc = ctypes.CDLL(None)
cm = ctypes.CDLL("librdmacm.so.1")
cm.rdma_create_event_channel.restype = ctypes.c_void_p
file, name = tempfile.mkstemp()
channel = cm.rdma_create_event_channel()
assert channel, "no channel"
fd = ctypes.c_int.from_address(channel).value
{close}
if not {is_taken}:
    found = os.open(name, os.O_RDWR)
    assert found == fd, (found, fd)
os.write(fd, b"this is the file's")
with open(name) as back:
    print(back.read())
os.unlink(name)
"""

# Programs ask so whether the system has statx(): those in Rust, when the first file that they look for is not
# there.
NO_PATH = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
buffer = ctypes.create_string_buffer(256)
for name, words in {"statx": (0, None, 0, 0x7ff, None), "stat": (None, buffer), "lstat": (None, buffer),
                    "open": (None, 0), "openat": (0, None, 0), "access": (None, 0)}.items():
    print(name, libc[name](*words), ctypes.get_errno())
"""


class Descriptors(unittest.TestCase):
    def answer(self, program):
        link = f"shm:descriptors-{os.getpid()}"
        words = [UROCE, "run", "--port", link, "--", sys.executable, "-c", program]
        result = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def run_program(self, close, is_taken=False):
        self.assertEqual(self.answer(PROGRAM.format(close=close, is_taken=is_taken)), "this is the file's\n")

    def test_no_path(self):
        asked = ("statx", "stat", "lstat", "open", "openat", "access")
        self.assertEqual(self.answer(NO_PATH).splitlines(), [f"{name} -1 {errno.EFAULT}" for name in asked])

    def test_close(self):
        self.run_program("os.close(fd)")

    def test_close_range(self):
        self.run_program("assert libc.close_range(fd, fd, 0) == 0")

    def test_closefrom(self):
        self.run_program("libc.closefrom(fd)")

    def test_dup2(self):
        self.run_program("assert libc.dup2(file, fd) == fd", is_taken=True)

    def test_dup3(self):
        self.run_program("assert libc.dup3(file, fd, 0) == fd", is_taken=True)


if __name__ == "__main__":
    UROCE = sys.argv.pop(1)
    unittest.main(verbosity=2)
