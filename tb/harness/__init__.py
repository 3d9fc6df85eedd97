"""A tiny design and tiny benches to test the harness with."""
