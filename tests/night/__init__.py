"""The night: every test, and what takes hours. `python -m tests.night --list`."""
