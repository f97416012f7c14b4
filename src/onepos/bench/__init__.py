"""Studies: which data, which runs, what is written down."""
