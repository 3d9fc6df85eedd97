"""The proofs: all configurations on all cores, and the matrix of what came of them."""

import dataclasses
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from rtl.arbiter.own import is_own
from rtl.config import TableConfig
from rtl.monitor import Guarantee
from sim.netlist import BUILD, ROOT, replace
from sim.prover import Verdict
from sim.typed import number_of
from tb.formal.case import CASES, Case, CaseError, load
from tb.formal.graphs import LAWFUL
from tb.formal.harness import SMALL, Harness
from tb.formal.lengths import PATIENCE
from tb.formal.matrix import Cell, configurations, name_of, solve
from tb.formal.recorder import case_of
from tb.variants import only

FOLDER = BUILD / "prove"
"""What the last proofs came to, and their cases."""

RECORD = ROOT / "docs" / "guarantees.json"
"""What the table in ``docs/guarantees.md`` says."""

PAGE = ROOT / "docs" / "guarantees.md"


def recorded() -> dict[str, Any]:
    """The matrix that is on record."""
    return json.loads(RECORD.read_text())


WIDTH = 500
"""More columns than the matrix takes on the terminal: it is only as wide as it has to be."""

BEGIN, END = "<!-- matrix: begin -->\n", "<!-- matrix: end -->\n"


@dataclass(frozen=True)
class ProofRequest:
    """What was asked for, checked.

    Parameters
    ----------
    arbiter : str, optional
        Only this policy.
    config : str
        Only configurations whose name holds this.
    guarantee : str
        Only guarantees whose name holds this.
    limit : int
        Seconds that one try may take.
    record : bool
        Keep what comes of it in the project: the table in the docs, and the cases.
    growth : bool
        One configuration, in larger and larger tables, see :mod:`sim.growth`.
    """

    arbiter: str | None
    config: str
    guarantee: str
    limit: int
    record: bool
    growth: bool

    def configurations(self) -> list[TableConfig]:
        """The configurations to prove."""
        if self.arbiter is not None:
            only(self.arbiter)
        return [c for c in configurations() if self.config in name_of(c)]


def run_proofs(request: ProofRequest, console: Console) -> int:
    """Proves and refutes, prints the matrix, and writes it.

    Returns 0 if every guarantee that is declared was proved and every other one refuted, and 1
    if not.
    """
    todo = request.configurations()
    cases = CASES if request.record else FOLDER / "cases"
    cases.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    rows: dict[str, dict[str, Any]] = {}
    with (
        Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("configurations"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        ) as progress,
        ProcessPoolExecutor(os.cpu_count()) as pool,
    ):
        task = progress.add_task("proving", total=len(todo))
        running = {
            pool.submit(
                prove_one, c, request.limit, cases, request.guarantee, request.record
            ): name_of(c)
            # The later policies take longer, and nobody waits for what comes first.
            for c in reversed(todo)
        }
        try:
            for done in as_completed(running):
                name = running[done]
                rows[name] = done.result()
                progress.advance(task)
                line = f"{name:56} {_counted(rows[name])}"
                progress.console.print(line, highlight=False, soft_wrap=True)
        except BaseException:
            # Nobody waits for what is left.
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    matrix = {
        "seconds": round(time.monotonic() - began, 1),
        "configurations": {name_of(c): rows[name_of(c)] for c in todo},
    }
    FOLDER.mkdir(parents=True, exist_ok=True)
    replace(FOLDER / "matrix.json", json.dumps(matrix, indent=1) + "\n")
    # Rows are longer than most terminals are wide: better wrapped than cut.
    wide = Console(file=console.file, width=WIDTH)
    wide.print(as_table(matrix), crop=False, soft_wrap=True)
    console.print(
        "ok n: proved, in n seconds    n, ≤n: refuted, in n cycles or less    ?: not decided\n"
        "ok n ≤m (k): C within m cycles of R, k with one port and one source, (≤k): enough\n"
        "!: not what the policy declares\n"
        "nothing: not claimed, or not asked for",
        highlight=False,
    )
    for line in complaints(matrix):
        console.print(line, highlight=False, soft_wrap=True)
    console.print(
        f"{number_of(len(todo), 'configuration')} in {matrix['seconds']} s", highlight=False
    )
    console.print("wrote    build/prove/matrix.json")
    if request.record:
        replace(RECORD, json.dumps(matrix, indent=1) + "\n")
        replace(PAGE, with_table(PAGE.read_text(), matrix))
        console.print("wrote    docs/guarantees.json, docs/guarantees.md, tb/formal/cases")
    return 1 if complaints(matrix) else 0


def prove_one(
    config: TableConfig, limit: int, cases: Path, part: str = "", every: bool = False
) -> dict[str, Any]:
    """One configuration: its row of the matrix.

    Writes the cases of what is refuted: ``every`` one, or those that nobody has yet, of a policy
    of somebody's own and of what isn't as declared. To make a case takes longer than to find it.
    """
    began = time.monotonic()
    lemmas: dict[str, Any] = {}
    cells: dict[str, Any] = {}
    for cell in solve(config, limit, part):
        entry = {"verdict": str(cell.verdict), "seconds": round(cell.seconds, 1)}
        if cell.name not in list(Guarantee):
            lemmas[cell.name] = entry
            continue
        entry["declared"] = cell.declared
        if cell.verdict is Verdict.REFUTED:
            entry |= {"cycles": cell.cycles, "shortest": cell.shortest}
        if cell.within:
            entry |= {"within": cell.within, "least": cell.least, "tight": bool(cell.trace)}
        if cell.trace and (every or is_own(config.arbiter) or not cell.right):
            entry["case"] = _record(config, cell, cases)
        cells[cell.name] = entry
    seconds = round(time.monotonic() - began, 1)
    return {"seconds": seconds, "lemmas": lemmas, "guarantees": cells}


