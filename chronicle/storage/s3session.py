"""Sessions and clients of botocore, made fast: each verb is a process that makes one (docs/adr/0009).

What a client can do is described in files of some megabytes that are read when it is made. msgspec reads them four times
faster than the library itself, and nobody looks through the descriptions of four hundred other services.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import IO, Any

import msgspec
from botocore import UNSIGNED
from botocore.config import Config
from botocore.loaders import JSONFileLoader, Loader
from botocore.session import Session

from chronicle.storage.s3config import S3Options

CONNECT_SECONDS = 5.0
READ_SECONDS = 30.0
CONNECTIONS = 32


class _Reader(JSONFileLoader):  # type: ignore[misc]
    """Reads one description."""

    def _load_file(self, full_path: str, open_method: Callable[[str, str], IO[bytes]]) -> Any:
        if not os.path.isfile(full_path):
            return None
        with open_method(full_path, "rb") as file:
            return msgspec.json.decode(file.read())


class _Descriptions(Loader):  # type: ignore[misc]
    """Finds descriptions."""

    FILE_LOADER_CLASS = _Reader

    def list_available_services(self, type_name: str) -> list[str]:
        """All services, of which one may lack this type of description: the caller looks for its file anyway."""
        return sorted({name for folder in self.search_paths if os.path.isdir(folder) for name in os.listdir(folder)})


def session(profile: str | None = None) -> Any:
    """A session that takes keys and region from where AWS libraries look for them, or from a profile."""
    made = Session(profile=profile)
    extra = made.get_config_variable("data_path")
    made.register_component("data_loader", _Descriptions(extra.split(os.pathsep) if extra else None))
    return made


def client(chosen: S3Options, region: str) -> Any:
    """A client for S3 that sends each request once: who asked for it knows what a second time would mean.

    Raises what botocore raises for options that cannot work.
    """
    given = {
        "aws_access_key_id": chosen.key,
        "aws_secret_access_key": chosen.secret,
        "aws_session_token": chosen.token,
    }
    return session(None if chosen.key else chosen.profile).create_client(
        "s3",
        region_name=region,
        endpoint_url=chosen.endpoint,
        config=Config(
            retries={"total_max_attempts": 1},
            connect_timeout=CONNECT_SECONDS,
            read_timeout=READ_SECONDS,
            max_pool_connections=CONNECTIONS,
            s3={"addressing_style": "path" if chosen.endpoint else "auto"},
            # Stores that are not AWS know these checksums only in part.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            **({"signature_version": UNSIGNED} if chosen.anonymous else {}),
        ),
        **({} if chosen.anonymous else given),
    )
