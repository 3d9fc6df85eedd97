"""What is proved about the table, for all time."""
