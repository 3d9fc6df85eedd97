"""Building and running: every call of a simulator or synthesiser lives in this package."""
