"""Scripts: read, printed, refused with a sentence, and played."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtl.config import RetireScope, TableConfig
from sim import cli
from sim.cli import main
from sim.netlist import ROOT
from sim.request import parse_table, words_of
from tb.model.words import (
    Command,
    EntryKind,
    Key,
    Lookup,
    Opcode,
    Rights,
    what_counts,
)
from tb.needs import needs_icarus, needs_program
from tb.programs.program import Accepts, Ask, Dma, Order, Program, Step, Until, Wait
from tb.programs.script import ScriptError, parse, text_of
from tb.programs.strategies import programs
from tb.test_docs import quoted, rows, sections
from tb.variants import SIZE

CONFIG = TableConfig(**SIZE)
PAGE = ROOT / "docs" / "scripts.md"
EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*.script"))


# As text


def whole(bits: int) -> st.SearchStrategy[int]:
    return st.integers(0, 2**bits - 1)


def keys() -> st.SearchStrategy[Key]:
    return st.builds(Key, whole(24), whole(8))


def rights() -> st.SearchStrategy[Rights]:
    return st.builds(Rights, whole(5))


def steps() -> st.SearchStrategy[Step]:
    """Any step that there is, with anything in its fields."""
    port, source = st.integers(0, CONFIG.ports - 1), st.integers(0, CONFIG.sources - 1)
    commands = st.builds(
        Command,
        st.sampled_from(Opcode) | st.integers(len(Opcode), 15),
        keys(),
        variant=whole(8),
        kind=st.sampled_from(EntryKind),
        rights=rights(),
        remote_invalidate=st.booleans(),
        zero_based=st.booleans(),
        header_valid=st.booleans(),
        pd=whole(24),
        qpn=whole(24),
        base=whole(64),
        length=whole(65),
        page_shift=whole(5),
        offset=whole(31),
        first_translation=whole(6),
        translations=whole(6),
        frame=whole(40),
        parent=keys(),
    )
    lookups = st.builds(Lookup, keys(), whole(24), whole(24), rights(), whole(64), whole(32))
    cycles = st.integers(1, 1000)
    return st.one_of(
        st.builds(Order, source, commands.map(what_counts)),
        st.builds(Ask, port, lookups),
        st.builds(
            lambda ask, tag: Ask(ask.port, _tagged(ask.lookup, tag), True),
            st.builds(Ask, port, lookups),
            whole(2),
        ),
        st.builds(Wait, cycles),
        st.builds(Until, st.just("port"), port),
        st.builds(Until, st.just("source"), source),
        st.just(Until()),
        st.builds(Dma, port, st.lists(st.integers(0, 1000), min_size=1).map(tuple)),
        st.tuples(cycles, cycles).map(lambda pair: Accepts("port", 1, min(pair), max(pair))),
    )


def _tagged(lookup: Lookup, tag: int) -> Lookup:
    return Lookup(**{**vars(lookup), "tag": tag})


@settings(deadline=None, database=None, max_examples=40)
@given(st.lists(steps(), min_size=1).map(lambda steps: Program(tuple(steps))))
def test_what_is_printed_is_read_again(program: Program):
    assert parse(text_of(program), CONFIG) == program


@settings(deadline=None, database=None, max_examples=60)
@given(programs(CONFIG))
def test_random_programs_can_be_read_again(program: Program):
    """None of them has anything in a field that doesn't count."""
    assert parse(text_of(program), CONFIG) == program


def test_defaults_are_left_out():
    program = Program(
        (
            Order(1, Command(Opcode.REGISTER, Key(5), rights=Rights(31), length=8192)),
            Ask(2, Lookup(Key(5, 255), 0, 0, Rights(6), 0, 8)),
            Accepts("port", 0),
            Until(),
        )
    )
    assert text_of(program) == (
        "source 1 REGISTER key=5 rights=ALL length=0x2000\n"
        "port 2 lookup key=5:255 rights=REMOTE_READ|REMOTE_WRITE length=8\n"
        "port 0 accepts always\n"
        "wait quiet\n"
    )


def test_what_is_no_step_is_left_out():
    text = "# A comment\r\n\r\n  wait\t5 # five\r\n\nwait quiet"
    assert parse(text, CONFIG) == Program((Wait(5), Until()))


