"""The order of the times that Kafka keeps for records, over all ranges of a partition."""

from __future__ import annotations

import random
from collections.abc import Sequence

from headrace.sources.kafka.time_order import TimeOrder


def taken(order: TimeOrder, times: Sequence[int]) -> list[bool]:
    return [order.take(time) for time in times]


def test_a_record_is_earlier_than_any_before_it() -> None:
    assert taken(TimeOrder(), [5, 5, 9, 8, 5, 9, 10]) == [False, False, False, True, True, False, False]


def test_it_does_not_matter_where_ranges_begin() -> None:
    for seed in range(500):
        draw = random.Random(seed)
        times = [draw.choice([0, 1, 1_750_000_000_000, 1 << 61]) + draw.randrange(9) for _ in range(12)]
        cut = draw.randrange(13)
        order = TimeOrder(lambda time, before=tuple(times[:cut]): any(earlier > time for earlier in before))  # type: ignore[misc]
        assert taken(order, times[cut:]) == taken(TimeOrder(), times)[cut:], (seed, cut)


def test_kafka_is_asked_once_where_no_earlier_record_is_later() -> None:
    asked = []

    def has_later(time_ms: int) -> bool:
        asked.append(time_ms)
        return False

    assert taken(TimeOrder(has_later), [7, 8, 6]) == [False, False, True]
    assert asked == [7]
