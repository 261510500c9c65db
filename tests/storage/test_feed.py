"""The consumer on a thread: order, errors both ways, no hanging."""

import threading

import pytest

from chronicle.storage.feed import Feed, FeedAborted


def put_all(feed, items):
    for item in items:
        feed.put(item)


def test_items_arrive_in_order_and_the_result_comes_back():
    feed = Feed(list)
    for item in range(100):
        feed.put(item)
    assert feed.finish() == list(range(100))


def test_no_items():
    assert Feed(sum).finish() == 0


@pytest.mark.timeout(20)
def test_consumers_that_are_told_the_end_finish_side_by_side():
    all_at_their_end = threading.Barrier(3)

    def consume(items):
        found = list(items)
        all_at_their_end.wait()
        return found

    feeds = [Feed(consume) for _ in range(3)]
    for feed in feeds:
        feed.put(1)
    for feed in feeds:
        feed.end()
    assert [feed.finish() for feed in feeds] == [[1]] * 3


@pytest.mark.timeout(20)
def test_a_feed_that_was_told_the_end_can_be_given_up():
    def consume(items):
        list(items)
        raise KeyError("late")

    feed = Feed(consume, depth=1)
    feed.end()
    feed.end()
    feed.abort()
    with pytest.raises((KeyError, FeedAborted)):
        feed.finish()


@pytest.mark.timeout(20)
def test_an_error_of_the_consumer_reaches_a_producer_that_never_stops():
    def fails(items):
        for item in items:
            if item == 3:
                raise KeyError("three")

    feed = Feed(fails, depth=1)
    with pytest.raises(KeyError, match="three"):
        put_all(feed, range(1_000_000))
    with pytest.raises(KeyError):
        feed.finish()
    feed.abort()


@pytest.mark.timeout(20)
def test_an_error_at_the_first_item_with_a_full_queue():
    def fails(items):
        raise ValueError("at once")

    feed = Feed(fails, depth=1)
    with pytest.raises(ValueError, match="at once"):
        put_all(feed, range(1_000_000))


@pytest.mark.timeout(20)
def test_a_consumer_that_stops_early_is_not_taken_for_done():
    feed = Feed(next, depth=1)
    with pytest.raises(RuntimeError, match="ended before"):
        put_all(feed, range(1_000_000))


@pytest.mark.timeout(20)
def test_abort_stops_the_consumer_inside_its_iterator():
    seen = []

    def consume(items):
        try:
            seen.extend(items)
        except FeedAborted:
            seen.append("aborted")
            raise

    def produces():
        with Feed(consume) as feed:
            feed.put(1)
            feeds.append(feed)
            raise OSError("mine")

    feeds = []
    with pytest.raises(OSError, match="mine"):
        produces()
    assert seen[-1] == "aborted"
    with pytest.raises(FeedAborted):
        feeds[0].put(2)


@pytest.mark.timeout(20)
def test_ctrl_c_while_the_thread_begins_leaves_no_thread(monkeypatch):
    ended = []

    def consume(items):
        try:
            return list(items)
        finally:
            ended.append(True)

    class Interrupted(threading.Thread):
        def start(self):
            super().start()
            raise KeyboardInterrupt

    monkeypatch.setattr(threading, "Thread", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        Feed(consume)
    assert ended == [True]
