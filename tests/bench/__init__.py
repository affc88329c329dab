"""Measurements beside the tests: they print figures and judge nothing. `make bench` runs them."""
