"""Defines what is sent on the bus: one module per owner, only frozen structs, each with a section in PROTOCOL.md.

The comment of a field says what it means. `make docs` writes it with the type into the table of that section.

Pure: no asyncio, zmq, grpc, subprocess, socket, time, os, pathlib, random."""
