"""What the parts of the table show to whoever watches: the monitor, and the proofs.

None of it drives anything. What nobody watches leaves nothing in the netlist.
"""

from amaranth.lib import wiring
from amaranth.lib.wiring import Out

from rtl.config import TableConfig
from rtl.layouts import LookupStatus, beat_layout, entry_layout, stamp_layout, translation_layout


class AcceptedBeatSignature(wiring.Signature):
    """A beat is accepted in this cycle; ``admitted`` says that its lookup has a slot."""

    def __init__(self, config: TableConfig):
        super().__init__({"valid": Out(1), "admitted": Out(1), "beat": Out(beat_layout(config))})


class WatchedChangeSignature(wiring.Signature):
    """What the command of one source does in this cycle, for whoever watches.

    ``requested``, ``applied`` and ``completed`` are high in the cycles R, A and C of a command that
    changes its entry. From R to C ``in_progress`` is high, and ``first`` and ``count`` name the
    translations that the entry had before the command. ``version`` is that of the new entry.
    While ``held`` is high, the arbiter grants neither apply nor completion. A change that isn't
    ``arbitrated`` is a registration: no lookup in flight can have been let through before it.
    """

    def __init__(self, config: TableConfig):
        super().__init__(
            {
                "index": Out(config.index_bits),
                "in_progress": Out(1),
                "held": Out(1),
                "arbitrated": Out(1),
                "requested": Out(1),
                "applied": Out(1),
                "completed": Out(1),
                "first": Out(config.translation_bits),
                "count": Out(config.translation_bits + 1),
                "version": Out(config.ghost_width),
            }
        )


class WatchedDoorSignature(wiring.Signature):
    """What happens to the lookup that a port offers, for whoever watches.

    ``held`` and ``refused``: the arbiter makes it wait, or turns it away. ``leaves``: it is taken.
    """

    def __init__(self, config: TableConfig):
        super().__init__(
            {
                "valid": Out(1),
                "index": Out(config.index_bits),
                "held": Out(1),
                "refused": Out(1),
                "leaves": Out(1),
            }
        )


class WatchedStageSignature(wiring.Signature):
    """The lookup in one stage of a pipeline, for whoever watches.

    ``admitted`` says that it has a slot; ``begun``, that a beat of it is further down.
    """

    def __init__(self, config: TableConfig):
        super().__init__(
            {
                "valid": Out(1),
                "admitted": Out(1),
                "begun": Out(1),
                "port": Out(config.port_bits),
                "tag": Out(config.tag_bits),
                "index": Out(config.index_bits),
            }
        )


class WatchedNeedSignature(wiring.Signature):
    """What a lookup in a stage of a pipeline still has to read, for whoever watches.

    ``remaining`` bytes, from ``offset`` in the page of ``translation`` on. ``stamp`` is the one
    that all of its translations have to have. ``status`` is its own, whatever they hold.
    """

    def __init__(self, config: TableConfig):
        super().__init__(
            {
                "translation": Out(config.translation_bits),
                "offset": Out(config.page_shift_max),
                "remaining": Out(config.length_width),
                "page_shift": Out(range(config.page_shift_max + 1)),
                "stamp": Out(stamp_layout(config)),
                "status": Out(LookupStatus),
            }
        )


class WatchedReadsSignature(wiring.Signature):
    """What a pipeline reads, for whoever watches.

    ``check`` and ``walk`` are about the lookups in these stages. The one in deliver ``delivers``
    so many bytes, and ``expects`` to find that stamp. ``entry`` and ``row`` were read last: those
    ``of`` an index and ``at`` a place, in the last cycle in which ``reads_entry`` or ``reads_row``
    was high.
    """

    def __init__(self, config: TableConfig):
        super().__init__(
            {
                "check": Out(WatchedNeedSignature(config)),
                "walk": Out(WatchedNeedSignature(config)),
                "delivers": Out(config.length_width),
                "expects": Out(stamp_layout(config)),
                "reads_entry": Out(1),
                "of": Out(config.index_bits),
                "entry": Out(entry_layout(config)),
                "reads_row": Out(1),
                "at": Out(config.translation_bits),
                "row": Out(translation_layout(config)),
            }
        )


class WatchedRecordSignature(wiring.Signature):
    """What the monitor knows of the last lookup in a slot, for whoever watches.

    ``starts``: its entry is read in this cycle. From the next one on, ``changed`` says that the A
    of a change of it has been since, and ``outdated`` that its C has been, too. ``walking``: it
    hasn't had its last beat. ``answered``: it has had an OK beat.
    """

    def __init__(self, config: TableConfig):
        super().__init__(
            {
                "starts": Out(1),
                "walking": Out(1),
                "index": Out(config.index_bits),
                "changed": Out(1),
                "outdated": Out(1),
                "answered": Out(1),
            }
        )


class TermsSignature(wiring.Signature):
    """Terms of ``bounded_invalidation``, which may change only while nothing is in progress.

    C has to follow R within ``deadline`` cycles, if no beat and no completion waits for more than
    ``patience`` cycles to be taken, and no tag is returned later than that after the last beat of
    its lookup. With a ``deadline`` of 0, nothing is judged.
    """

    def __init__(self):
        super().__init__({"deadline": Out(TERM_BITS), "patience": Out(TERM_BITS)})


TERM_BITS = 16

AGE_BITS = TERM_BITS + 1
"""Bits of a count that goes beyond every deadline."""


DELIVER = 2
"""The stage of a pipeline whose beat is offered."""
