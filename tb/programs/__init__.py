"""Programs: what sources and ports do, step by step, as text, at random, and played."""
