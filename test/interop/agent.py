"""Commands in the guest, over the virtio-serial channel that guest_agent.c serves."""
import itertools
import os
import queue
import socket
import struct
import threading
import time
from dataclasses import dataclass

HEADER = struct.Struct("<cII")
MAX_PAYLOAD = 16384
CHANNEL_GRACE_SECONDS = 15  # beyond a command's own limit, which the guest keeps


class GuestError(Exception):
    """The guest or its channel failed, or a command did not succeed."""


@dataclass(frozen=True)
class Outcome:
    """How a command ended. `code`: 128 + signal after a signal; `limit_passed`: it was ended for its time."""
    code: int
    out: str
    err: str
    limit_passed: bool

    @property
    def ok(self):
        return self.code == 0

    def text(self):
        ended = "its time limit passed" if self.limit_passed else f"exit code {self.code}"
        return "\n".join(filter(None, (self.out.rstrip(), self.err.rstrip(), f"({ended})")))


class Job:
    """A command running in the guest."""

    def __init__(self, channel, number, limit_s):
        self.channel = channel
        self.number = number
        self.frames = queue.Queue()
        self.deadline = time.monotonic() + limit_s + CHANNEL_GRACE_SECONDS
        self.output = {b"O": bytearray(), b"S": bytearray()}
        self.outcome = None

    def wait(self):
        """Blocks until the command has ended; bounded by its own limit."""
        while self.outcome is None:
            self._take(self.deadline)
        return self.outcome

    def ended(self):
        while self.outcome is None and not self.frames.empty():
            self._take(self.deadline)
        return self.outcome is not None

    def wait_output(self, text, timeout=30):
        """Blocks until standard output holds `text`."""
        deadline = time.monotonic() + timeout
        while text.encode() not in self.output[b"O"]:
            if self.outcome is not None:
                raise GuestError(f"ended without printing '{text}':\n{self.outcome.text()}")
            self._take(deadline)

    def kill(self):
        self.channel.send(b"K", self.number)

    def write_stdin(self, data):
        """Gives the command all its standard input, then end of file."""
        for start in range(0, len(data), MAX_PAYLOAD):
            self.channel.send(b"I", self.number, data[start:start + MAX_PAYLOAD])
        self.channel.send(b"E", self.number)

    def _take(self, deadline):
        try:
            kind, payload = self.frames.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise GuestError(f"no answer from the guest in time; so far:\n{self._decoded(b'O')}") from None
        if kind == b"X":
            code, passed = struct.unpack("<II", payload)
            self.outcome = Outcome(code, self._decoded(b"O"), self._decoded(b"S"), bool(passed))
            self.channel.forget(self)
        elif kind == b"":
            raise GuestError("the channel to the guest is closed")
        else:
            self.output[kind] += payload

    def _decoded(self, stream):
        return self.output[stream].decode(errors="replace")


class Channel:
    """One connection to the agent. Opening a new one ends the jobs of the one before."""

    def __init__(self, path, timeout):
        self.jobs = {}
        self.numbers = itertools.count(1)
        self.write_lock = threading.Lock()
        deadline = time.monotonic() + timeout
        while True:
            try:
                self.socket = socket.socket(socket.AF_UNIX)
                self.socket.connect(str(path))
                self.buffer = b""
                self._greet(deadline)
                break
            except (OSError, EOFError) as failure:
                self.socket.close()
                if time.monotonic() > deadline:
                    raise GuestError(f"the guest's agent does not answer: {failure}") from None
                time.sleep(0.1)
        self.socket.settimeout(None)
        self.reader = threading.Thread(target=self._read_frames, daemon=True)
        self.reader.start()

    def _greet(self, deadline):
        """Ends whatever frame was cut, says hello and skips everything up to the answer."""
        nonce = os.urandom(12)
        self.socket.settimeout(5)
        self.socket.sendall(bytes(MAX_PAYLOAD + HEADER.size) + HEADER.pack(b"H", 0, len(nonce)) + nonce)
        answer = HEADER.pack(b"h", 0, len(nonce)) + nonce
        received = b""
        while answer not in received:
            self.socket.settimeout(min(5.0, max(0.01, deadline - time.monotonic())))
            data = self.socket.recv(65536)
            if not data:
                raise EOFError("closed")
            received += data
        self.buffer = received[received.index(answer) + len(answer):]

    def run(self, command, limit_s):
        """Starts a shell command. @return the Job."""
        job = Job(self, next(self.numbers), limit_s)
        self.jobs[job.number] = job
        self.send(b"R", job.number, struct.pack("<I", int(limit_s)) + command.encode())
        return job

    def send(self, kind, number, payload=b""):
        if len(payload) > MAX_PAYLOAD:
            raise GuestError("the command is too long")
        try:
            with self.write_lock:
                self.socket.sendall(HEADER.pack(kind, number, len(payload)) + payload)
        except OSError as failure:
            raise GuestError(f"the channel to the guest is closed: {failure}") from None

    def forget(self, job):
        self.jobs.pop(job.number, None)

    def close(self):
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.socket.close()

    def _read_frames(self):
        try:
            while True:
                kind, number, size = HEADER.unpack(self._read(HEADER.size))
                payload = self._read(size)
                job = self.jobs.get(number)
                if job:
                    job.frames.put((kind, payload))
        except (OSError, EOFError):
            for job in list(self.jobs.values()):
                job.frames.put((b"", b""))

    def _read(self, size):
        while len(self.buffer) < size:
            data = self.socket.recv(65536)
            if not data:
                raise EOFError
            self.buffer += data
        taken, self.buffer = self.buffer[:size], self.buffer[size:]
        return taken
