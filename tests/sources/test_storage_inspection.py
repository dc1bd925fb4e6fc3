"""What ``headrace inspect`` is told about a folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headrace.errors import SourceNotReadyError
from headrace.model.precision import CommitTsPrecision
from headrace.model.table import TableId
from headrace.sources.ticdc_storage import open_source
from headrace.sources.ticdc_storage.inspection import FindingKind
from storage_folder import OPTIONS, StorageFolder

CREATE = "CREATE TABLE `t` (`id` INT PRIMARY KEY,`v` VARCHAR(16))"
CASES = Path(__file__).parents[1] / "conformance" / "ticdc-storage"


@pytest.fixture
def folder(tmp_path: Path) -> StorageFolder:
    made = StorageFolder(tmp_path / "feed")
    made.checkpoint(200)
    made.schema("", 90, "CREATE DATABASE `test`")
    made.schema("t", 100, CREATE)
    return made


def test_tables_versions_files_and_rows_are_counted(folder: StorageFolder) -> None:
    folder.data("test/t/100", 1, "I 110 1 a", "I 120 2 b")
    folder.data("test/t/100", 2, "I 900 3 c")
    folder.schema("t", 250, "TRUNCATE TABLE `t`")
    found = open_source(folder.uri()).inspect(count_rows=True)
    assert found.checkpoint == 200
    assert found.lag_seconds is not None
    assert found.databases == ("test",)
    (table,) = found.tables
    assert (table.table_id, table.exists, table.files, table.rows) == (TableId("test", "t"), True, 2, 3)
    assert [(v.version, v.statement, v.rows) for v in table.versions] == [(100, CREATE, 3), (250, "TRUNCATE TABLE `t`", 0)]
    assert table.bytes == sum((folder.root / f"test/t/100/CDC00000{n}.csv").stat().st_size for n in (1, 2))
    assert found.findings == ()
    assert open_source(folder.uri()).inspect().tables[0].rows is None


def test_everything_that_looks_wrong_is_found(folder: StorageFolder) -> None:
    folder.data("test/t/100", 2, "I 110 1 a")
    folder.write("test/t/100/CDC000003.csv", "nonsense\n")
    folder.write("test/t/100/meta/CDC.index", "CDC000009.csv\n")
    folder.write("test/t/meta/schema_150_0000000001.json", folder.schema_text("t", 150))
    folder.write("test/u/meta/schema_150_0000000001.json", "{")
    folder.data("test/u/150", 1, "I 110 1 a")
    folder.data("test/lost/150", 1, "I 110 1 a")
    folder.write("README", "x")
    (folder.root / "metadata").unlink()
    kinds = {finding.kind for finding in open_source(folder.uri()).inspect(count_rows=True).findings}
    assert kinds == {
        FindingKind.NO_METADATA,
        FindingKind.GAP,
        FindingKind.INDEX_WITHOUT_DATA,
        FindingKind.CHECKSUM,
        FindingKind.BROKEN_SCHEMA,
        FindingKind.DATA_WITHOUT_SCHEMA,
        FindingKind.UNKNOWN_FILES,
        FindingKind.BROKEN_DATA,
    }


def test_a_folder_of_something_else_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SourceNotReadyError, match="is empty"):
        open_source(StorageFolder(tmp_path / "empty").uri()).inspect()


@pytest.mark.long
def test_nothing_of_spark_is_imported() -> None:
    code = "import sys, headrace.sources.ticdc_storage.inspection; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.long
def test_pandas_is_not_loaded_before_a_row_is_read() -> None:
    """Loading it takes longer than all else that a run loads which finds nothing to do."""
    modules = ("pipeline.runner", "sources.ticdc_storage.source", "sinks.duckdb.sink", "sinks.mysql.sink")
    imports = "; ".join(f"import headrace.{module}" for module in modules)
    assert (
        subprocess.run([sys.executable, "-c", f"{imports}; import sys; sys.exit('pandas' in sys.modules)"], check=False).returncode
        == 0
    )


@pytest.mark.parametrize("case", sorted(path.name for path in CASES.iterdir() if path.is_dir()))
def test_the_conformance_folders_have_nothing_wrong(case: str) -> None:
    protocol = "canal-json" if case.startswith("canal") else "csv"
    findings = open_source(f"file://{CASES / case / 'data'}?protocol={protocol}").inspect().findings
    assert [f.message for f in findings if f.kind is not FindingKind.REMARK] == []


def test_it_says_what_is_known_of_commit_timestamps(folder: StorageFolder) -> None:
    folder.data("test/t/100", 1, "I 110 1 a")
    assert open_source(folder.uri()).inspect().commit_ts is CommitTsPrecision.EXACT
    assert open_source(folder.uri(f"{OPTIONS}&include-commit-ts=false")).inspect().commit_ts is CommitTsPrecision.NONE
    canal = open_source(folder.uri("protocol=canal-json&enable-tidb-extension=false"))
    assert canal.inspect().commit_ts is CommitTsPrecision.MILLISECOND