OPCODES = (
    "accepts or an opcode, one of REGISTER, WRITE_TRANSLATION, LOCAL_INVALIDATE, "
    "REMOTE_INVALIDATE, BIND, REREGISTER, DEREGISTER, QUERY, ALLOCATE, DEALLOCATE, "
    "FAST_REGISTER, or a number from 11 to 15"
)
WAITS = "a number from 1 to 1000000, by quiet, or by port or source and its number"
RIGHTS = "LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE, REMOTE_ATOMIC, BIND"
ACCEPTS = "accepts must be followed by always, or by numbers as in 1 of 1000"

MISTAKES = {
    "prot 0 lookup": "a step must begin with port, source or wait, not prot.",
    "port": "port must be followed by a number from 0 to 2, as the table has 3.",
    "port 3 lookup": "port must be followed by a number from 0 to 2, as the table has 3, not 3.",
    "port -1 lookup": "port must be followed by a number from 0 to 2, as the table has 3, not -1.",
    "source 3 QUERY": "source must be followed by a number from 0 to 2, as the table has 3, not 3.",
    "port 0": "port 0 must be followed by lookup, accepts or dma.",
    "port 0 REGISTER": "port 0 must be followed by lookup, accepts or dma, not REGISTER.",
    "source 0": f"source 0 must be followed by {OPCODES}.",
    "source 0 lookup": f"source 0 must be followed by {OPCODES}, not lookup.",
    "source 0 7 key=1": f"source 0 must be followed by {OPCODES}, not 7.",
    "wait": f"wait must be followed by {WAITS}.",
    "wait 0": f"wait must be followed by {WAITS}, not 0.",
    "wait 1000001": f"wait must be followed by {WAITS}, not 1000001.",
    "wait port 3": "port must be followed by a number from 0 to 2, as the table has 3, not 3.",
    "wait 5 6": "nothing must follow wait 5, but 6 does.",
    "wait quiet 0": "nothing must follow wait quiet, but 0 does.",
    "port 0 accepts": f"{ACCEPTS}.",
    "port 0 accepts never": f"{ACCEPTS}.",
    "port 0 accepts 2 of 1": f"{ACCEPTS}, not 2 of 1.",
    "port 0 accepts 0 of 4": f"{ACCEPTS}, not 0 of 4.",
    "port 0 accepts 1 in 4": f"{ACCEPTS}, not 1 in 4.",
    "port 0 accepts 1 of 1001": f"{ACCEPTS}, not 1 of 1001.",
    "port 0 dma": "dma must be followed by whole numbers from 0 to 1000.",
    "port 0 dma 1 x": "dma must be followed by whole numbers from 0 to 1000, not x.",
    "port 0 dma 1001": "dma must be followed by whole numbers from 0 to 1000, not 1001.",
    "source 0 QUERY": "a command must name key, as in key=5.",
    "port 0 lookup": "a lookup must name key and length, as in key=5.",
    "port 0 lookup key=1": "a lookup must name length, as in length=5.",
    "source 0 QUERY key": "key is not of the form field=value.",
    "source 0 QUERY key=1 key=2": "key must be given once, not as 1 and 2.",
    "source 0 BIND key=1 lenght=5": "a command has no field lenght: did you mean length?",
    "port 0 lookup zzz=1": (
        "a lookup has no field zzz: it has key, pd, qpn, rights, address, length, tag."
    ),
    "source 0 QUERY key=x": "the index of key must be a whole number from 0 to 0xffffff, not x.",
    "source 0 QUERY key=": "the index of key must be a whole number from 0 to 0xffffff, not empty.",
    "source 0 QUERY key=16777216": (
        "the index of key must be a whole number from 0 to 0xffffff, not 16777216."
    ),
    "source 0 BIND key=1:256": (
        "the variant of key must be a whole number from 0 to 255, not 256."
    ),
    "source 0 REGISTER key=1 page_shift=32": (
        "page_shift must be a whole number from 0 to 31, not 32."
    ),
    "port 0 lookup key=1 length=8 tag=4": "tag must be a whole number from 0 to 3, not 4.",
    "source 0 ALLOCATE key=1 first_translation=64": (
        "first_translation must be a whole number from 0 to 63, not 64."
    ),
    "source 0 BIND key=1 pd=\uff11": "pd must be a whole number from 0 to 0xffffff, not \uff11.",
    "source 0 BIND key=1 pd=1_0": "pd must be a whole number from 0 to 0xffffff, not 1_0.",
    "source 0 BIND key=1 zero_based=yes": "zero_based must be 0 or 1, not yes.",
    "source 0 ALLOCATE key=1 kind=WINDOW": (
        "kind must be one of REGION, WINDOW_1, WINDOW_2A, WINDOW_2B, not WINDOW."
    ),
    "source 0 BIND key=1 rights=READ": (
        f"rights must be ALL, NONE, or some of {RIGHTS} with | between them, not READ."
    ),
    "source 0 DEREGISTER key=1 pd=0": "pd doesn't count for DEREGISTER: leave it out.",
    "source 0 DEREGISTER key=1:0x11": (
        "the variant of key doesn't count for DEREGISTER: leave it out."
    ),
    "source 0 12 key=1 length=8": "length doesn't count for opcode 12: leave it out.",
    "source 0 QUERY key=\x1b[31m": (
        r"the index of key must be a whole number from 0 to 0xffffff, not '\x1b[31m'."
    ),
}


