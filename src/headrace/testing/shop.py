"""The demo's small shop: a day and a half of changes in TiCDC's CSV format, ending now.

Everything except the time is the same for one seed, so that the numbers that the demo prints can be checked.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from headrace.model.table import Column, TableId
from headrace.model.types import ColumnType, TypeKind
from headrace.testing.ticdc_writer import TicdcWriter
from headrace.testing.upstream import Delete, Insert, Row, Statement, Update, Upstream

DATABASE = "shop"
CUSTOMERS = TableId(DATABASE, "customers")
PRODUCTS = TableId(DATABASE, "products")
ORDERS = TableId(DATABASE, "orders")
ORDER_ITEMS = TableId(DATABASE, "order_items")
CARTS = TableId(DATABASE, "carts_tmp")
IMPORTED = TableId(DATABASE, "import_staging")

_DURATION = timedelta(hours=36)
_CUSTOMERS, _PRODUCTS, _ORDERS = 200, 80, 800
_STATES = ("new", "paid", "shipped", "cancelled")
_FIRST_NAMES = ("Aiko", "Björn", "Chloé", "Dmitri", "Emma", "Fatima", "Giulia", "Hans", "Inés", "Jun", "Kwame", "Łukasz", "美咲")
_LAST_NAMES = ("Almeida", "Brown", "Çelik", "Dubois", "Eriksen", "Fischer", "García", "O'Hara", "Ito", "Kowalski", "Nguyễn")
_THINGS = ("kettle", "teapot", "cup", "saucer", "tray", "strainer", "tin", "spoon", "whisk", "scale")
_COLOURS = ("black", "blue", "clear", "copper", "green", "white")


@dataclass(frozen=True)
class Shop:
    """What was written. ``rows`` are the final row counts by table; ``checkpoint_ts`` is the TSO in ``metadata``."""

    root: Path
    source_uri: str
    changefeed_toml: str
    checkpoint_ts: int
    changes: int
    schema_changes: int
    rows: dict[TableId, int]
    upstream: Upstream

    def expected_rows(self, table_id: TableId) -> list[Row]:
        """The rows that a target must hold at the end, in canonical values."""
        return self.upstream.expected_rows(table_id)


def write_shop(root: Path, *, seed: int = 1, end: datetime | None = None) -> Shop:
    """Writes the shop's changes under ``root``. The last one is a second before ``end`` (default: now)."""
    end = (end or datetime.now(UTC)).replace(microsecond=0)
    writer = TicdcWriter(root, "csv", include_commit_ts=True, date_separator="day")
    shop = _Story(Upstream(writer, end - _DURATION), random.Random(seed), end)
    shop.tell()
    upstream = shop.upstream
    return Shop(
        root=root,
        source_uri=writer.uri,
        changefeed_toml=writer.options.changefeed_toml(),
        checkpoint_ts=upstream.checkpoint(),
        changes=upstream.changes,
        schema_changes=upstream.schema_changes,
        rows=upstream.expected_counts(),
        upstream=upstream,
    )


