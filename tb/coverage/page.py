"""The tables of ``docs/coverage.md`` that say what is covered, made from the bins and the rules."""

from collections.abc import Iterator

from rtl.arbiter import POLICIES
from rtl.config import RetireScope
from sim.rtl_coverage import CONSTANT, EXCUSES
from tb.coverage.bins import GROUPS
from tb.coverage.merged import judge
from tb.coverage.unreachable import Where

BEGIN, END = "<!-- tables: begin -->\n", "<!-- tables: end -->\n"


def tables() -> str:
    """All of them, as Markdown."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    everywhere = [Where(arbiter, scope) for arbiter in POLICIES for scope in RetireScope]
    results = judge({where: {} for where in everywhere})
    yield "| group | what | dimensions | bins | can't be hit | can be hit |"
    yield "|---|---|---|---|---|---|"
    for result in results:
        group = GROUPS[result.group]
        sizes = [f"{name} {len(bins)}" for name, bins in group.dimensions.items()]
        sizes += ["policy 6, scope 2"] * group.everywhere
        counts = [result.bins, result.unreachable.total(), result.reachable]
        cells = [f"`{result.group}`", group.title, ", ".join(sizes), *map(str, counts)]
        yield f"| {' | '.join(cells)} |"
    yield ""
    yield "| group | can't be hit | since |"
    yield "|---|---|---|"
    for result in results:
        for reason, count in sorted(result.unreachable.items()):
            yield f"| `{result.group}` | {count} | {reason} |"
    yield ""
    yield "| not seen in the hardware, since |"
    yield "|---|"
    for reason in (CONSTANT, *(excuse.reason for excuse in EXCUSES)):
        yield f"| {reason} |"


def with_tables(page: str) -> str:
    """A page with the tables in their place."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{tables()}\n{END}{after}"
