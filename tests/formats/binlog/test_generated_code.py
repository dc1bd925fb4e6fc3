"""The generated code is checked in, so that nobody needs protoc. It must belong to the definition beside it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorSet

from headrace.formats.binlog import slave_binlog_pb2

SOURCES = Path(__file__).parents[3] / "src"
DEFINITION = "headrace/formats/binlog/slave_binlog.proto"


def test_the_generated_code_belongs_to_the_definition(tmp_path: Path) -> None:
    # protoc's text differs between its versions, the descriptor does not.
    found = tmp_path / "descriptors"
    subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", "-I.", f"--descriptor_set_out={found}", DEFINITION], cwd=SOURCES, check=True
    )
    (expected,) = FileDescriptorSet.FromString(found.read_bytes()).file
    assert type(expected).FromString(slave_binlog_pb2.DESCRIPTOR.serialized_pb) == _without_json_names(expected)


def _without_json_names(file: object) -> object:
    """protoc adds them to a descriptor that it writes, and leaves them out in generated code."""
    for message in file.message_type:  # type: ignore[attr-defined]
        for field in message.field:
            field.ClearField("json_name")
    return file
