"""What the detector is compared with groups transactions as the slides say, and both get the same keys."""

from __future__ import annotations

import numpy as np
from benchmarks.replay import keys_of_transactions
from benchmarks.union_set import UnionSet


def test_union_set_stalls_where_a_transaction_touches_two_groups() -> None:
    def drain(union: UnionSet) -> None:
        drained.append([union.take(worker, 0) or [] for worker in range(3)])
        for worker in range(3):
            union.acknowledge(worker)

    drained: list[list[list[int]]] = []
    union = UnionSet(3, drain)
    # DML1 to DML6 of the slides: keys of the primary key below 10, of the unique key from 10 on.
    union.add([[1, 12], [2, 13], [2, 13, 4], [1, 12], [1, 13], [5, 16]])
    assert [sorted(some) for some in drained] == [[[], [0, 3], [1, 2]]]
    assert (union.stalls, union.pending) == (1, 2)


def test_so_many_rows_repeat_the_keys_of_earlier_ones() -> None:
    for rate in (0, 1, 10, 50):
        keys = keys_of_transactions(20_000, rate).reshape(-1, 2)
        repeated = 100 * (1 - len(np.unique(keys[:, 0])) / len(keys))
        assert abs(repeated - rate) < 1
        assert len(np.unique(keys[:, 0])) == len(np.unique(keys[:, 1]))
