"""Graphs of the harnesses, and what a search in them keeps to."""

import dataclasses

from rtl.config import TableConfig
from sim.netlist import Design
from sim.prover import Model, model
from tb.formal.alone import Alone
from tb.formal.anything import PLACE, Anything, any_policy
from tb.formal.engine import EngineHarness
from tb.formal.harness import Harness
from tb.formal.lengths import PATIENCE
from tb.formal.plan import ARBITER, RULES, modules
from tb.formal.small import harness_of

LAWFUL = tuple(RULES)
"""What every counterexample keeps to."""

DEPTH = 70
"""Cycles after which the search for a violation is given up."""


def design(config: TableConfig, patience: int | None = None) -> Design:
    """The harness around a table."""
    return harness_of("harness", Harness, config, patience=patience)


def table_graph(config: TableConfig, patient: bool = False, fault: str = "") -> Model:
    """The harness around a table, whose policy is put where one was that may do anything.

    So policies share the graph of the rest, and the patient share it with those who aren't.
    ``fault`` says what is wrong with the policy: it is another one than that of the sources.
    """
    parts = [module for made_of in modules(config).values() for module in made_of]
    (arbiter,) = modules(config)[ARBITER]
    shared = model(design(any_policy(config), PATIENCE), parts, arbiter)
    shared = shared.fixed({("patient", 0): patient})
    if config == any_policy(config):
        return shared
    return shared.filled(arbiter, model(harness_of("alone", Alone, config, fault)))


def engine_graph(config: TableConfig, patience: int | None = None) -> Model:
    """The harness around a command engine alone, which is the same whoever reads the tables."""
    engine = engine_config(config)
    return model(harness_of("engine_harness", EngineHarness, engine, patience=patience))


def engine_config(config: TableConfig) -> TableConfig:
    """What a command engine is made of: the rest is as it is by default, and no policy's."""
    default = TableConfig()
    return dataclasses.replace(
        any_policy(config),
        arbiter=f"{PLACE}:{Anything.__name__}",
        version_bits=default.version_bits,
        scope=default.scope,
        read_structure=default.read_structure,
    )
