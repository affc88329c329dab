"""What travels on the bus: one module per owner, frozen dataclasses only; every one has a section in PROTOCOL.md.

The comment of a field says what it means. `make docs` writes it into the table of that section, with the type.

Pure: no asyncio, zmq, grpc, subprocess, socket, time, os, pathlib, random.
"""
