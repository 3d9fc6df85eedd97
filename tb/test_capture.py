"""The capture reader, on the small capture in the repository and on captures made here."""

import struct
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from scapy.contrib.roce import AETH, BTH
from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet, Raw
from scapy.utils import PcapNgWriter, RawPcapReader, wrpcap

from tb.agents.capture import Capture, CaptureError, Send, read_capture
from tb.data import make_roce_small
from tb.needs import REAL_CAPTURE, needs_real_capture

SMALL = Path(__file__).parent / "data" / "roce_small.pcap"

ETHER = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
NETWORK = ETHER / IP(src="192.0.2.1", dst="192.0.2.2") / UDP(sport=0xC000, dport=4791)
ACKNOWLEDGE = NETWORK / BTH(opcode=0x11, dqpn=5) / AETH()
PLAIN = ETHER / IP(src="192.0.2.1", dst="192.0.2.2") / UDP(sport=53, dport=53) / Raw(b"plain")


def icrc_of(frame: bytes) -> tuple[bytes, bytes]:
    """The ICRC that a frame should have, computed without scapy, and the one it has."""
    ip = bytearray(frame[14:])
    if ip[0] >> 4 == 4:
        ip = ip[: struct.unpack_from("!H", ip, 2)[0]]
        masked = [1, 8, 10, 11]  # type of service, time to live, checksum
        udp = 20
    else:
        ip = ip[: 40 + struct.unpack_from("!H", ip, 4)[0]]
        ip[0] |= 0x0F  # traffic class and flow label
        masked = [1, 2, 3, 7]  # and the hop limit
        udp = 40
    for at in [*masked, udp + 6, udp + 7, udp + 8 + 4]:  # and UDP's checksum, FECN to resv6
        ip[at] = 0xFF
    crc = zlib.crc32(b"\xff" * 8 + ip[:-4])
    return crc.to_bytes(4, "little"), bytes(ip[-4:])


def write_pcap(path: Path, frames: list[Packet]) -> Path:
    wrpcap(str(path), frames)
    return path


def write_pcapng(path: Path, frames: list[Packet]) -> Path:
    with PcapNgWriter(str(path)) as writer:
        writer.write(frames)
    return path


def read_frame(tmp_path: Path, frame: Packet) -> Send:
    (send,) = read_capture(write_pcap(tmp_path / "one.pcap", [frame])).sends
    return send


def error_of(path: Path) -> str:
    with pytest.raises(CaptureError) as caught:
        read_capture(path)
    return str(caught.value)


def expected_small() -> Capture:
    names = ["FIRST", "MIDDLE", "LAST", "LAST_WITH_IMMEDIATE", "ONLY", "ONLY_WITH_IMMEDIATE"]
    names_of = dict(enumerate(names)) | {0x16: "LAST_WITH_INVALIDATE", 0x17: "ONLY_WITH_INVALIDATE"}
    sends: list[Send] = []
    for qpn, packets in make_roce_small.MESSAGES:
        for opcode, length in packets:
            psn = sum(send.qpn == qpn for send in sends)
            name = names_of[opcode]
            ends = not name.startswith(("FIRST", "MIDDLE"))
            sends.append(Send(qpn, psn, f"RC_SEND_{name}", length, ends, True))
    return Capture(24, 9, tuple(sends))


def test_small_capture() -> None:
    capture = read_capture(SMALL)
    assert capture == expected_small()
    assert len(capture.sends) == 15
    assert len({send.opcode_name for send in capture.sends}) == 8


def test_small_capture_is_what_its_script_writes(tmp_path: Path) -> None:
    made = tmp_path / "made.pcap"
    subprocess.run([sys.executable, str(make_roce_small.__file__), str(made)], check=True)
    assert made.read_bytes() == SMALL.read_bytes()


@pytest.mark.parametrize(
    "path", [SMALL, pytest.param(REAL_CAPTURE, marks=needs_real_capture)], ids=lambda p: p.stem
)
def test_every_icrc_by_a_second_computation(path: Path) -> None:
    with RawPcapReader(str(path)) as reader:
        for frame, _ in reader:
            computed, found = icrc_of(frame)
            assert computed == found


@needs_real_capture
def test_real_capture() -> None:
    capture = read_capture(REAL_CAPTURE)
    assert (capture.packets, capture.acknowledgements) == (105, 37)
    assert Counter(send.opcode_name for send in capture.sends) == {
        "RC_SEND_FIRST": 33,
        "RC_SEND_LAST_WITH_IMMEDIATE": 33,
        "RC_SEND_ONLY_WITH_IMMEDIATE": 2,
    }
    assert all(send.icrc_ok for send in capture.sends)


def test_pcapng_reads_like_pcap(tmp_path: Path) -> None:
    path = write_pcapng(tmp_path / "small.pcapng", make_roce_small.frames())
    assert path.read_bytes()[:4] == b"\x0a\x0d\x0d\x0a"
    assert read_capture(str(path)) == expected_small()


def test_big_endian_pcap(tmp_path: Path) -> None:
    path = tmp_path / "big.pcap"
    wrpcap(str(path), make_roce_small.frames(), endianness=">")
    assert read_capture(path) == expected_small()


@pytest.mark.parametrize("ip_version", [4, 6])
def test_icrc_sees_one_changed_payload_byte(tmp_path: Path, ip_version: int) -> None:
    index = {4: 0, 6: 2}[ip_version]  # a SEND ONLY, and the FIRST of a SEND of two packets
    frame = bytearray(bytes(make_roce_small.frames()[index]))
    assert frame[14] >> 4 == ip_version
    assert read_frame(tmp_path, Ether(bytes(frame))).icrc_ok
    frame[-8] ^= 0x01
    assert not read_frame(tmp_path, Ether(bytes(frame))).icrc_ok


