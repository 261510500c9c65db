"""Every writer in an object store that sleeps through its turn; `make test` lets two of them sleep."""

from __future__ import annotations

import pytest

from tests.s3.conftest import client, place, server
from tests.s3.test_paused import (
    lake,
    test_a_maintenance,
    test_a_producer_with_its_own_fence,
    test_a_writer_of_tables,
    test_a_writer_of_tables_that_has_swapped,
    test_an_ingest,
)

__all__ = [
    "client",
    "lake",
    "place",
    "server",
    "test_a_maintenance",
    "test_a_producer_with_its_own_fence",
    "test_a_writer_of_tables",
    "test_a_writer_of_tables_that_has_swapped",
    "test_an_ingest",
]

pytestmark = pytest.mark.long
