"""Has the names of the services without their messages, because a command needs few of those."""

SERVICES = ("bootstrap", "sources", "podsync", "volume", "pleg", "status", "server")
