"""What the policies declare is proved, and what they don't is refuted: the quick part of it."""

import pytest
from amaranth.back import rtlil  # pyright: ignore[reportAttributeAccessIssue]  # not in the stubs

from rtl.arbiter import POLICIES, policy
from rtl.commands import CommandEngine
from rtl.config import TableConfig
from rtl.monitor import Guarantee
from sim.netlist import ROOT, Design, source_hash
from sim.prove import PAGE, recorded, with_table
from sim.prover import Verdict, equivalent, model, prove
from tb.formal.graphs import design, engine_config, table_graph
from tb.formal.harness import SMALL
from tb.formal.lengths import PATIENCE
from tb.formal.matrix import configurations, name_of, solve
from tb.formal.plan import GUARANTEES
from tb.formal.recency import TouchHarness
from tb.formal.turns import OrderHarness, TurnsHarness

SOURCES = sorted([*(ROOT / "rtl").rglob("*.py"), *(ROOT / "tb" / "formal").glob("*.py")])

QUICK = configurations(quick=True)


@pytest.mark.conformance
@pytest.mark.parametrize("config", QUICK, ids=map(name_of, QUICK))
def test_it_is_as_declared(config: TableConfig):
    """In scope ``dma``, replicated, entry first. `make prove` does the others, and the bounds."""
    cells = {cell.name: cell for cell in solve(config, bounds=False)}
    # Of a policy of one's own, nothing is on record.
    on_record = recorded()["configurations"].get(name_of(config), {}).get("guarantees")
    for guarantee in GUARANTEES:
        cell = cells[guarantee]
        assert cell.right, f"{guarantee} is {cell.verdict}, declared: {cell.declared}"
        if on_record and cell.verdict is Verdict.REFUTED and cell.shortest:
            assert cell.cycles == on_record[guarantee]["cycles"]


def test_one_source_has_the_fence_to_itself():
    """A fence around one entry is isolated then, as it declares; the matrix has two sources."""
    guarantee = Guarantee.ISOLATED_INVALIDATION
    config = TableConfig(**{**SMALL, "sources": 1, "arbiter": "drain_fence"})
    *_, cell = solve(config, part=guarantee, bounds=False)
    assert cell.name == guarantee
    assert (cell.declared, cell.verdict) == (True, Verdict.PROVED)


@pytest.mark.parametrize("arbiter", sorted(POLICIES))
def test_a_policy_is_put_in_its_place(arbiter: str):
    """The graph that policies share, with one of them put in, is that of the table with it."""
    config = TableConfig(**{**SMALL, "arbiter": arbiter, "ports": 1, "sources": 1})
    whole = model(design(config, PATIENCE)).fixed({("patient", 0): 0})
    assert equivalent(table_graph(config), whole)


def test_another_policy_is_not_the_same():
    config, other = (
        TableConfig(**{**SMALL, "arbiter": name, "ports": 1, "sources": 1})
        for name in ("grace_period", "apply_now")
    )
    whole = model(design(other, PATIENCE)).fixed({("patient", 0): 0})
    assert not equivalent(table_graph(config), whole)


@pytest.mark.parametrize("config", [*configurations()[::7], configurations()[-1]], ids=name_of)
def test_the_engine_is_the_same(config: TableConfig):
    """Whoever reads the tables, and whatever the policy: so its proofs are about every table's."""

    def text(config: TableConfig) -> str:
        return rtlil.convert(CommandEngine(config), emit_src=False)

    assert text(config) == text(engine_config(config))


def test_the_record_is_what_the_policies_declare():
    """The matrix in the documents has no cell that is not as declared."""
    matrix = recorded()["configurations"]
    known = {name_of(config): config for config in configurations()}
    assert set(matrix) == set(known)
    for name, row in matrix.items():
        config = known[name]
        declared = policy(config.arbiter).guarantees(config)
        assert row["guarantees"].keys() == {*GUARANTEES, *declared}
        for guarantee, cell in row["guarantees"].items():
            assert cell["declared"] == (Guarantee(guarantee) in declared)
            assert (cell["verdict"] == Verdict.PROVED) == cell["declared"]


def test_the_table_in_the_documents_is_the_record():
    page = PAGE.read_text()
    assert page == with_table(page, recorded())


def test_touches_of_one_entry_merge():
    """Several touches of one entry in one cycle count as one, for all time."""
    config = TableConfig(**SMALL)
    design = Design("touches", lambda: TouchHarness(config), source_hash([*SOURCES]))
    assert prove(model(design), "differs").verdict is Verdict.PROVED


@pytest.mark.parametrize("width", [1, 2, 3, 4])
@pytest.mark.parametrize("output", ["idle", "several", "overtaken"])
def test_everybody_gets_a_turn(width: int, output: str):
    """Nobody who asks is passed over twice for the same, at whatever times they ask."""
    design = Design("turns", lambda: TurnsHarness(width), f"{source_hash(SOURCES)} {width}")
    assert prove(model(design), output).verdict is Verdict.PROVED


def test_no_command_is_overtaken():
    """Of commands that name one entry, a bind among them, the first to be accepted is first."""
    config = TableConfig(**{**SMALL, "sources": 3})
    design = Design("order", lambda: OrderHarness(config), source_hash(SOURCES))
    legality = ["engine.worker.legality"]
    graph = model(design, legality).without(legality)
    assert prove(graph, "overtaken").verdict is Verdict.PROVED


def test_what_the_harness_does_not_have_is_not_proved():
    """A name that is spelt wrong is an error, and no proof."""
    graph = model(
        Design("touches", lambda: TouchHarness(TableConfig(**SMALL)), source_hash(SOURCES))
    )
    with pytest.raises(KeyError, match="difers"):
        prove(graph, "difers")
