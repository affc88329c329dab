"""Decides the next image call of a pod, which credentials it gets, and which pods may use an image.

Must not know containers beyond the name of their image, nor the protocol of registries.
"""
