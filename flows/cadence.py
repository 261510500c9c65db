"""Is a cron schedule one that Prefect takes? Asked of Prefect itself, in a child process.

Prefect reads its settings when it is imported, so this process must not import it before the server has an address.
"""

from __future__ import annotations

import os
import subprocess
import sys

from chronicle.errors import ConfigError
from infra.prefect_server import environment

_NO_SCHEDULE = 3


def check_cron(cron: str, timezone: str, where: str) -> None:
    """Raise ConfigError where `cron` or `timezone` is none; `where` names the place of the setting."""
    command = [sys.executable, "-m", __name__, cron, timezone]
    done = subprocess.run(command, env=os.environ | environment(os.environ), capture_output=True, text=True, check=False)
    if done.returncode == _NO_SCHEDULE:
        raise ConfigError(
            f"{where}: schedule.cron {cron!r} in timezone {timezone!r} is no schedule: {done.stdout.strip()}",
            hint='write five fields, like cron = "0 2 * * *", and a zone like timezone = "Europe/Berlin"',
        )


def _main(cron: str, timezone: str) -> int:
    from prefect.client.schemas.schedules import CronSchedule
    from pydantic import ValidationError

    try:
        CronSchedule(cron=cron, timezone=timezone)
    except ValidationError as error:
        sys.stdout.write("; ".join(each["msg"] for each in error.errors()))
        return _NO_SCHEDULE
    return 0


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
