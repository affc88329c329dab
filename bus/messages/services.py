"""The names of the services, without their messages: a command needs no more of most of them."""

SERVICES = ("bootstrap", "sources", "podsync", "volume", "pleg", "status", "server")
