"""A line between two network namespaces that takes its time: slow_line.py MILLISECONDS NAMESPACE NAMESPACE.

Each namespace has a tunnel interface `line`; what it sends comes out of the other one's so many milliseconds later.
Says "ready" when it carries packets, and ends when it is asked to (SIGTERM), or after five minutes.
"""
import collections
import ctypes
import fcntl
import os
import select
import struct
import sys
import time

TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
CLONE_NEWNET = 0x40000000
LONGEST_LIFE = 300.0


def open_end(namespace):
    """The packets of `line` in a namespace: a file belongs to the namespace in which it was attached."""
    with open(f"/run/netns/{namespace}") as there:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(there.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")
    end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(end, TUNSETIFF, struct.pack("16sH22x", b"line", IFF_TUN | IFF_NO_PI))
    return end


def carry(ends, seconds):
    """Packets wait in the order in which they came: all wait equally long."""
    waiting = collections.deque()  # (when, where, packet)
    stop = time.monotonic() + LONGEST_LIFE
    while (now := time.monotonic()) < stop:
        while waiting and waiting[0][0] <= now:
            _, end, packet = waiting.popleft()
            try:
                os.write(end, packet)
            except OSError:
                continue  # lost, as packets are
        patience = waiting[0][0] - now if waiting else 0.5
        for end in select.select(ends, [], [], max(0.0, patience))[0]:
            packet = os.read(end, 65536)
            waiting.append((time.monotonic() + seconds, ends[1 - ends.index(end)], packet))


def main():
    ends = [open_end(name) for name in sys.argv[2:4]]
    print("ready", flush=True)
    carry(ends, float(sys.argv[1]) / 1000)


if __name__ == "__main__":
    main()
