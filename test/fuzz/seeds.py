#!/usr/bin/env python3
"""Writes the frames of captures as single files, the seeds of a fuzzer: one per distinct opcode and length.

Usage: seeds.py CAPTURE_FOLDER OUTPUT_FOLDER
"""
import pathlib
import struct
import sys

RECORD = struct.Struct("<IIII")
FILE_HEADER_BYTES = 24
BTH_OFFSET_V4 = 14 + 20 + 8


def frames(capture):
    data = capture.read_bytes()
    offset = FILE_HEADER_BYTES
    while offset + RECORD.size <= len(data):
        length = RECORD.unpack_from(data, offset)[2]
        offset += RECORD.size
        yield data[offset:offset + length]
        offset += length


def main():
    source, output = map(pathlib.Path, sys.argv[1:3])
    output.mkdir(parents=True, exist_ok=True)
    seeds = {}
    for capture in sorted(source.rglob("*.pcap")):
        for frame in frames(capture):
            seeds.setdefault((frame[12:14], frame[BTH_OFFSET_V4:BTH_OFFSET_V4 + 1], len(frame)), frame)
    for number, frame in enumerate(seeds.values()):
        (output / f"frame-{number:04}").write_bytes(frame)
    print(f"{len(seeds)} seeds")


if __name__ == "__main__":
    main()
