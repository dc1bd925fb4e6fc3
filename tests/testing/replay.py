"""Applies TiCDC's files in the plainest way there is, row by row, to say what the upstream model must have meant."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ticdc_files import SchemaFile, canal_change, csv_changes, read_schema_file

from headrace.model.table import TableId
from headrace.testing.ticdc_options import ChangefeedOptions
from headrace.testing.ticdc_writer import RowChange

Row = dict[str, object]
_DROP_DATABASE, _DROP_TABLE, _ADD_COLUMN, _DROP_COLUMN, _TRUNCATE, _RENAME = 2, 4, 5, 6, 11, 14


@dataclass
class Replay:
    """Tables as bags of rows."""

    tables: dict[TableId, list[Row]] = field(default_factory=dict)

    def apply_schema_file(self, file: SchemaFile) -> None:
        table_id, rows = file.table_id, self.tables.get(file.table_id, [])
        if file.type_code == _DROP_DATABASE:
            for name in [name for name in self.tables if name.database == table_id.database]:
                del self.tables[name]
        if file.schema is None:
            return
        if file.type_code == _DROP_TABLE:
            del self.tables[table_id]
            return
        if file.type_code == _RENAME:
            database, table = file.statement.removeprefix("RENAME TABLE `").split("` TO `")[0].split("`.`")
            rows = self.tables.pop(TableId(database, table))
        if file.type_code == _TRUNCATE:
            rows = []
        names = [column.name for column in file.schema.columns]
        if file.type_code == _ADD_COLUMN:
            rows = [row | {names[-1]: added_value(file)} for row in rows]
        if file.type_code == _DROP_COLUMN:
            rows = [{name: row[name] for name in names} for row in rows]
        self.tables[table_id] = rows

    def apply_changes(self, table_id: TableId, changes: list[RowChange]) -> None:
        rows = self.tables[table_id]
        for change in changes:
            if change.before is not None:
                rows.remove(dict(change.before))
        rows.extend(dict(change.after) for change in changes if change.after is not None)


def added_value(file: SchemaFile) -> object:
    assert file.schema is not None
    column = file.schema.columns[-1]
    if column.nullable and column.default is None:
        return None
    return int(column.default or 0) if column.type.kind == "INT" else column.default or ""


def replay(root: Path, options: ChangefeedOptions) -> dict[TableId, list[Row]]:
    """The tables that the files under ``root`` lead to. Needs commit ts and old values."""
    files = sorted((read_schema_file(path) for path in root.rglob("meta/schema_*.json")), key=lambda f: f.version)
    transactions: dict[tuple[int, TableId], list[RowChange]] = {}
    for file in files:
        folder = file.path.parent.parent / str(file.version)
        for path in sorted(p for p in folder.rglob("CDC*") if p.suffix in (".csv", ".json")):
            assert file.schema is not None
            data = path.read_bytes()
            lines = data.split(b"\r\n")[:-1]
            is_csv = options.protocol == "csv"
            found = csv_changes(data, options, file.schema) if is_csv else (canal_change(x, file.schema) for x in lines)
            for commit_ts, change in found:
                assert commit_ts > file.version
                transactions.setdefault((commit_ts, file.table_id), []).append(change)
    result = Replay()
    events = [(file.version, 0, file) for file in files] + [(ts, 1, table_id) for ts, table_id in transactions]
    for ts, _, event in sorted(events, key=lambda event: event[:2]):
        if isinstance(event, SchemaFile):
            result.apply_schema_file(event)
        else:
            result.apply_changes(event, transactions[ts, event])
    return result.tables


def as_bag(rows: list[Row]) -> list[list[tuple[str, object]]]:
    """Rows in an order of their own, to compare bags."""
    return sorted((sorted(row.items()) for row in rows), key=repr)
