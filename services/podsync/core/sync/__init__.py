"""Decides the next call for one pod: what to start, to stop, to remove, or what to wait for.

Must not know how a status looks, how a CRI message is built, or how a call is carried out.
"""
