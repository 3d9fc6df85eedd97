"""The reference model: what the table must answer, without any knowledge of the RTL."""
