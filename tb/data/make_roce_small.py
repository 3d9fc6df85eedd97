"""Writes ``roce_small.pcap``, the capture that is in the repository: always the same bytes.

Two queue pairs, one over IPv4 and one over IPv6, with a path MTU of 256 bytes.
They send 9 messages in 15 packets with every SEND opcode of RC, each message acknowledged.
"""

import struct
import sys
from pathlib import Path

from scapy.contrib.roce import AETH, BTH
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw
from scapy.utils import PcapWriter

MTU = 256
FIRST, MIDDLE, LAST, LAST_IMMEDIATE, ONLY, ONLY_IMMEDIATE = range(6)
LAST_INVALIDATE, ONLY_INVALIDATE = 0x16, 0x17
ACKNOWLEDGE = 0x11
WITH_EXTENSION = {LAST_IMMEDIATE, ONLY_IMMEDIATE, LAST_INVALIDATE, ONLY_INVALIDATE}

# Requests go to these queue pairs, acknowledgements back to the other number.
QUEUE_PAIRS = {0x000011: 0x000021, 0x000012: 0x000022}
# In file order: queue pair, and the message's packets as (opcode, payload length).
MESSAGES = [
    (0x11, [(ONLY, 64)]),
    (0x12, [(FIRST, MTU), (LAST, 100)]),
    (0x11, [(FIRST, MTU), (MIDDLE, MTU), (LAST, 33)]),
    (0x12, [(ONLY_IMMEDIATE, 13)]),
    (0x11, [(FIRST, MTU), (LAST_IMMEDIATE, MTU)]),
    (0x12, [(ONLY_INVALIDATE, 128)]),
    (0x11, [(ONLY, 1)]),
    (0x12, [(FIRST, MTU), (MIDDLE, MTU), (LAST_INVALIDATE, 7)]),
    (0x11, [(ONLY, 250)]),
]


def _network(qpn: int, reply: bool) -> Packet:
    """Headers up to UDP; every field that scapy would take from the machine is given."""
    ends = ("1", "2") if not reply else ("2", "1")
    ether = {"src": f"02:00:00:00:00:0{ends[0]}", "dst": f"02:00:00:00:00:0{ends[1]}"}
    udp = UDP(sport=0xC000 | qpn, dport=4791, chksum=0)
    if qpn == 0x11:
        source, target = (f"192.0.2.{end}" for end in ends)
        return Ether(type=0x0800, **ether) / IP(src=source, dst=target, id=0, flags="DF") / udp
    source, target = (f"2001:db8::{end}" for end in ends)
    return Ether(type=0x86DD, **ether) / IPv6(src=source, dst=target, hlim=64) / udp


def frames() -> list[Packet]:
    """All frames in file order, with scapy's ICRC."""
    result: list[Packet] = []
    psns = dict.fromkeys(QUEUE_PAIRS, 0)
    for number, (qpn, packets) in enumerate(MESSAGES, start=1):
        for opcode, length in packets:
            extension = struct.pack("!I", 0x1000 + number) if opcode in WITH_EXTENSION else b""
            payload = bytes((number + i) % 256 for i in range(length))
            pad = -length % 4
            last = opcode not in (FIRST, MIDDLE)
            bth = BTH(opcode=opcode, padcount=pad, dqpn=qpn, ackreq=int(last), psn=psns[qpn])
            psns[qpn] += 1
            result.append(_network(qpn, False) / bth / Raw(extension + payload + bytes(pad)))
        acknowledge = BTH(opcode=ACKNOWLEDGE, dqpn=QUEUE_PAIRS[qpn], psn=psns[qpn] - 1)
        # Syndrome 0x1f: an acknowledgement without a credit count.
        result.append(_network(qpn, True) / acknowledge / AETH(syndrome=0x1F, msn=number))
    return result


def write(path: Path) -> None:
    """Writes the capture, one frame every 10 µs."""
    with PcapWriter(str(path), linktype=1, endianness="<") as writer:
        writer.write_header(None)
        for number, frame in enumerate(frames()):
            writer.write_packet(bytes(frame), sec=0, usec=10 * number)


if __name__ == "__main__":
    write(Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).with_name("roce_small.pcap"))
