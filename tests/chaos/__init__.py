"""The kill matrix: one real cluster taken through kills, each of which is to cost nothing but a few seconds."""
