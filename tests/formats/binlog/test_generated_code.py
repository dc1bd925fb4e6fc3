"""The generated code is checked in, so that nobody needs protoc. It must belong to the definition beside it."""

from __future__ import annotations

import re
from pathlib import Path

from google.protobuf.descriptor import FieldDescriptor

from headrace.formats.binlog import slave_binlog_pb2

DEFINITION = Path(slave_binlog_pb2.__file__).with_name("slave_binlog.proto")
LABELS = {"optional": (False, False), "required": (True, False), "repeated": (False, True)}
Fields = dict[str, tuple[int, str, tuple[bool, bool]]]


def defined() -> tuple[dict[str, Fields], dict[str, dict[str, int]]]:
    """The messages with their fields (number, type, label), and the enums with their values, as the definition has them."""
    text = re.sub("//.*", "", DEFINITION.read_text(encoding="utf-8"))
    messages, enums = {}, {}
    for kind, name, body in re.findall(r"(message|enum) (\w+) \{(.*?)\n\}", text, re.DOTALL):
        if kind == "enum":
            enums[name] = {value: int(number) for value, number in re.findall(r"(\w+) = (\d+);", body)}
        else:
            found = re.findall(r"(\w+) (\w+) (\w+) = (\d+)(?: \[default = \w+\])?;", body)
            assert len(found) == body.count(";")
            messages[name] = {field: (int(number), type_, LABELS[label]) for label, type_, field, number in found}
    return messages, enums


def type_name(field: FieldDescriptor) -> str:
    if field.message_type is not None:
        return str(field.message_type.name)
    names = {value: name for name, value in vars(FieldDescriptor).items() if name.startswith("TYPE_")}
    return names[field.type].removeprefix("TYPE_").lower()


def test_the_generated_code_belongs_to_the_definition() -> None:
    messages, enums = defined()
    file = slave_binlog_pb2.DESCRIPTOR
    assert file.package == "headrace.formats.binlog"
    assert messages.keys() >= {"Binlog", "DMLData", "Table", "TableMutation", "Row", "Column", "ColumnInfo", "Key", "DDLData"}
    assert messages == {
        name: {f.name: (f.number, type_name(f), (f.is_required, f.is_repeated)) for f in message.fields}
        for name, message in file.message_types_by_name.items()
    }
    assert enums == {name: {value.name: value.number for value in enum.values} for name, enum in file.enum_types_by_name.items()}
