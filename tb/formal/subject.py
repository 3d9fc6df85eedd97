"""What is proved of one configuration, one step after the other."""

import dataclasses
from collections.abc import Callable, Mapping

from rtl.config import TableConfig
from sim.prover import Model, Result, Verdict, induct, prove
from tb.formal.anything import any_policy
from tb.formal.plan import ARBITER, Step


class Subject:
    """One configuration in one harness, and what was proved of it.

    Parameters
    ----------
    config : TableConfig
    make : callable
        Makes the graph of a configuration.
    parts : mapping
        Modules that can be taken out, by the name of the part that they make up.
    limit : int
        Seconds that one try may take.
    """

    def __init__(
        self,
        config: TableConfig,
        make: Callable[[TableConfig], Model],
        parts: Mapping[str, tuple[str, ...]],
        limit: int = 120,
    ):
        self.config = config
        self.limit = limit
        self.proved: list[str] = []
        self._make = make
        self._parts = parts
        self._models: dict[tuple[TableConfig, tuple[str, ...]], Model] = {}

    def graph(self, config: TableConfig, parts: tuple[str, ...] = ()) -> Model:
        """The harness without some parts of the table, or modules by their names."""
        key = config, parts
        if key not in self._models:
            if parts:
                modules = [m for part in parts for m in self._parts.get(part, (part,))]
                self._models[key] = self.graph(config).without(modules)
            else:
                self._models[key] = self._make(config)
        return self._models[key]

    def prove(self, step: Step) -> Result:
        """Tries one step, at first without what it can do without."""
        attempt = induct if step.inductive else prove
        never = [lemma for lemma in step.never if lemma in self.proved]
        tries = [(self.config, step.parts), (self.config, ())]
        if step.of_any:
            tries.insert(0, (any_policy(self.config), (*step.parts, ARBITER)))
        seconds = 0.0
        result = None
        for config, parts in dict.fromkeys(tries):
            graph = self.graph(config, parts)
            result = attempt(graph, step.output, step.always, never, self.limit)
            seconds += result.seconds
            if result.verdict is Verdict.PROVED:
                break
        assert result is not None
        return dataclasses.replace(result, seconds=seconds)

    def lemma(self, step: Step) -> Result:
        """Tries a step that later ones may stand on."""
        result = self.prove(step)
        if result.verdict is Verdict.PROVED:
            self.proved.append(step.output)
        return result
