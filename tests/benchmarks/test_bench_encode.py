"""The rows that the bench encodes are those that it decodes again."""

from __future__ import annotations

from benchmarks.workload import orders

from benchmarks import encode


def test_every_format_is_encoded_and_read_back() -> None:
    rates = list(encode.rates(orders(500)))
    assert len({rate.name for rate in rates}) == len(rates)
    assert all(rate.encode > 0 for rate in rates)
    only_encoded = [rate.name for rate in rates if not rate.decode]
    assert only_encoded == [
        "pyarrow.csv.write_csv",
        "canal-json messages",
        "open-protocol messages",
    ]
