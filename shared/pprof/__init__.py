"""Profiles in the format of pprof: `profile.proto` and what writes it. Knows nothing of how they are sampled.

`profile_pb2.py` and `profile_pb2.pyi` are generated from `profile.proto` by `make proto`.
"""
