"""What there is to cover, what of it can't happen and why, and who watches a bench for it."""
