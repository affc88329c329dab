"""What travels on the bus: one module per owner, frozen dataclasses only; every one has a section in PROTOCOL.md.

Pure: no asyncio, zmq, grpc, subprocess, socket, time, os, pathlib, random.
"""
