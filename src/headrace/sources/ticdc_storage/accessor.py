"""The objects in a changefeed's folder according to its schema files."""

from __future__ import annotations

from headrace.model.table import TableId, TableSchema
from headrace.sources.ticdc_storage.catalogue import Catalogue
from headrace.sources.ticdc_storage.folder import Folder
from headrace.sources.ticdc_storage.options import StorageOptions
from headrace.sources.ticdc_storage.position import StoragePosition
from headrace.sources.ticdc_storage.stores import StoreLocation


class StorageMetadataAccessor:
    """Databases, tables and shapes according to the schema files. The contract is ``MetadataAccessor``."""

    def __init__(self, location: StoreLocation, options: StorageOptions) -> None:
        self._location = location
        self._options = options

    def list_databases(self) -> list[str]:
        """The databases in schema files, sorted. In table-id mode, databases without tables are missing."""
        return sorted(self._catalogue().databases)

    def list_tables(self, database: str) -> list[TableId]:
        """The tables that exist after all schema changes, sorted."""
        return sorted(table for table in self._catalogue().tables if table.database == database)

    def get_table_schema(self, table_id: TableId) -> TableSchema:
        """The newest shape. Raises ``KeyError`` for an unknown table."""
        return self._catalogue().tables[table_id]

    def _catalogue(self) -> Catalogue:
        return Folder(self._location.open(), self._options).scan(StoragePosition())[1]
