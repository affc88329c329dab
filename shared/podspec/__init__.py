"""Pure rules about pod specs that more than one service needs: quantities, QoS, resources, identity, defaulting,
validation. No I/O, no clock, no randomness, nothing from `bus` or `services`.
"""
