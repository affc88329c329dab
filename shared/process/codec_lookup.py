"""Imported for its effect: imports the text codecs that the agent and its libraries name.

Python imports a codec's module at its first use: a process that runs would then take it from files replaced meanwhile.
"""

import codecs

CODECS = ("ascii", "idna", "latin-1", "punycode", "utf-8", "utf-8-sig")  # idna: every name that aiohttp connects to

for _name in CODECS:
    codecs.lookup(_name)
