"""A piece of work in a process of its own, under a watch that can end it whatever it does (design 8).

DuckDB stops a statement at its next look at a flag, and counts the memory of its tables only: one call of a text function may
take minutes or gigabytes before it looks or counts. So what comes from anybody runs here. The watch sees the real memory of
the process and the time that its statement takes, not that of whoever reads the rows, and ends the process past either.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import pickle
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from tempfile import TemporaryDirectory
from typing import IO, Any

import msgspec

from chronicle.commandline.console import write
from chronicle.errors import ChronicleError, UsageError
from chronicle.sql.sandbox import Bounds, too_much_memory, too_much_time
from chronicle.storage import s3config

GRACE_SECONDS = 2.0
"""DuckDB may stop the statement by itself, which frees more than our end does."""
OVERHEAD_BYTES = 512 << 20
"""Of Python, Lance and Arrow, on top of what the statement may take."""
_POLL_SECONDS = 0.02
_CHUNK = 1 << 16
_LENGTH = 8
_PR_SET_PDEATHSIG = 1

Note = Callable[[str], None]


class Channel:
    """What the work tells its caller while it runs."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe

    def note(self, text: str) -> None:
        """Say a sentence."""
        self._send("note", text)

    def watch(self, seconds: float | None) -> None:
        """Begin a piece that may take so many seconds, or end it (None)."""
        self._send("watch", seconds)

    def done(self, result: Any) -> None:
        """The end of the work."""
        self._send("done", result)

    def failed(self, error: Exception) -> None:
        """Or its failure."""
        self._send("failed", error)

    def _send(self, what: str, value: Any) -> None:
        data = pickle.dumps((what, value))
        self._pipe.write(len(data).to_bytes(_LENGTH, "little") + data)
        self._pipe.flush()


def run(work: str, *arguments: Any, bounds: Bounds, note: Note) -> Any:
    """Call `module:function` with a Channel and the arguments, in another process, and return what it returns.

    Standard output is this process's; `note` is given the sentences of the channel. Raises what the function raises, and
    UsageError (kind `stopped`) where it takes more time or memory than the bounds allow, or dies.
    """
    sys.stdout.flush()
    # Ours to remove, also where somebody ends us: a process that is ended removes nothing.
    with _ending_in_order(), TemporaryDirectory(prefix="chronicle-query-") as spill:
        return _attended(pickle.dumps((work, arguments)), spill, bounds, note)


def _attended(task: bytes, spill: str, bounds: Bounds, note: Note) -> Any:
    request, ours = os.pipe()
    reply, theirs = os.pipe()
    with _deaf_child():
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, *map(str, (os.getpid(), request, theirs))],
            pass_fds=(request, theirs),
            stdout=None if _is_of_this_process(sys.stdout) else subprocess.PIPE,
            env={**os.environ, **s3config.exported(), "TMPDIR": spill},
        )
    try:
        os.close(request)
        os.close(theirs)
        with suppress(BrokenPipeError), open(ours, "wb") as pipe:  # it died: the reply will say so by its end
            pipe.write(task)
        return _Attendance(process, bounds, note).attend(reply)
    finally:
        process.kill()
        process.wait()
        os.close(reply)
        if process.stdout is not None:
            process.stdout.close()


@contextmanager
def _ending_in_order() -> Iterator[None]:
    """SIGTERM and SIGHUP end this process as an exit does, unless somebody else hears or ignores them."""
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:
                before[number] = signal.signal(number, _exit)
    try:
        yield
    finally:
        for sent, handler in before.items():
            signal.signal(sent, handler)


def _exit(number: int, _: object) -> None:
    sys.exit(128 + number)


@contextmanager
def _deaf_child() -> Iterator[None]:
    """A process that is started in here does not hear Ctrl-C: the caller does, and ends it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _is_of_this_process(stream: Any) -> bool:
    """Whether a child that inherits its descriptor writes to the same place."""
    try:
        return bool(stream.fileno() == 1)
    except (OSError, ValueError, AttributeError):
        return False


class _Attendance(msgspec.Struct):
    """Watching one process to its end."""

    process: subprocess.Popen[bytes]
    bounds: Bounds
    note: Note
    _deadline: float | None = None
    _received: bytearray = bytearray()
    _outcome: tuple[str, Any] | None = None

    def attend(self, reply: int) -> Any:
        """Hear what it says until it has said all. Raises as `run` does."""
        with selectors.DefaultSelector() as selector:
            selector.register(reply, selectors.EVENT_READ)
            if self.process.stdout is not None:
                selector.register(self.process.stdout.fileno(), selectors.EVENT_READ)
            while selector.get_map():
                for key, _ in selector.select(_POLL_SECONDS):
                    if not self._take(key.fd, is_reply=key.fd == reply):
                        selector.unregister(key.fd)
                self._check()
        if self._outcome is None:
            raise self._died()
        what, value = self._outcome
        if what == "failed":
            raise value
        return value

    def _take(self, pipe: int, *, is_reply: bool) -> bool:
        data = os.read(pipe, _CHUNK)
        if is_reply:
            self._received += data
            for what, value in self._messages():
                self._hear(what, value)
        elif data:
            write(data)
        return bool(data)

    def _messages(self) -> Iterator[tuple[str, Any]]:
        while len(self._received) >= _LENGTH:
            end = _LENGTH + int.from_bytes(self._received[:_LENGTH], "little")
            if len(self._received) < end:
                return
            yield pickle.loads(self._received[_LENGTH:end])
            del self._received[:end]

    def _hear(self, what: str, value: Any) -> None:
        if what == "note":
            self.note(value)
        elif what == "watch":
            self._deadline = None if value is None else time.monotonic() + value + GRACE_SECONDS
        else:
            self._outcome = what, value

    def _check(self) -> None:
        if self._deadline is not None and time.monotonic() > self._deadline:
            raise too_much_time(self.bounds)
        if _memory_of(self.process.pid) > self.bounds.memory_bytes + OVERHEAD_BYTES:
            raise too_much_memory(self.bounds)

    def _died(self) -> ChronicleError:
        code = self.process.wait()
        if code < 0:
            name = signal.Signals(-code).name
            return UsageError(f"query stopped: its process ended by {name}", hint="narrow it", kind="stopped")
        return ChronicleError(
            f"the process of a query ended with code {code}",
            hint="this is a bug in chronicle: please report it with the output of the same command under CHRONICLE_DEBUG=1",
            kind="bug",
        )


def _memory_of(pid: int) -> int:
    """Bytes that a process holds for itself; 0 where nobody can say (it has ended, or this is no Linux)."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            _, resident, shared, *_ = map(int, file.read().split())
    except (OSError, ValueError):
        return 0
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")


def _serve(caller: int, request: int, reply: int) -> None:
    """Do the work that a caller asks for."""
    _die_with(caller)
    if not os.environ.get("CHRONICLE_DEBUG"):
        sys.excepthook = lambda *_: None  # the caller tells it
    with open(request, "rb") as pipe:
        work, arguments = pickle.load(pipe)
    module, name = work.split(":")
    with open(reply, "wb") as pipe:
        channel = Channel(pipe)
        try:
            result = getattr(importlib.import_module(module), name)(channel, *arguments)
            sys.stdout.flush()
        except Exception as error:
            channel.failed(error)
            raise
        channel.done(result)


def _die_with(caller: int) -> None:
    """End when the caller does, however that ends (Linux; elsewhere the bounds end it)."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != caller:
        sys.exit(1)


if __name__ == "__main__":
    _serve(*map(int, sys.argv[1:4]))