@pytest.mark.parametrize("line", MISTAKES)
def test_mistakes(line: str):
    with pytest.raises(ScriptError) as caught:
        parse(f"wait 1\n# The next one is wrong.\n{line}\nwait 2\n", CONFIG)
    assert (caught.value.line, caught.value.reason) == (3, MISTAKES[line])


FIELDS: dict[str, str] = {
    **dict.fromkeys(("variant", "pd", "qpn", "base", "length", "page_shift", "offset"), "1"),
    **dict.fromkeys(("first_translation", "translations", "frame", "parent"), "1"),
    **dict.fromkeys(("remote_invalidate", "zero_based", "header_valid"), "1"),
    "kind": "REGION",
    "rights": "ALL",
}


def complaint(line: str) -> str:
    """What is said of a script of this line, if anything."""
    try:
        parse(line, CONFIG)
    except ScriptError as error:
        return error.reason
    return ""


@pytest.mark.parametrize("opcode", list(Opcode), ids=lambda opcode: opcode.name)
def test_what_never_counts_is_refused(opcode: Opcode):
    """The page has, for each opcode, what isn't."""
    listed = {row[0].strip("`"): row[1] for row in rows(sections(PAGE)["What counts"])}
    line = f"source 0 {opcode.name} key=1"
    said = {name: complaint(f"{line} {name}={value}") for name, value in FIELDS.items()}
    said["key:variant"] = complaint(f"{line}:1").replace("the variant of key", "key:variant")
    counts = set(quoted(listed[opcode.name]))
    assert said == {
        name: "" if name in counts else f"{name} doesn't count for {opcode.name}: leave it out."
        for name in said
    }


@pytest.mark.parametrize("text", ["", "\n\n", "# Nothing\n"])
def test_nothing(text: str):
    with pytest.raises(ScriptError, match=r"^it has no steps$"):
        parse(text, CONFIG)


def test_sizes_are_those_of_the_table():
    """The same script is fine for one table, and not for another."""
    text = "port 4 lookup key=1 length=8 tag=15\n"
    wide = parse(text, TableConfig(ports=5))
    assert wide.steps == (Ask(4, Lookup(Key(1), 0, 0, Rights(0), 0, 8, 15), True),)
    with pytest.raises(ScriptError, match="not 4"):
        parse(text, TableConfig(ports=4))


def test_the_page_says_the_same():
    """The example is that of the file, and each sentence is what is said."""
    page = PAGE.read_text()
    assert f"```\n{(ROOT / 'docs' / 'examples' / 'deregister.script').read_text()}```" in page
    _, _, table = page.partition("| line 7 | sentence |\n|---|---|\n")
    said = re.findall(r"^\| `(.+)` \| `(.+)` \|$", table.replace(r"\|", "|"), re.MULTILINE)
    assert len(said) > 10
    for line, sentence in said:
        assert MISTAKES[line] == sentence


# What is typed


def test_files_that_are_no_script(refused: Callable[..., str], tmp_path: Path):
    file = tmp_path / "a.script"
    file.write_text("# Nothing\n")
    said = refused(f"SCRIPT={file}", verb="waves")
    assert said == f"SCRIPT={file} can't be played: it has no steps."
    file.write_text("wait 1\nwait quite\n")
    assert refused(f"SCRIPT={file}").startswith(f"SCRIPT={file}, line 2: wait must be followed by ")
    file.write_text("port 1 dma 1\n")
    assert refused(f"SCRIPT={file}", "PORTS=1") == (
        f"SCRIPT={file}, line 1: port must be followed by a number from 0 to 0, "
        "as the table has 1, not 1."
    )


