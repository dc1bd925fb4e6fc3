"""The reading cases: numbered messages and timelines, each with what a reader of TiDB's topics on Kafka has to make of it.

============  ==================================================================================================
A01 to A30    messages of TiDB Binlog's secondary binlog
A31 to A45    its topic: where to begin, repeats, resuming
A46 to A67    its rows and statements in a target
B01 to B43    messages of TiCDC's protocols
B44 to B50    TiCDC's choice of partitions and topics
B51 to B68    what is applied when: watermarks and schema changes of several partitions
============  ==================================================================================================

A test names the cases that it states: ``@pytest.mark.reading_case("B51")``, and ``pytest -k B51`` runs the tests of one case.
``tests/test_reading_cases.py`` holds the tests and this list against each other.
"""

from __future__ import annotations

from collections.abc import Mapping

CASES = (*(f"A{number:02}" for number in range(1, 68)), *(f"B{number:02}" for number in range(1, 69)))

_STATEMENTS = (
    "It is about the text of statements of another program. Headrace writes the net change of each key by its own statements."
)
_DISPATCH = "Headrace does not compute partitions: it reads all that the changefeed uses, and keys decide what belongs together."
_TOPICS = "Headrace reads one topic; a changefeed that writes to topics by an expression is refused."

WITHOUT_TEST: Mapping[str, str] = {
    "A46": _STATEMENTS,
    "A47": _STATEMENTS,
    "A48": _STATEMENTS,
    "A52": _STATEMENTS,
    "A60": "Headrace needs no groups of conflicting changes: it writes the last state of each key, in any order.",
    "B43": "Headrace does not verify TiCDC's checksums of rows.",
    **dict.fromkeys(("B44", "B45", "B46", "B47"), _DISPATCH),
    **dict.fromkeys(("B48", "B49", "B50", "B63"), _TOPICS),
    "B66": "Headrace assigns partitions to itself. It belongs to no consumer group, so no broker takes them away from a slow run.",
}
"""The cases of what Headrace does not have, with the reason."""

DIFFERENT: Mapping[str, str] = {
    "A23": "A value of a SET is the text of MySQL, a,b, and not a set.",
    "A26": "Times and dates are always MySQL's own text. There is no mode with types of Python.",
    "A27": "It is no error of the definition but of the value: only tables with a TIMESTAMP need the zone, and only they stop.",
    "A28": "There is no option: a block holds the 32 bits, whose text is 0.1, and a row event holds the message's number.",
    "A45": "The ledger does not know that a topic is idle: headrace status shows the time since the checkpoint. The docs say so.",
    "A57": "A schema change is done when the target shows its end state. The second DROP finds it, and nothing is run.",
    "A58": "The same: no error number counts as success. A crash at any step is made good by looking at the target.",
    "A64": "There is no safe mode, because applying rows again never does harm: a key gets its last state.",
    "A65": "The same, after a clean end.",
    "B13": "The old row is that of the new one: TiCDC leaves out only what did not change.",
    "B14": "It is not counted: it stands for an insertion and deletion of one key, so nothing is missing.",
    "B20": "No definition is refused: only messages show it. Nothing is applied, and a notice names the setting.",
    "B21": "Several objects in one message are refused with their place, because no release of TiCDC writes them to Kafka.",
    "B22": "Values of ENUM and SET are always their names. If nothing tells the names, the table stops.",
    "B24": "Rows wait for the watermark and not for a version: the shape of a row is that of the last schema change before it.",
    "B25": "A BOOTSTRAP is passed over. A table whose CREATE TABLE is not in the topic stops, as with the other protocols.",
    "B30": "The UUID is recognized, and the message says that AWS Glue is not read.",
    "B31": "Without watermarks it is a deletion at the time that Kafka keeps for the record. With them it has to have a commit ts.",
    "B55": "It is not counted, because a changefeed that starts again repeats rows as a rule.",
    "B67": "No schema change is run before the watermark has passed it.",
}
"""The cases in which Headrace decides otherwise, with the reason. Their tests show what it does."""
