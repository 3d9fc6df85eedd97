"""Synthesizable model of a memory-region table that many queue pairs share."""
