"""One consumer on a thread of its own, fed through a bounded queue.

Lance encodes outside the interpreter's lock, so a writer beside the thread that cuts and builds columns costs
nothing and halves the time; the bound keeps memory flat.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import TracebackType
from typing import Generic, Self, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


_START_SECONDS = 10.0
"""How long a thread whose start was interrupted may take to see that it is not wanted."""


class FeedAborted(Exception):
    """Raised inside the consumer's iterator after `abort`, so that it does not take a part for the whole."""


class _End:
    """Marks the end of the items."""


class Feed(Generic[Item, Result]):
    """Runs `consume(items)` on a thread; `put` hands it one item, `finish` ends the items and returns its result.

    For one producer. An exception of the consumer is raised in the producer by the next `put` or by `finish`,
    and never leaves it waiting on a full queue. Leaving a `with` block by an exception aborts.
    """

    def __init__(self, consume: Callable[[Iterator[Item]], Result], depth: int = 2) -> None:
        self._queue: queue.Queue[Item | _End] = queue.Queue(depth)
        self._future: Future[Result] = Future()
        self._ended = threading.Event()
        self._aborted = self._closed = False
        # A daemon: a producer that dies without `abort` must not keep the process alive.
        self._thread = threading.Thread(target=self._run, args=(consume,), name="chronicle-feed", daemon=True)
        try:
            self._thread.start()
        except BaseException:  # Ctrl-C while the thread begins: nobody would hold it to stop it
            self._aborted = True
            self._queue.put(_End())
            self._ended.wait(_START_SECONDS)
            raise

    def put(self, item: Item) -> None:
        """Hand over one item; waits while `depth` items are ahead. Raises what the consumer raised."""
        self._raise_if_ended()
        self._queue.put(item)

    def end(self) -> None:
        """Say that no more items come, and do not wait for the result; `put` must not be called any more."""
        if not (self._closed or self._ended.is_set()):
            self._queue.put(_End())
            self._closed = True

    def finish(self) -> Result:
        """End the items, wait for the consumer and return its result. Raises what it raised."""
        self.end()
        self._thread.join()
        return self._future.result()

    def abort(self) -> None:
        """Stop the consumer and wait for it. Never raises; a second call does nothing."""
        self._aborted = True
        if not self._ended.is_set():
            self._queue.put(_End())
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None:
            self.abort()

    def _run(self, consume: Callable[[Iterator[Item]], Result]) -> None:
        try:
            self._future.set_result(consume(self._items()))
        except BaseException as error:  # the border of the thread: whatever it is belongs to the producer
            self._future.set_exception(error)
        finally:
            self._ended.set()
            self._drain()

    def _items(self) -> Iterator[Item]:
        while not isinstance(item := self._queue.get(), _End):
            if self._aborted:
                break
            yield item
        if self._aborted:
            raise FeedAborted("the producer gave up")

    def _drain(self) -> None:
        # The producer may be waiting in `put`: make room, its next call sees that we ended.
        while True:
            try:
                self._queue.get_nowait()
            except queue.Empty:
                return

    def _raise_if_ended(self) -> None:
        if self._ended.is_set():
            self._future.result()
            raise RuntimeError("the consumer ended before its items did")
