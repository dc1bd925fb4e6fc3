"""README and docs against the code: commands parse, options and links exist and none is missing, and the way they show works."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from pathlib import Path

import duckdb
import pytest
import typer

from headrace import errors
from headrace.cli.main import app
from headrace.engine.spark import session_settings
from headrace.errors import DefinitionError
from headrace.pipeline.registry import open_sink, open_source
from headrace.testing.shop import write_shop

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
CONNECTORS = sorted((ROOT / "docs" / "connectors").glob("*.md"))
SECTIONS = ["What it does", "Requirements", "Example", "Options", "Guarantees", "Limits", "Errors"]
GROUPS = {name: group.commands for name, group in typer.main.get_command(app).commands.items() if hasattr(group, "commands")}  # type: ignore[attr-defined]
COMMANDS = {n: c for n, c in typer.main.get_command(app).commands.items() if n not in GROUPS} | {  # type: ignore[attr-defined]
    f"{group} {name}": command for group, commands in GROUPS.items() for name, command in commands.items()
}

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def page_name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def page(name: str) -> str:
    return (ROOT / name).read_text()


def prose(path: Path) -> str:
    """A page without its fenced blocks."""
    return _FENCE.sub("", path.read_text())


def section(text: str, title: str) -> str:
    """A section of a page, up to the next title of its level."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, f"there is no section {title}"
    return found[1]


def table_rows(text: str) -> list[list[str]]:
    """The cells of all table rows, without the lines under headings."""
    rows = [re.split(r"(?<!\\)\|", line.strip("|")) for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows if set("".join(row)) - set("- ")]


def command_lines() -> Iterator[tuple[str, str]]:
    for path in PAGES:
        for language, block in _FENCE.findall(path.read_text()):
            if language in ("", "sh"):
                for line in block.replace("\\\n", " ").splitlines():
                    if line.startswith("headrace "):
                        yield page_name(path), line


def options_of(command: str) -> set[str]:
    return {name for parameter in COMMANDS[command].params for name in parameter.opts if name.startswith("-")}


def all_options() -> set[str]:
    return set().union(*map(options_of, COMMANDS)) | {"--help"}


def known_parameters(opener: Callable[[str], object], uri: str) -> set[str]:
    """Every parameter that the code accepts: the answer to an unknown one lists them."""
    with pytest.raises(DefinitionError) as refused:
        opener(f"{uri}?zzzzzzzzzz=1")
    listed = re.fullmatch(r"Known are: (.*)\.", refused.value.hint)
    assert listed is not None
    return set(listed[1].split(", "))


def documented_parameters(name: str) -> set[str]:
    """What a connector's page presents as parameters: in the tables of its options, and in its lists of accepted ones."""
    found: set[str] = set()
    options = section(page(name), "Options")
    heading: list[str] = []
    for line in options.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if cells and not heading:
            heading = cells
        elif not cells:
            heading = []
        elif heading[0] == "option":
            found.update(_CODE.findall(cells[0]))
        elif heading[1] == "options":
            found.update(_CODE.findall(re.sub(r"\([^)]*`true`[^)]*\)|\(`[^)]*:[^)]*\)", "", cells[1])))
    for paragraph in options.split("\n\n"):
        if paragraph.startswith("Accepted and without effect"):
            found.update(_CODE.findall(paragraph))
    return found


@pytest.mark.parametrize(("name", "line"), list(command_lines()))
def test_every_command_line_parses(name: str, line: str) -> None:
    _, command, *arguments = shlex.split(line, comments=True)
    if command in GROUPS:
        command, arguments = f"{command} {arguments[0]}", arguments[1:]
    assert command in COMMANDS, f"{name}: {line}"
    COMMANDS[command].make_context(command, arguments)


def test_there_are_command_lines_to_check() -> None:
    assert {shlex.split(line)[1] for _, line in command_lines()} >= {"run", "validate", "status", "inspect"}


@pytest.mark.parametrize("path", PAGES, ids=page_name)
def test_options_and_commands_named_in_the_text_exist(path: Path) -> None:
    spans = _CODE.findall(prose(path))
    unknown = {option for span in spans for option in re.findall(r"^--[a-z][\w-]*", span)} - all_options() - {"--tz"}
    assert not unknown
    named = {tuple(span.split()[1:3]) for span in spans if span.startswith("headrace ") and len(span.split()) > 1}
    assert all(words[0] in COMMANDS or (words[0] in GROUPS and " ".join(words) in {words[0], *COMMANDS}) for words in named), named


def test_the_table_of_options_is_complete_and_says_whose_they_are() -> None:
    told: dict[str, set[str]] = {}
    for cells in table_rows(section(page("docs/operations.md"), "Options"))[1:]:
        listed = [
            word for name in cells[1].split(", ") for word in ([f"{name} {c}" for c in GROUPS[name]] if name in GROUPS else [name])
        ]
        named = set(COMMANDS) - {"version"} if cells[1].startswith("all but version") else set(listed)
        told |= dict.fromkeys(_CODE.findall(cells[0]), named)
    held = {option: {command for command in COMMANDS if option in options_of(command)} for option in all_options() - {"--help"}}
    assert told == held


