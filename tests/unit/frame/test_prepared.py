"""Decoders that are built before the fork: all there are."""

import contextlib

from bus import codec
from bus.frames import AnswerHead
from bus.messages.beat import Beat
from bus.messages.sources import GetObject
from bus.messages.streams import STREAMS
from bus.prepared import prepare
from shared.config.effective import EffectiveConfig


def test_what_travels_finds_its_decoder_built() -> None:
    prepare()
    built = dict(codec._DECODERS)
    for one in (Beat, EffectiveConfig, AnswerHead, GetObject, *(stream.value for stream in STREAMS)):
        with contextlib.suppress(codec.UndecodableError):
            codec.decode(b"{}", one)
    assert built.keys() == codec._DECODERS.keys()
