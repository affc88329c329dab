"""The files of a release, built from the checkout: a wheel and a Debian package, with their SHA256SUMS.

The same commit gives the same bytes, on one release of Debian: all times are SOURCE_DATE_EPOCH, by default that of the
last commit. `python -m tools.release` is `make release`.
"""
