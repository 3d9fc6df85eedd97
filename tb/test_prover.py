"""Graphs, and what is proved and refuted of small ones."""

from pathlib import Path

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib.wiring import In, Out

from rtl.component import Component
from sim import prover
from sim.aiger import Graph, Model
from sim.netlist import Design
from sim.prover import ProverFailed, Verdict, equivalent, induct, model, prove, refute
from tb.formal.environment import clocked
from tb.formal.small import made_of

GRAPH = Graph(2, (8, 3), (9, 6, 0, 1), ((4, 2), (7, 6), (10, 5)))
"""Two inputs, two latches, three gates. The second latch hangs on the first input alone."""


class Step(Component):
    """What is added to a sum: whatever is asked for, as long as it is below 8."""

    def __init__(self):
        super().__init__({"more": In(2), "sum": In(4), "step": Out(2)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += self.step.eq(self.more & ~(self.sum >= 8).replicate(2))
        return m


class Adder(Component):
    """Something to judge."""

    def __init__(self):
        super().__init__(
            {
                "clk": In(1),
                "more": In(2),
                "unused": In(3),
                "is_small": Out(1),
                "is_eleven": Out(1),
                "is_ten": Out(1),
                "is_low": Out(1),
                "is_high": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        clocked(m, self.clk)
        m.submodules.stepper = step = Step()
        total = Signal(4)
        m.d.sync += total.eq(total + step.step)
        m.d.comb += [
            step.more.eq(self.more),
            step.sum.eq(total),
            self.is_small.eq(self.more < 2),
            self.is_eleven.eq(total == 11),
            self.is_ten.eq(total == 10),
            self.is_low.eq(0),
            self.is_high.eq(1),
        ]
        return m


@pytest.fixture(scope="module")
def adder(tmp_path_factory: pytest.TempPathFactory):
    return model(
        Design("adder", Adder, "adder"), ["stepper"], cache=tmp_path_factory.mktemp("cache")
    )


class Nothing(Step):
    """In its place, something that comes to nothing."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += self.step.eq(self.more & ~self.more)
        return m


@pytest.fixture(scope="module")
def socket(tmp_path_factory: pytest.TempPathFactory):
    cache = tmp_path_factory.mktemp("cache")
    return model(Design("adder", Adder, "adder"), ["stepper"], "stepper", cache=cache)


class TestFixed:
    """Inputs that are constant."""

    def test_a_trace_has_them(self, adder: Model):
        found = refute(adder.fixed({("more", 0): 1}), "is_ten")
        assert found.verdict is Verdict.REFUTED
        assert all(cycle["more"] & 1 for cycle in found.trace)

    def test_nothing_else_happens(self, adder: Model):
        """In steps of 0 and 1, or of 0 and 2, nobody gets beyond 8."""
        for bit in (0, 1):
            assert prove(adder.fixed({("more", bit): 0}), "is_ten").verdict is Verdict.PROVED

    def test_one_after_the_other(self, adder: Model):
        both = adder.fixed({("more", 0): 1}).fixed({("unused", 2): 1})
        assert both.given == {("more", 0): 1, ("unused", 2): 1}
        assert {cycle["unused"] for cycle in refute(both, "is_ten").trace} == {4}

    def test_what_follows_is_constant_too(self):
        """Of two inputs the conjunction, and of that and the first one again."""
        graph = Graph(2, (), (9,), ((4, 2), (6, 2)))
        assert graph.fixed({1: 0}).outputs == (1,)
        assert graph.fixed({1: 1}).outputs == (9,)

    def test_parts_can_be_taken_out_afterwards(self, adder: Model):
        """Only odd steps are left, if the part that makes them is."""
        fixed = adder.fixed({("more", 0): 1, ("more", 1): 1})
        assert prove(fixed, "is_ten").verdict is Verdict.PROVED
        found = refute(fixed.without(["stepper"]), "is_ten")
        assert found.verdict is Verdict.REFUTED
        assert all(cycle["more"] == 3 for cycle in found.trace)


class TestPutInPlace:
    """One module in place of another, in a finished graph."""

    @pytest.mark.parametrize(("step", "ten"), [(Step, Verdict.REFUTED), (Nothing, Verdict.PROVED)])
    def test_it_counts(self, socket: Model, tmp_path: Path, step: type[Component], ten: Verdict):
        alone = model(Design("alone", step, step.__name__), cache=tmp_path)
        filled = socket.filled("stepper", alone)
        assert equivalent(filled, socket) is (step is Step)
        assert prove(filled, "is_ten").verdict is ten

    def test_in_a_model_with_constant_inputs(self, socket: Model, tmp_path: Path):
        """In steps of 0 and 2 nobody gets to 11, and in others everybody does."""
        alone = model(Design("alone", Step, "Step"), cache=tmp_path)
        filled = socket.fixed({("more", 0): 0}).filled("stepper", alone)
        assert filled.given == {("more", 0): 0}
        assert prove(filled, "is_eleven").verdict is Verdict.PROVED

    def test_it_has_other_pins(self, socket: Model, adder: Model):
        with pytest.raises(ValueError, match="nothing drives"):
            socket.filled("stepper", adder)


class TestGraph:
    def test_what_is_written_is_read(self, tmp_path: Path):
        file = tmp_path / "some.aig"
        file.write_bytes(GRAPH.to_bytes())
        assert Graph.read(file) == GRAPH

    def test_long_differences(self, tmp_path: Path):
        """A gate may read one that is far away: the difference takes more than one byte."""
        gates = [(2 * n, 2) for n in range(2, 40_000)]
        graph = Graph(2, (), (2 * 40_000,), (*gates, (4, 2)))
        file = tmp_path / "long.aig"
        file.write_bytes(graph.to_bytes())
        assert Graph.read(file) == graph

    def test_cone(self):
        """The second latch becomes the first variable after the only input that is left."""
        smaller, inputs = GRAPH.cone([9])
        assert inputs == (0,)
        assert smaller == Graph(1, (3,), (5,), ())

    def test_cone_of_everything(self):
        smaller, inputs = GRAPH.cone([12, 14])
        assert inputs == (0, 1)
        assert smaller.latches == (8, 3)
        assert smaller.gates == GRAPH.gates

    def test_cone_of_a_constant(self):
        assert GRAPH.cone([1]) == (Graph(0, (), (1,), ()), ())

    def test_cone_without_latches(self):
        """Gates move up."""
        graph = Graph(2, (8,), (), ((4, 2), (9, 6)))
        assert graph.cone([9]) == (Graph(2, (), (7,), ((4, 2),)), (0, 1))

    def test_with_a_latch(self):
        graph = Graph(2, (), (7,), ((4, 2),))
        assert graph.with_a_latch() == Graph(2, (0,), (9,), ((4, 2),))
        assert GRAPH.with_a_latch() == GRAPH

    def test_constraints_come_last(self):
        assert GRAPH.to_bytes(2).startswith(b"aig 7 2 2 2 3 0 2\n8\n3\n9\n6\n0\n1\n")

    def test_cut(self):
        """Whoever read the first latch reads a third input."""
        cut = GRAPH.cut([3])
        assert cut.inputs == 3
        assert cut.latches == (10, 3)
        assert cut.outputs == (11, 6, 0, 1)
        assert cut.gates == ((4, 2), (7, 6), (12, 5))

    def test_constants_are_not_cut(self):
        assert GRAPH.cut([0]) == GRAPH


class TestVerdicts:
    def test_proved(self, adder: Model):
        """From 7, the most that can be reached is 10."""
        assert prove(adder, "is_eleven").verdict is Verdict.PROVED
        assert prove(adder, "is_ten", ["is_small"]).verdict is Verdict.PROVED

    def test_refuted(self, adder: Model):
        """It takes 3, 3, 1 and 3 in some order that gets to 7, and a look at the sum."""
        result = refute(adder, "is_ten")
        assert result.verdict is Verdict.REFUTED
        assert result.cycles == 5

    def test_trace(self, adder: Model):
        """Each cycle has all inputs by their names. Nothing hangs on some, and they are low."""
        total = 0
        for cycle in refute(adder, "is_ten").trace[:-1]:
            assert cycle.keys() == {"clk", "more", "unused"}
            assert cycle["unused"] == 0
            total += cycle["more"] if total < 8 else 0
        assert total == 10

    def test_depth(self, adder: Model):
        result = refute(adder, "is_ten", depth=4)
        assert result.verdict is Verdict.UNDECIDED
        assert result.searched == 4

    def test_search_in_vain(self, adder: Model):
        """Also where nothing but a constant is left of the graph when it has been reduced."""
        assert refute(adder, "is_eleven").verdict is not Verdict.REFUTED
        assert refute(adder, "is_low").verdict is not Verdict.REFUTED

    def test_without_a_part(self, adder: Model):
        """What the part does no longer counts: 3, 3, 3 and 2, and a look."""
        free = adder.without(["stepper"])
        assert refute(free, "is_eleven").cycles == 5
        assert prove(free, "is_low").verdict is Verdict.PROVED

    def test_induction(self, adder: Model):
        """It says nothing of what has a reason that lies further back."""
        assert induct(adder, "is_eleven").verdict is not Verdict.REFUTED
        assert induct(adder, "is_low").verdict is Verdict.PROVED

    def test_constants(self, adder: Model):
        """An output that is always high is never proved to be low."""
        assert prove(adder, "is_high").verdict is Verdict.REFUTED
        assert induct(adder, "is_high").verdict is Verdict.REFUTED
        assert refute(adder, "is_high").cycles == 1

    def test_what_is_not_there_is_no_proof(self, adder: Model):
        with pytest.raises(KeyError, match="is_lo"):
            prove(adder, "is_lo")

    def test_part_that_is_not_there(self, tmp_path: Path):
        with pytest.raises(ProverFailed, match="nothing is called steper"):
            model(Design("adder", Adder, "adder"), ["steper"], cache=tmp_path)

    def test_known_results_are_as_new_ones(
        self, adder: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(prover, "CACHE", tmp_path)
        assert refute(adder, "is_ten") == refute(adder, "is_ten")
        assert len(list((tmp_path / "proof").glob("*.json"))) == 1


def test_a_harness_is_made_of_what_it_imports():
    """And of nothing that only uses it: a stale graph would be a proof of something else."""
    names = {file.stem for file in made_of("tb.formal.harness")}
    assert names == {
        *("checking", "environment", "harness", "lengths"),
        *("readers", "room", "shadow", "working"),
    }
    assert {"engine", "ledger", "shadow"} < {file.stem for file in made_of("tb.formal.engine")}
    assert names < {file.stem for file in made_of("tb.formal.covers")}
