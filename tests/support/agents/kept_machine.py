"""The variables of each agent that a test starts on this machine itself: it changes no kernel settings. An agent in a
machine of its own has none of them (`tests/support/machines/`, `tests/machine/`)."""

KEPT_MACHINE = {"BULKHEAD_KEEP_KERNEL_SETTINGS": "1"}
