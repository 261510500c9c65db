"""The flows: tables of contents of what runs under Prefect.

A module that defines a flow keeps its annotations as objects (no `from __future__ import annotations`): Prefect checks the
parameters of a served run against them in another process, where it does not find the names that strings would need.
"""
