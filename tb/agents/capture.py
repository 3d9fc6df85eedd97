"""Reads the SEND packets of a RoCEv2 capture."""

import io
import logging
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from sim.typed import number_of

# scapy takes 0.2 s to import, so `read_capture` imports it only when there is a capture to read.

_UDP_PORT = 4791
_UDP_HEADER = 8
_BTH = 12
_ICRC = 4
_ACKNOWLEDGE = 0x11  # of RC, the only transport in use that acknowledges


@dataclass(frozen=True)
class _Opcode:
    name: str
    ends_message: bool
    extension: int = 0
    """Bytes between BTH and payload: 4 for the immediate (ImmDt) or the R_Key (IETH)."""


_RC_SENDS = {
    0x00: _Opcode("RC_SEND_FIRST", False),
    0x01: _Opcode("RC_SEND_MIDDLE", False),
    0x02: _Opcode("RC_SEND_LAST", True),
    0x03: _Opcode("RC_SEND_LAST_WITH_IMMEDIATE", True, 4),
    0x04: _Opcode("RC_SEND_ONLY", True),
    0x05: _Opcode("RC_SEND_ONLY_WITH_IMMEDIATE", True, 4),
    0x16: _Opcode("RC_SEND_LAST_WITH_INVALIDATE", True, 4),
    0x17: _Opcode("RC_SEND_ONLY_WITH_INVALIDATE", True, 4),
}
_UC_SENDS = {
    0x20 + code: _Opcode(opcode.name.replace("RC_", "UC_"), opcode.ends_message, opcode.extension)
    for code, opcode in _RC_SENDS.items()
    if code <= 0x05  # UC has no invalidate
}
_SENDS = _RC_SENDS | _UC_SENDS


class CaptureError(ValueError):
    """A capture can't be used; the message is one sentence that names the file."""


@dataclass(frozen=True)
class Send:
    """One SEND packet.

    Members
    -------
    qpn : int
        Destination queue pair.
    psn : int
    opcode_name : str
        Such as ``RC_SEND_LAST_WITH_IMMEDIATE``.
    payload_length : int
        Bytes that land in the receive buffer, without headers, padding and ICRC.
    ends_message : bool
        The packet is the last or the only one of its message.
    icrc_ok : bool
        False also for a frame of which the capture holds only the start.
    """

    qpn: int
    psn: int
    opcode_name: str
    payload_length: int
    ends_message: bool
    icrc_ok: bool


@dataclass(frozen=True)
class Capture:
    """What a capture holds: all its frames counted, its SENDs in file order."""

    packets: int
    acknowledgements: int
    sends: tuple[Send, ...]


def read_capture(path: str | Path) -> Capture:
    """Reads the SENDs of the connected transports (RC and UC) from a pcap or pcapng file.

    Datagrams (UD) are left out: they carry the connection manager's messages.

    Raises
    ------
    CaptureError
        If the file can't be read, is no capture, is truncated or damaged, or has no SEND.
    """
    data = _read_file(Path(path))
    frames = _count_frames(path, data)
    packets = acknowledgements = roce = 0
    sends: list[Send] = []
    with _quiet():
        from scapy.contrib.roce import BTH
        from scapy.error import Scapy_Exception
        from scapy.layers.inet import UDP
        from scapy.packet import Padding
        from scapy.utils import PcapReader

        # What scapy refuses to read shows in the count of frames below.
        with suppress(Scapy_Exception), PcapReader(io.BytesIO(data)) as reader:
            for packets, frame in enumerate(reader, start=1):
                bth = frame.getlayer(BTH)
                # An ICMP error that quotes a RoCEv2 packet has a BTH too, below a UDPerror.
                if bth is None or type(bth.underlayer) is not UDP:
                    continue
                if bth.underlayer.dport != _UDP_PORT:
                    continue
                roce += 1
                acknowledgements += bth.opcode == _ACKNOWLEDGE
                opcode = _SENDS.get(bth.opcode)
                if opcode is None:
                    continue
                # By the header, since the capture may hold only the start of the frame.
                headers = _UDP_HEADER + _BTH + opcode.extension + _ICRC
                length = bth.underlayer.len - headers - bth.padcount
                if length < 0:
                    raise CaptureError(f"frame {packets} of {path} is too short for a SEND")
                # scapy's ICRC would take the padding of a short Ethernet frame as payload.
                if padding := bth.getlayer(Padding):
                    padding.underlayer.remove_payload()
                icrc = bth.icrc.to_bytes(4, "big")
                sends.append(
                    Send(
                        qpn=bth.dqpn,
                        psn=bth.psn,
                        opcode_name=opcode.name,
                        payload_length=length,
                        ends_message=opcode.ends_message,
                        icrc_ok=bth.compute_icrc(b"") == icrc,
                    )
                )
    all_frames = number_of(frames, "frame")
    if packets != frames:
        raise CaptureError(f"{path} is damaged: only {packets} of {all_frames} can be read")
    if not roce:
        raise CaptureError(f"{path} has no RoCEv2 packets (UDP port 4791) in {all_frames}")
    if not sends:
        raise CaptureError(f"{path} has RoCEv2 packets ({roce}), but no SEND among them")
    return Capture(packets, acknowledgements, tuple(sends))


def _read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise CaptureError(f"{path} doesn't exist") from None
    except IsADirectoryError:
        raise CaptureError(f"{path} is a directory, not a capture file") from None
    except OSError as error:
        raise CaptureError(f"{path} can't be read: {error.strerror}") from None


def _count_frames(path: str | Path, data: bytes) -> int:
    """Walks the file's records, since scapy takes a truncated file for a shorter one."""
    magic = data[:4]
    if magic in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1"):
        records = _walk_pcap(data, "<")
    elif magic in (b"\xa1\xb2\xc3\xd4", b"\xa1\xb2\x3c\x4d"):
        records = _walk_pcap(data, ">")
    elif magic == b"\x0a\x0d\x0d\x0a":
        records = _walk_pcapng(data)
    else:
        raise CaptureError(f"{path} is no capture file (neither pcap nor pcapng)")
    frames = 0
    try:
        for end, is_frame in records:
            if end > len(data):
                raise CaptureError(f"{path} is truncated after {number_of(frames, 'whole frame')}")
            frames += is_frame
    except struct.error:  # the file ends inside a record's header
        whole = number_of(frames, "whole frame")
        raise CaptureError(f"{path} is truncated after {whole}") from None
    return frames


def _walk_pcap(data: bytes, endian: str) -> Iterator[tuple[int, bool]]:
    """Yields each record's end, and that it is a frame."""
    at = 24
    yield at, False
    while at < len(data):
        (captured,) = struct.unpack_from(f"{endian}8xI4x", data, at)
        at += 16 + captured
        yield at, True


def _walk_pcapng(data: bytes) -> Iterator[tuple[int, bool]]:
    """Yields each block's end, and whether it is a frame."""
    at = 0
    endian = "<"
    while at < len(data):
        if data[at : at + 4] == b"\x0a\x0d\x0d\x0a":  # a section, which sets the byte order
            (order,) = struct.unpack_from("<8xI", data, at)
            endian = "<" if order == 0x1A2B3C4D else ">"
        kind, length = struct.unpack_from(f"{endian}II", data, at)
        at += max(length, 12)  # a shorter one is damaged: scapy stops there
        yield at, kind in (2, 3, 6)  # packet, simple packet and enhanced packet block


@contextmanager
def _quiet() -> Iterator[None]:
    """Keeps scapy's log off the terminal; its levels are reset by its own import."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
