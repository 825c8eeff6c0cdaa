#!/usr/bin/env python3
"""What is preloaded for RDMA-CM stands in the way of nothing else: the number of an event channel belongs to
what is opened next, however the channel was closed, and not before that; a path that is none is EFAULT.

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

# A child that runs on its parent's memory, as of vfork(), or that the C library's fork handlers know nothing
# of, closes what it has inherited: the channel and its ids are the parent's.
CHILD = """
import ctypes, os, socket, struct, subprocess
libc = ctypes.CDLL(None)
cm = ctypes.CDLL("librdmacm.so.1", use_errno=True)
cm.rdma_create_event_channel.restype = ctypes.c_void_p
channel = ctypes.c_void_p(cm.rdma_create_event_channel())
assert channel, "no channel"
fd = ctypes.c_int.from_address(channel.value).value
def new_id():
    made = ctypes.c_void_p()
    assert cm.rdma_create_id(channel, ctypes.byref(made), None, 0x106) == 0, ctypes.get_errno()
    return made
def bind(to):
    address = struct.pack("=H", socket.AF_INET) + struct.pack("!H4s8x", 0, bytes(4))
    assert cm.rdma_bind_addr(to, address) == 0, ctypes.get_errno()
before = new_id()
bind(before)
def in_child(of, act):
    if of == 0:
        libc.alarm(20)
        act()
        os._exit(0)
    assert os.waitpid(of, 0)[1] == 0
{child}
assert cm.rdma_listen(before, 1) == 0, ctypes.get_errno()
bind(new_id())
print("the channel is there")
"""

# As rping ends: one thread closes the channel while the other, which has had an event, comes back for the
# next. That one waits for ever, as in the kernel, where it would have been there long before.
READER = """
import ctypes, os, socket, struct, sys, threading, time
cm = ctypes.CDLL("librdmacm.so.1", use_errno=True)
cm.rdma_create_event_channel.restype = ctypes.c_void_p
sys.setswitchinterval(1000)  # a thread keeps the interpreter until it calls something that lets it go
address = struct.pack("=H", socket.AF_INET) + struct.pack("!H", 7) + socket.inet_aton("{ip}") + bytes(8)
def is_in_close():
    with open(f"/proc/self/task/{{os.getpid()}}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0] == "S"
def read(channel, seen):
    event = ctypes.c_void_p()
    assert cm.rdma_get_cm_event(channel, ctypes.byref(event)) == 0
    assert cm.rdma_ack_cm_event(event) == 0
    seen.append("event")
    while seen[-1] != "closing":
        time.sleep(0)
    while not is_in_close():
        pass
    answer = cm.rdma_get_cm_event(channel, ctypes.byref(event))
    seen.append(f"answered {{answer}}, " + os.strerror(ctypes.get_errno()))
def close_meanwhile():
    channel = ctypes.c_void_p(cm.rdma_create_event_channel())
    made = ctypes.c_void_p()
    assert cm.rdma_create_id(channel, ctypes.byref(made), None, 0x106) == 0
    seen = [""]
    reader = threading.Thread(target=read, args=(channel, seen), daemon=True)
    reader.start()
    assert cm.rdma_resolve_addr(made, None, address, 20) == 0, ctypes.get_errno()
    while seen[-1] != "event":
        time.sleep(0)
    seen.append("closing")
    cm.rdma_destroy_event_channel(channel)
    reader.join(0.5)
    return seen[-1]
attempts = [close_meanwhile()]
while attempts[-1] != "closing" and len(attempts) < 5:  # it may stand still for longer than it is waited for
    attempts.append(close_meanwhile())
print(attempts[-1], flush=True)
os._exit(0)  # a thread is left
"""

# NCCL looks there which GIDs are of RoCE v2.
GID_TYPES = """
import ctypes
verbs = ctypes.CDLL("libibverbs.so.1")
verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
verbs.ibv_open_device.restype = ctypes.c_void_p
context = ctypes.c_void_p(verbs.ibv_open_device(ctypes.c_void_p(verbs.ibv_get_device_list(None)[0])))
assert context, "no device"
for index in range(16):
    gid = ctypes.create_string_buffer(16)
    kind = ctypes.c_uint()
    assert verbs.ibv_query_gid(context, 1, index, gid) == 0
    if gid.raw == bytes(16):
        continue
    assert verbs.ibv_query_gid_type(context, 1, index, ctypes.byref(kind)) == 0
    attributes = "/sys/class/infiniband/uroce0/ports/1/gid_attrs/"
    said = open(attributes + f"types/{index}").read()
    assert said == ("IB/RoCE v1\\n", "RoCE v2\\n")[kind.value], (index, said)
    print(index, said.strip(), open(attributes + f"ndevs/{index}").read().strip())
"""


class Descriptors(unittest.TestCase):
    def answer(self, program, *options):
        link = f"shm:descriptors-{os.getpid()}"
        words = [UROCE, "run", "--port", link, *options, "--", sys.executable, "-c", program]
        result = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def run_program(self, close, is_taken=False):
        self.assertEqual(self.answer(PROGRAM.format(close=close, is_taken=is_taken)), "this is the file's\n")

    def run_child(self, child):
        self.assertEqual(self.answer(CHILD.format(child=child)), "the channel is there\n")

    def test_child_of_vfork(self):
        self.run_child("assert subprocess._USE_VFORK; subprocess.run(['true'], check=True)")

    def test_child_without_handlers(self):
        self.run_child("in_child(libc._Fork(), lambda: libc.close_range(3, 2**31, 0))")

    def test_child_without_handlers_dup2(self):
        self.run_child("in_child(libc._Fork(), lambda: libc.dup2(0, fd))")

    def test_child_of_fork(self):
        self.run_child("in_child(os.fork(), lambda: libc.closefrom(3))")

    def test_reader_of_a_closed_channel(self):
        nobody = "10.5.0.2"  # the event is an error: behind others librdmacm asks for more
        self.assertEqual(self.answer(READER.format(ip=nobody), "--ip", "10.5.0.1/24"), "closing\n")

    def test_gid_types(self):
        self.assertEqual(self.answer(GID_TYPES), "0 RoCE v2 lo\n1 RoCE v2 lo\n")
        kinds = ["RoCE v2"] * 3 + ["IB/RoCE v1"] * 3
        both = "".join(f"{index} {kind} lo\n" for index, kind in enumerate(kinds))
        self.assertEqual(self.answer(GID_TYPES, "--ip", "10.5.0.1/24,10.5.0.2/24", "--roce-v1"), both)

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
