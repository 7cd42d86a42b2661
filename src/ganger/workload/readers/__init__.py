"""Readers of the formats people have, one file each."""