@pytest.mark.parametrize("tail", [b"", bytes(2), bytes(20)], ids=len)
def test_ethernet_padding_is_no_payload(tmp_path: Path, tail: bytes) -> None:
    frame = bytes(NETWORK / BTH(opcode=0x04, dqpn=7, psn=9)) + tail
    assert read_frame(tmp_path, Ether(frame)) == Send(7, 9, "RC_SEND_ONLY", 0, True, True)


def test_frame_cut_by_the_capture_keeps_its_length(tmp_path: Path) -> None:
    frame = bytes(NETWORK / BTH(opcode=0x04, dqpn=7) / Raw(bytes(200)))
    send = read_frame(tmp_path, Ether(frame[:96]))
    assert send.payload_length == 200
    assert not send.icrc_ok


def test_unreliable_connection_and_vlan(tmp_path: Path) -> None:
    frame = NETWORK / BTH(opcode=0x25, dqpn=7) / Raw(bytes(4 + 12))
    tagged = Ether(src=ETHER.src, dst=ETHER.dst) / Dot1Q(vlan=3) / frame[IP].copy()
    assert read_frame(tmp_path, tagged) == Send(7, 0, "UC_SEND_ONLY_WITH_IMMEDIATE", 12, True, True)


def test_datagrams_and_quoted_packets_are_no_sends(tmp_path: Path) -> None:
    send = NETWORK / BTH(opcode=0x04, dqpn=7) / Raw(bytes(8))
    datagram = NETWORK / BTH(opcode=0x64, dqpn=1) / Raw(bytes(8 + 256))
    quoted = bytes(send[IP])
    unreachable = ETHER / IP(src="192.0.2.2", dst="192.0.2.1") / ICMP(type=3) / Raw(quoted)
    capture = read_capture(write_pcap(tmp_path / "mixed.pcap", [datagram, unreachable, send]))
    assert capture.packets == 3
    assert len(capture.sends) == 1


def test_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "none.pcap"
    assert error_of(path) == f"{path} doesn't exist"


def test_directory(tmp_path: Path) -> None:
    assert error_of(tmp_path) == f"{tmp_path} is a directory, not a capture file"


def test_unreadable_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert error_of(SMALL) == f"{SMALL} can't be read: Permission denied"


@pytest.mark.parametrize("content", [b"", b"\xd4\xc3", b"no capture, but text\n" * 9])
def test_no_capture_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    assert error_of(path) == f"{path} is no capture file (neither pcap nor pcapng)"


@pytest.mark.parametrize("write", [write_pcap, write_pcapng])
@pytest.mark.parametrize("missing", [1, 60, 90])
def test_truncated_file(
    tmp_path: Path, write: Callable[[Path, list[Packet]], Path], missing: int
) -> None:
    path = write(tmp_path / "cut", [ACKNOWLEDGE] * 3)
    path.write_bytes(path.read_bytes()[:-missing])
    whole = "1 whole frame" if missing == 90 and write is write_pcap else "2 whole frames"
    assert error_of(path) == f"{path} is truncated after {whole}"


@pytest.mark.parametrize("size", [4, 23])
@pytest.mark.parametrize("write", [write_pcap, write_pcapng])
def test_truncated_in_the_file_header(
    tmp_path: Path, write: Callable[[Path, list[Packet]], Path], size: int
) -> None:
    path = write(tmp_path / "cut", [ACKNOWLEDGE])
    path.write_bytes(path.read_bytes()[:size])
    assert error_of(path) == f"{path} is truncated after 0 whole frames"


@pytest.mark.parametrize(
    ("at", "readable"),
    [pytest.param(-1, 2, id="last block's second length"), pytest.param(13, 0, id="version")],
)
def test_damaged_file(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], at: int, readable: int
) -> None:
    path = write_pcapng(tmp_path / "damaged.pcapng", [ACKNOWLEDGE] * 3)
    content = bytearray(path.read_bytes())
    content[at] ^= 0xFF
    path.write_bytes(content)
    assert error_of(path) == f"{path} is damaged: only {readable} of 3 frames can be read"
    assert capfd.readouterr() == ("", "")


def test_no_roce(tmp_path: Path) -> None:
    path = write_pcap(tmp_path / "plain.pcap", [PLAIN] * 3)
    assert error_of(path) == f"{path} has no RoCEv2 packets (UDP port 4791) in 3 frames"
    path = write_pcap(tmp_path / "plain.pcap", [PLAIN])
    assert error_of(path) == f"{path} has no RoCEv2 packets (UDP port 4791) in 1 frame"


def test_no_send(tmp_path: Path) -> None:
    path = write_pcap(tmp_path / "acks.pcap", [PLAIN, ACKNOWLEDGE, ACKNOWLEDGE])
    assert error_of(path) == f"{path} has RoCEv2 packets (2), but no SEND among them"


def test_send_too_short(tmp_path: Path) -> None:
    short = NETWORK / BTH(opcode=0x05, dqpn=7)  # with immediate, by its opcode only
    path = write_pcap(tmp_path / "short.pcap", [PLAIN, short])
    assert error_of(path) == f"frame 2 of {path} is too short for a SEND"


def test_scapy_stays_silent_and_unloaded() -> None:
    code = (
        "import sys; from tb.agents.capture import read_capture;"
        "assert 'scapy' not in sys.modules; read_capture(sys.argv[1])"
    )
    command = [sys.executable, "-W", "error", "-c", code, str(SMALL)]
    root = Path(__file__).parents[1]
    run = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
