"""Decides which Events pods get about their volumes, and which pods are rejected because of them. Pure."""
