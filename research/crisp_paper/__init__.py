"""The CRISP paper: its printed numbers, and what this library makes of them."""