def test_the_readme_names_every_option_of_run_or_leads_to_it() -> None:
    readme = page("README.md")
    short = {"-s", "-t", "--help"}
    assert not {option for option in options_of("run") - short if option not in readme}


@pytest.mark.parametrize(
    ("name", "opener", "uri"),
    [
        ("docs/connectors/ticdc-storage.md", open_source, "file:///folder"),
        ("docs/connectors/kafka.md", open_source, "kafka://host/topic"),
        ("docs/connectors/mysql.md", open_sink, "mysql://host/"),
        ("docs/connectors/duckdb.md", open_sink, "duckdb:///file.duckdb"),
    ],
)
def test_every_parameter_is_documented_and_no_other(name: str, opener: Callable[[str], object], uri: str) -> None:
    assert documented_parameters(name) == known_parameters(opener, uri)


@pytest.mark.parametrize("uri", ["print://", "blackhole://"])
def test_print_and_blackhole_have_no_parameters(uri: str) -> None:
    with pytest.raises(DefinitionError, match="no host, path or parameters"):
        open_sink(f"{uri}?anything=1")


def test_every_scheme_is_documented() -> None:
    sources, sinks = (
        {entry.name for entry in entry_points(group=group) if entry.value.startswith("headrace.")}  # none of other packages
        for group in ("headrace.sources", "headrace.sinks")
    )
    pages = "".join(path.read_text() for path in CONNECTORS)
    assert not {scheme for scheme in sources | sinks if f"{scheme}://" not in pages}
    named = set(re.findall(r"`(\w+)://", page("README.md")))
    assert named <= sources | sinks
    assert sinks <= named


@pytest.mark.parametrize("path", CONNECTORS, ids=page_name)
def test_connector_pages_follow_one_template(path: Path) -> None:
    titles = re.findall(r"^## (.*)$", path.read_text(), re.MULTILINE)
    assert [title.replace("What they do", "What it does") for title in titles] == SECTIONS


@pytest.mark.parametrize("name", ["README.md", "docs/operations.md"])
def test_exit_codes_are_those_of_the_code(name: str) -> None:
    text = page(name)
    told = {int(cells[0]) for cells in table_rows(text) if cells[0].isdigit()}
    assert told == {value for key, value in vars(errors).items() if key.startswith("EXIT_")} | {errors.JobFailedError.exit_code}


LONG_SETTINGS = {"spark.driver.extraJavaOptions", "spark.redaction.regex", "spark.redaction.string.regex"}
"""Their values are told in words."""


def test_spark_settings_are_those_of_the_code() -> None:
    told: dict[str, str] = {}
    for cells in table_rows(section(page("docs/operations.md"), "Memory and Spark"))[1:]:
        told |= {setting: cells[1].strip("`") for setting in _CODE.findall(cells[0])}
    held = {key: value for key, value in session_settings({}, {}).items() if key != "spark.speculation"}
    assert told.keys() == held.keys()
    assert {key: value for key, value in held.items() if key not in LONG_SETTINGS}.items() <= told.items()


def test_events_are_those_of_the_code() -> None:
    source = "".join(path.read_text() for path in (ROOT / "src" / "headrace" / "cli").glob("*.py"))
    sent = set(re.findall(r'\.event\(\s*"(\w+)"', source)) | {"progress", "cut", "phase", "table"}
    told = section(page("docs/operations.md"), "JSON").partition("`event`:")[2].partition("Warnings")[0]
    assert set(_CODE.findall(told)) == sent


@pytest.mark.parametrize("path", PAGES, ids=page_name)
def test_links_lead_somewhere(path: Path) -> None:
    broken = []
    for target in _LINK.findall(prose(path)):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)
    assert not broken


def anchors(path: Path) -> set[str]:
    """The anchors of a page's titles, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", _FENCE.sub("", path.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.spark
def test_the_way_of_the_readme(tmp_path: Path) -> None:
    shop = write_shop(tmp_path / "changefeed")
    (tmp_path / "changefeed.toml").write_text(shop.changefeed_toml)

    def headrace(line: str) -> str:
        program = Path(sys.executable).parent / "headrace"
        arguments = shlex.split(line.replace("SOURCE", f"'{shop.source_uri}'"))
        done = subprocess.run([str(program), *arguments], cwd=tmp_path, text=True, capture_output=True, timeout=180, check=False)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout
        return done.stdout

    validation = headrace("validate --source SOURCE --changefeed changefeed.toml --no-spark")
    assert not [line for line in validation.splitlines() if not line.startswith("ok ")]
    assert "applied up to" in headrace("run --once --source SOURCE --changefeed changefeed.toml")
    with duckdb.connect(str(tmp_path / "headrace.duckdb"), read_only=True) as connection:
        counts = {table: connection.sql(f"SELECT count(*) FROM {table}").fetchall()[0][0] for table in shop.rows}
    assert counts == shop.rows
    status = headrace("status")
    assert "pipeline default" in status
    assert f"({shop.checkpoint_ts})" in status
    assert "nothing wrong found" in headrace("inspect SOURCE --rows")