@pytest.mark.parametrize(
    "typed", ["SEED=1", "LOOKUPS=5", "QPS=1", "DMA_CYCLES=3", "BACKPRESSURE=half", "CAPTURE=x"]
)
def test_a_script_decides_what_happens(refused: Callable[..., str], typed: str):
    assert refused(f"SCRIPT={EXAMPLES[0]}", typed) == (
        f"{typed} must be left out: SCRIPT decides it."
    )


def test_a_script_and_a_case(refused: Callable[..., str]):
    said = refused(f"SCRIPT={EXAMPLES[0].name}", "CASE=apply_now-fresh_dma")
    assert said == f"SCRIPT={EXAMPLES[0].name} must be left out: CASE decides it."


def test_table_has_to_be_watched(refused: Callable[..., str]):
    assert refused(f"SCRIPT={EXAMPLES[0]}", "GHOST_VERSION=0").startswith("GHOST_VERSION must be 1")


def test_a_table_can_be_typed_again():
    config = TableConfig(**SIZE, arbiter="squash", ghost_version=False, scope=RetireScope.LOOKUP)
    assert parse_table(words_of(config)) == config
    assert words_of(TableConfig()) == []


# Played


QUICK = [*words_of(CONFIG), "SIM=icarus"]
"""A small table, that other tests have built, too."""


@needs_icarus
def test_it_is_shown(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """GTKWave is opened on a dump of the whole script."""
    needs_program("fst2vcd")
    opened: list[Path] = []
    monkeypatch.setattr(cli, "open_in_gtkwave", lambda save: opened.append(save) or 0)
    assert main(["waves", f"SCRIPT={EXAMPLES[0]}", *QUICK]) == 0
    (save,) = opened
    assert save.parent == folder.resolve()
    assert re.findall(r"^\[markername\] (.+)$", save.read_text(), re.MULTILINE)


LAST_BEAT = """\
source 0 REGISTER key=0 rights=ALL base=0x100000 length=0x2000 translations=2 frame=256
wait quiet
port 1 accepts 1 of 12
port 1 lookup key=0 address=0x100000 length=8
port 1 lookup key=0 address=0x100000 length=8
source 0 REREGISTER key=0 rights=ALL base=0x100000 length=0x2000 first_translation=2 translations=2
"""
"""Found by hypothesis after some ten thousand steps."""


@needs_icarus
def test_the_last_beat_counts(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """A torn answer is taken in the very last cycle; the monitor is asked in the next one."""
    file = tmp_path / "last.script"
    file.write_text(LAST_BEAT)
    typed = [f"SCRIPT={file}", "ARBITER=apply_now", "SCOPE=lookup", *QUICK]
    assert main(["run", *typed]) == 0
    assert re.search(r"untorn +│ no +│ violated by 1 beat,", capsys.readouterr().out)


# Scripts of the pages


@needs_icarus
@pytest.mark.parametrize("script", EXAMPLES, ids=lambda script: script.stem)
def test_examples_are_played(folder: Path, capsys: pytest.CaptureFixture[str], script: Path):
    assert main(["run", f"SCRIPT={script}", "SIM=icarus"]) == 0
    said = capsys.readouterr().out
    assert "drain_fence held everything that it declares." in said
    assert f"repeat   make sim SCRIPT={script} SIM=icarus\n" in said


@needs_icarus
def test_the_page_has_what_is_printed(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """Lines of it, in order."""
    command = "make sim SCRIPT=docs/examples/deregister.script"
    _, _, block = PAGE.read_text().partition(f"```\n{command}\n\n")
    shown = [line for line in block.partition("\n```")[0].splitlines() if line != "..."]
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["run", *command.split()[2:], "SIM=icarus"]) == 0
    printed = iter(capsys.readouterr().out.splitlines())
    assert len(shown) >= 20
    assert [line for line in shown if line not in printed] == []


@needs_icarus
@pytest.mark.parametrize(
    ("policy", "told"),
    [
        ("drain_fence", "which the arbiter holds back"),
        ("version_check", "tag 0 is killed"),
        ("apply_now", "fresh_dma is violated"),
    ],
)
def test_the_example_tells_policies_apart(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    policy: str,
    told: str,
):
    # So that no line is broken.
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["run", f"SCRIPT={EXAMPLES[0]}", f"ARBITER={policy}", *QUICK]) == 0
    assert told in capsys.readouterr().out
