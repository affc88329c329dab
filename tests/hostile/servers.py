"""A process whose TCP servers answer each connection with another attack, drawn by a seed: HTTP/1, HTTP/2, TLS.

Prints one JSON line with the ports, and ends when its standard input does.
"""

import asyncio
import contextlib
import json
import random
import ssl
import struct
import sys
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import uvloop

from services.bootstrap.adapters.serving_pair import make_self_signed
from tests.unit.http_get.frames import END_HEADERS, END_STREAM, SETTINGS, Frame, block, frame

HOST = "127.0.0.1"
LONGEST = 64 << 20  # bytes that one connection gets at most
OK = b"HTTP/1.1 200 OK\r\n"
HTTP_1_HEADS = (
    b"", b"\n", OK, OK + b"Transfer-Encoding: chunked\r\n\r\n", OK + b"Content-Length: 9999999999999999999\r\n\r\n",
    OK + b"\r\n", b"HTTP/1.1 302 Found\r\nLocation: /", b"HTTP/1.1 302 Found\r\nLocation: /x\r\n\r\n", b"HTTP/1.1 ",
    b"HTTP/1.0 500\r\n\r\n", b"HTTP/1.1 101 Switching\r\n\r\n", b"SSH-2.0-x\r\n", b"\x16\x03\x01\x02\x00",
)  # fmt: skip
HTTP_1_UNITS = (
    b"HTTP/1.1 100 \r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", b"A:\n", b"A: b\r\n", b"a", b"\n",
    b"\r\n",
    b"\0", b"1\r\na\r\n", b"0001;" + b"x" * 90 + b"\r\na\r\n", b"ffffffffffffffff\r\n", b"10;\r\n", b" \r\n", b":",
    b"\xff",
    b"A: " + b"b" * 60_000 + b"\r\n", b"../", b"%", b"//[", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
)  # fmt: skip
HEAD = frame(Frame.HEADERS, END_HEADERS, block((":status", "200")))
HTTP_2_HEADS = (
    b"", SETTINGS, SETTINGS, SETTINGS + HEAD, SETTINGS + HEAD, SETTINGS + frame(Frame.HEADERS, 0, block((":status",
    "200"))),
    SETTINGS + frame(Frame.HEADERS, 0, b""), frame(Frame.SETTINGS, 0, struct.pack(">HI", 1, 2**32 - 1), 0),
)  # fmt: skip
HTTP_2_UNITS = (
    SETTINGS,
    frame(Frame.SETTINGS, 0, b"".join(struct.pack(">HI", n % 6 + 1, 16384) for n in range(2_000)), 0),
    frame(Frame.PING, 0, b"12345678", 0),
    frame(Frame.CONTINUATION, 0),
    frame(Frame.CONTINUATION, 0, b"\x90" * 16_000),
    frame(Frame.CONTINUATION, 0, b"\xff" * 16_000),
    frame(Frame.HEADERS, END_HEADERS, block((":status", "103"))),
    frame(Frame.HEADERS, END_HEADERS, block((":status", "103")) + b"\x90" * 1_500),
    frame(Frame.HEADERS, END_HEADERS, block((":status", "200"), ("a", "\0" * 9_000))),
    frame(Frame.HEADERS, END_HEADERS, b"\x3f" + b"\xff" * 9_000),
    frame(Frame.DATA, 0),
    frame(Frame.DATA, 0, b"x"),
    frame(Frame.DATA, 8, b"\xff" + b"\0" * 255),
    frame(Frame.DATA, 0, b"x" * 16_384),
    frame(Frame.DATA, 0, b"\0\0\0\0\x02\x08\x01"),
    frame(8, 0, struct.pack(">I", 1), 0),
    frame(8, 0, struct.pack(">I", 2**31 - 1)),
    frame(2, 0, struct.pack(">IB", 3, 1)),
    frame(5, END_HEADERS, struct.pack(">I", 2) + block((":method", "GET"))),
    frame(Frame.RST_STREAM, 0, struct.pack(">I", 8), 3),
    frame(Frame.GOAWAY, 0, struct.pack(">II", 1, 0), 0),
    frame(Frame.HEADERS, END_HEADERS | END_STREAM, block(("grpc-status", "9" * 4_000), ("grpc-message", "%" * 4_000))),
    frame(0x77, 0),
    struct.pack(">IBI", 0xFFFFFF << 8 | Frame.DATA, 0, 1),
)


async def attack(draw: random.Random, writer: asyncio.StreamWriter, *, http_2: bool) -> None:
    """Send one answer: a beginning, then units without end, at once or byte by byte, and sometimes noise."""
    heads, units = (HTTP_2_HEADS, HTTP_2_UNITS) if http_2 else (HTTP_1_HEADS, HTTP_1_UNITS)
    writer.write(draw.choice(heads))
    chosen = draw.choices(units, k=draw.choice((1, 1, 2, 5)))
    if draw.random() < 0.1:
        chosen.append(draw.randbytes(draw.randint(1, 300)))
    unit = b"".join(chosen)
    if draw.random() < 0.15:  # slowly
        for byte in unit * 100:
            if writer.is_closing():
                return
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(draw.choice((0, 0.001, 0.02)))
        return
    most = draw.choice((len(unit), 5_000, 200_000, LONGEST))
    piece = unit * max(1, min(most, 256 << 10) // len(unit))
    for _ in range(max(1, most // len(piece))):
        if writer.is_closing():
            return
        writer.write(piece)
        await writer.drain()


async def serve(seed: str) -> None:
    """Serve until standard input ends."""
    number = 0

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal number
        number += 1
        draw = random.Random(f"{seed} {number}")
        tls = writer.get_extra_info("ssl_object")
        http_2 = tls.selected_alpn_protocol() == "h2" if tls is not None else draw.random() < 0.5
        with contextlib.suppress(OSError):
            await attack(draw, writer, http_2=http_2)
            if draw.random() < 0.5:
                await reader.read()
        writer.transport.abort()

    with TemporaryDirectory() as directory:
        certificate, key = Path(directory, "crt"), Path(directory, "key")
        for path, content in zip((certificate, key), make_self_signed("node", datetime.now(UTC)), strict=True):
            path.write_bytes(content)
        ports = []
        for protocols in (None, ["h2"], ["http/1.1"]):
            context = None
            if protocols is not None:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(certificate, key)
                context.set_alpn_protocols(protocols)
            server = await asyncio.start_server(connected, HOST, 0, ssl=context)
            ports.append(server.sockets[0].getsockname()[1])
    print(json.dumps(ports), flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1]))
