"""Fixtures of the conformance suite: one lake a module, one look a case."""

from __future__ import annotations

import pytest

from tests.conformance.spine import Lake, Seen, make_lake


@pytest.fixture(scope="module")
def lake(request, tmp_path_factory) -> Lake:
    """All files of the module's `case` taken through the tool."""
    case = request.module.case
    return make_lake(tmp_path_factory.mktemp("lake"), case.files, case.converted)


@pytest.fixture
def seen(request, lake) -> Seen:
    """What became of the file that a case names; the laws hold for it."""
    found = lake.of(request.param)
    found.check_laws()
    return found