def _record(config: TableConfig, cell: Cell, cases: Path) -> str | None:
    name = f"{name_of(config)}-{cell.name}"
    path = cases / f"{name}.json"
    if path.exists() and _shows(load(path), cell):
        # To make it again would take longer than all the rest.
        return name
    # Of a bound, that one cycle less would not be enough.
    patience, deadline = (PATIENCE, cell.least - 1) if cell.least else (None, 0)
    harness = Harness(dataclasses.replace(config, **cell.sizes), patience)
    try:
        case = case_of(name, harness, cell.trace, cell.name, always=LAWFUL, deadline=deadline)
    except CaseError:
        return None
    replace(path, case.to_json())
    return name


def _shows(case: Case, cell: Cell) -> bool:
    """The case is as long as the counterexample that was found, and of the same table."""
    sizes = all(getattr(case.config, name) == size for name, size in cell.sizes.items())
    before_ready = SMALL["entries"] + 2
    return sizes and case.cycle + before_ready == len(cell.trace)


def _counted(row: Mapping[str, Any]) -> str:
    verdicts = [cell["verdict"] for cell in row["guarantees"].values()]
    counts = [f"{verdicts.count(v)} {v}" for v in Verdict if verdicts.count(v)]
    return f"{', '.join(counts)} in {row['seconds']} s"


def mark(cell: Mapping[str, Any] | None) -> str:
    """A cell of the table, in a few characters; nothing for one that wasn't asked for."""
    if cell is None:
        return ""
    verdict = cell["verdict"]
    if "within" in cell:
        least = f" ({'' if cell['tight'] else '≤'}{cell['least']})" if cell["least"] else ""
        text = f"ok {cell['seconds']:.0f} ≤{cell['within']}{least}"
    elif verdict == Verdict.PROVED:
        text = f"ok {cell['seconds']:.0f}"
    elif verdict == Verdict.REFUTED:
        text = f"{'' if cell.get('shortest', True) else '≤'}{cell['cycles']}"
    else:
        return "?"
    return text if (verdict == Verdict.PROVED) == cell["declared"] else f"{text}!"


def complaints(matrix: Mapping[str, Any]) -> list[str]:
    """What is not as declared, in a sentence each."""
    found = []
    for name, row in matrix["configurations"].items():
        for guarantee, cell in row["guarantees"].items():
            verdict, declared = cell["verdict"], cell["declared"]
            if verdict == Verdict.UNDECIDED:
                found.append(f"{name}: {guarantee} is neither proved nor refuted.")
            elif verdict == Verdict.REFUTED and declared:
                found.append(
                    f"{name} declares {guarantee}, and violates it after "
                    f"{number_of(cell['cycles'], 'cycle')}: "
                    f"make waves CASE=build/prove/cases/{cell['case']}.json"
                )
            elif verdict == Verdict.PROVED and not declared:
                found.append(f"{name} gives {guarantee}, and doesn't declare it.")
            elif cell.get("case", "") is None:
                found.append(f"{name}: what was found for {guarantee} doesn't replay.")
    return found


def as_table(matrix: Mapping[str, Any]) -> Table:
    """The matrix for the terminal."""
    table = Table()
    table.add_column("configuration", no_wrap=True)
    for guarantee in Guarantee:
        table.add_column(guarantee.replace("_", "\n"), justify="right")
    for name, row in matrix["configurations"].items():
        table.add_row(name, *(mark(row["guarantees"].get(g)) for g in Guarantee))
    return table


def as_markdown(matrix: Mapping[str, Any]) -> str:
    """The matrix for the documents, without the seconds: they differ from run to run."""

    def lines() -> Iterator[str]:
        yield "| configuration | " + " | ".join(f"`{g}`" for g in Guarantee) + " |"
        yield "|---|" + "---|" * len(Guarantee)
        for name, row in matrix["configurations"].items():
            cells = [_word(row["guarantees"].get(g)) for g in Guarantee]
            yield f"| {name} | " + " | ".join(cells) + " |"

    return "\n".join(lines()) + "\n"


def _word(cell: Mapping[str, Any] | None) -> str:
    if cell is None:
        return "not claimed"
    if "within" in cell:
        least = f"{cell['least']}, tight" if cell["tight"] else f"at most {cell['least']}"
        return f"proved, {cell['within']} ({least})"
    if cell["verdict"] == Verdict.PROVED:
        return "proved"
    if cell["verdict"] == Verdict.REFUTED:
        return f"refuted, {'' if cell.get('shortest', True) else 'at most '}{cell['cycles']}"
    return "open"


def with_table(page: str, matrix: Mapping[str, Any]) -> str:
    """A page with the matrix in its place."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{as_markdown(matrix)}\n{END}{after}"


__all__: Sequence[str] = ("ProofRequest", "as_markdown", "prove_one", "run_proofs", "with_table")
