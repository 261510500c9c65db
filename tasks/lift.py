"""How a library verb becomes a task: a name, and nothing that Prefect would do a second time.

A task is a batch. Retries are the library's, which knows what is worth one; caching is the receipts' and the cursor's;
results are small reports that stay in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from prefect import Task, task
from prefect.cache_policies import NO_CACHE

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def lift(function: Callable[Parameters, Result], name: str) -> Task[Parameters, Result]:
    """A task of this name that does what the function does."""
    return task(name=name, retries=0, cache_policy=NO_CACHE, persist_result=False)(function)
