"""Exact least recently used."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.memory import Memory

from rtl.recency.seam import Recency


class Lru(Recency):
    """Keeps the order of use of the ways of each set; the last of the order is the victim.

    A set's state is the age of each of its ways, 0 for the most recently used. All touches of one
    cycle are folded in port order, so none is lost and none waits; that costs one read and one
    write port of the memory for each port and one more for the invalidation.

    Parameters
    ----------
    config : TableConfig
    """

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        ways, set_bits = config.ways, config.set_bits
        age_shape = data.ArrayLayout(range(ways), ways)
        # In the memory an age counts from that after reset, so that a cleared set is a fresh one.
        fresh = age_shape.const([ways - 1 - way for way in range(ways)]).as_value()
        memory = Memory(shape=len(fresh), depth=config.sets, init=[])
        m.submodules.memory = memory

        cleared = Signal(range(config.sets * 2))
        m.d.comb += self.ready.eq(cleared[-1])
        with m.If(~self.ready):
            m.d.sync += cleared.eq(cleared + 1)

        def read(name: str, chosen: Value) -> data.View:
            """The ages of a set, as they stood at the start of the cycle."""
            port = memory.read_port(domain="comb")
            ages = Signal(age_shape, name=name)
            m.d.comb += [port.addr.eq(chosen), Cat(ages).eq(port.data ^ fresh)]
            return ages

        # One event after another, each on what the latest earlier one of its set left behind.
        events = [(f"touch_{p}", touch, True) for p, touch in enumerate(self.touch)]
        events.append(("invalidate", self.invalidate, False))
        sets = [event.index[:set_bits] for _, event, _ in events]
        results: list[data.View] = []
        for place, (name, event, used) in enumerate(events):
            before = read(f"{name}_before", sets[place])
            for earlier in range(place):
                with m.If(events[earlier][1].valid & (sets[earlier] == sets[place])):
                    m.d.comb += before.eq(results[earlier])
            results.append(self._moved(m, name, before, event.index[set_bits:], used))

        for place, (_, event, _) in enumerate(events):
            port = memory.write_port()
            # Only the last event of a set writes it.
            overtaken = Cat(
                later.valid & (sets[place] == sets[place + 1 + distance])
                for distance, (_, later, _) in enumerate(events[place + 1 :])
            ).any()
            enable = event.valid & ~overtaken
            address, word = sets[place], Cat(results[place]) ^ fresh
            if place == 0:
                enable = enable | ~self.ready
                address = Mux(self.ready, address, cleared)
                word = Mux(self.ready, word, 0)
            m.d.comb += [port.en.eq(enable), port.addr.eq(address), port.data.eq(word)]

        ages = read("victim_ages", self.victim.set)
        for way in range(ways):
            with m.If(ages[way] == ways - 1):
                m.d.comb += self.victim.index.eq(Cat(self.victim.set, Const(way, range(ways))))
        return m

    def _moved(self, m: Module, name: str, old: data.View, way: Value, used: bool) -> data.View:
        """The ages after one way has moved to the front, or to the back, of the order."""
        ways = self.config.ways
        age = Signal(range(ways), name=f"{name}_age")
        new = Signal(data.ArrayLayout(range(ways), ways), name=f"{name}_after")
        m.d.comb += age.eq(Array(old[w] for w in range(ways))[way])
        for w in range(ways):
            m.d.comb += new[w].eq(old[w])
            if used:
                with m.If(old[w] < age):
                    m.d.comb += new[w].eq(old[w] + 1)
            else:
                with m.If(old[w] > age):
                    m.d.comb += new[w].eq(old[w] - 1)
            with m.If(way == w):
                m.d.comb += new[w].eq(0 if used else ways - 1)
        return new
