"""The reference model of a table of given sizes and choices."""

from rtl.config import SecondInvalidate, TableConfig, ZeroLength
from tb.model.table import Table


def table_of(config: TableConfig) -> Table:
    """An empty table."""
    return Table(
        config.entries,
        config.translations,
        config.address_width,
        config.page_shift_min,
        config.page_shift_max,
        config.physical_width,
        zero_length_is_checked=config.zero_length is ZeroLength.CHECK,
        second_invalidate_succeeds=config.second_invalidate is SecondInvalidate.SUCCESS,
    )
