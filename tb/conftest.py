"""What all tests share."""

import pytest

from sim import simulators
from sim.simulators import Simulator


@pytest.fixture(params=list(Simulator), ids=str)
def simulator(request: pytest.FixtureRequest) -> Simulator:
    """Each simulator in turn.

    Skips Icarus where it isn't installed, and fails there if ``CI`` is set.
    """
    chosen: Simulator = request.param
    if chosen not in simulators.available():
        pytest.skip("Icarus Verilog is not installed (Debian package iverilog)")
    return chosen
