"""Builds the files of a release from the checkout: a wheel, a Debian package and a container image.

The same commit gives the same bytes, on one release of Debian: all times are SOURCE_DATE_EPOCH, by default that of the
last commit. `python -m tools.release` is `make release`.
"""