class _Story:
    """The events in the shop, in order."""

    def __init__(self, upstream: Upstream, chance: random.Random, end: datetime) -> None:
        self.upstream = upstream
        self._chance = chance
        self._end = end
        self._open_orders: list[int] = []
        self._skus: list[str] = []
        self._orders = 0

    def tell(self) -> None:
        self._open_shop()
        events = {
            _ORDERS // 8: self._drop_import,
            _ORDERS // 4: self._add_loyalty,
            _ORDERS // 2: self._move_key,
            _ORDERS * 5 // 8: self._empty_carts,
            _ORDERS * 3 // 4: self._drop_fax,
        }
        while self._orders < _ORDERS:
            self._pass_time()
            self._place_order()
            self._go_on_with_orders()
            self._fill_cart()
            events.get(self._orders, lambda: None)()
            if self._orders % 100 == 0:
                self.upstream.checkpoint()
        self._pass_time()
        self._correct_customers()

    def _open_shop(self) -> None:
        upstream = self.upstream
        upstream.create_database(DATABASE)
        for table_id, columns in _TABLES.items():
            upstream.create_table(table_id, columns)
        for start in range(0, _PRODUCTS, 20):
            upstream.execute(*[Insert(PRODUCTS, self._product(number)) for number in range(start, start + 20)])
        for start in range(0, _CUSTOMERS, 50):
            upstream.execute(*[Insert(CUSTOMERS, self._customer(number)) for number in range(start + 1, start + 51)])
        upstream.execute(*[Insert(IMPORTED, {"id": n, "line": f'{n};legacy;\\N;"x"'}) for n in range(40)])

    def _product(self, number: int) -> Row:
        sku = f"T-{number:03d}"
        self._skus.append(sku)
        colour, thing = self._chance.choice(_COLOURS), _THINGS[number % len(_THINGS)]
        attributes = json.dumps({"colour": colour, "grams": self._chance.randint(20, 2000)})
        return {
            "sku": sku,
            "title": f'{colour.title()} {thing}, "{number}"',
            "price": f"{self._chance.randint(300, 9900) / 100:.2f}",
            "stock": self._chance.randint(50, 500),
            "attributes": attributes,
        }

    def _customer(self, number: int) -> Row:
        name = f"{self._chance.choice(_FIRST_NAMES)} {self._chance.choice(_LAST_NAMES)}"
        return {
            "id": number,
            "name": name,
            "email": f"customer{number}@example.com" if self._chance.random() < 0.9 else None,
            "fax": f"+49 30 {number:05d}" if self._chance.random() < 0.1 else None,
            "joined": f"{2019 + number % 7}-{number % 12 + 1:02d}-{number % 28 + 1:02d}",
        }

    def _place_order(self) -> None:
        upstream, chance = self.upstream, self._chance
        self._orders += 1
        number, cents, items = self._orders, 0, list[Statement]()
        for line, sku in enumerate(chance.sample(self._skus, chance.randint(1, 4)), start=1):
            price = str(upstream.row(PRODUCTS, (sku,))["price"])
            quantity = chance.randint(1, 3)
            cents += quantity * int(price.replace(".", ""))
            item = {"order_id": number, "line": line, "sku": sku, "quantity": quantity, "price": price}
            items.append(Insert(ORDER_ITEMS, item))
        order = {
            "id": number,
            "customer_id": chance.randint(1, _CUSTOMERS),
            "state": "new",
            "total": f"{cents // 100}.{cents % 100:02d}",
            "placed_at": f"{upstream.now:%Y-%m-%d %H:%M:%S.%f}"[:-3],
        }
        upstream.execute(Insert(ORDERS, order), *items)
        self._open_orders.append(number)

    def _go_on_with_orders(self) -> None:
        """Some earlier orders are paid, shipped or cancelled. A few cancelled ones are deleted with their items."""
        upstream, chance = self.upstream, self._chance
        for number in chance.sample(self._open_orders, min(2, len(self._open_orders))):
            state = str(upstream.row(ORDERS, (number,))["state"])
            if state in ("cancelled", "shipped"):
                self._open_orders.remove(number)
                if state == "cancelled":
                    lines = [key for key in upstream.keys(ORDER_ITEMS) if key[0] == number]
                    upstream.execute(Delete(ORDERS, (number,)), *[Delete(ORDER_ITEMS, key) for key in lines])
                continue
            following = "cancelled" if chance.random() < 0.05 else _STATES[_STATES.index(state) + 1]
            upstream.execute(Update(ORDERS, (number,), {"state": following}))

    def _fill_cart(self) -> None:
        cart = {"session": f"{self._chance.getrandbits(64):016x}", "sku": self._chance.choice(self._skus)}
        self.upstream.execute(Insert(CARTS, cart))

    def _drop_import(self) -> None:
        self.upstream.drop_table(IMPORTED)

    def _add_loyalty(self) -> None:
        points = Column("points", ColumnType(TypeKind.INT), nullable=False, default="100")
        self.upstream.add_column(CUSTOMERS, points)

    def _move_key(self) -> None:
        """A product gets a new key: a delete and an insert with the same commit ts."""
        self.upstream.execute(Update(PRODUCTS, ("T-007",), {"sku": "T-007B"}))
        self._skus[self._skus.index("T-007")] = "T-007B"

    def _empty_carts(self) -> None:
        self.upstream.truncate_table(CARTS)

    def _drop_fax(self) -> None:
        self.upstream.drop_column(CUSTOMERS, "fax")

    def _correct_customers(self) -> None:
        for number in self._chance.sample(range(1, _CUSTOMERS + 1), 40):
            points = self._chance.randint(0, 900)
            self.upstream.execute(Update(CUSTOMERS, (number,), {"points": points}))

    def _pass_time(self) -> None:
        """Spreads the remaining events over the remaining time, and keeps a second at the end."""
        left = self._end - timedelta(seconds=1) - self.upstream.now
        self.upstream.advance(max(0, left // timedelta(milliseconds=1) // (_ORDERS - self._orders + 1)))


def _text(length: int) -> ColumnType:
    return ColumnType(TypeKind.VARCHAR, length=length)


_MONEY = ColumnType(TypeKind.DECIMAL, length=10, scale=2)
_NUMBER = ColumnType(TypeKind.INT)
_BIG_NUMBER = ColumnType(TypeKind.BIGINT)
_TABLES = {
    CUSTOMERS: (
        Column("id", _BIG_NUMBER, primary_key=True),
        Column("name", _text(80), nullable=False),
        Column("email", _text(120)),
        Column("fax", _text(40)),
        Column("joined", ColumnType(TypeKind.DATE)),
    ),
    PRODUCTS: (
        Column("sku", _text(16), primary_key=True),
        Column("title", _text(120), nullable=False),
        Column("price", _MONEY, nullable=False),
        Column("stock", _NUMBER, nullable=False, default="0"),
        Column("attributes", ColumnType(TypeKind.JSON)),
    ),
    ORDERS: (
        Column("id", _BIG_NUMBER, primary_key=True),
        Column("customer_id", _BIG_NUMBER, nullable=False),
        Column("state", ColumnType(TypeKind.ENUM, elements=_STATES), nullable=False, default="new"),
        Column("total", _MONEY, nullable=False),
        Column("placed_at", ColumnType(TypeKind.TIMESTAMP, scale=3), nullable=False),
    ),
    ORDER_ITEMS: (
        Column("order_id", _BIG_NUMBER, primary_key=True),
        Column("line", _NUMBER, primary_key=True),
        Column("sku", _text(16), nullable=False),
        Column("quantity", _NUMBER, nullable=False),
        Column("price", _MONEY, nullable=False),
    ),
    CARTS: (Column("session", ColumnType(TypeKind.CHAR, length=16), primary_key=True), Column("sku", _text(16))),
    IMPORTED: (Column("id", _NUMBER, primary_key=True), Column("line", ColumnType(TypeKind.TEXT))),
}
