"""What the JVM of a Spark session loads, written down once, so that the dozens that the tests start take half the time.

``python tests/class_archive.py`` writes the archive; ``tests/conftest.py`` hands it to every JVM where it is there. A JVM that
it does not fit, since Java or Spark are others by now, goes without it; so do all where Java cannot write one.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
# Sessions live for seconds here: what the optimizing compiler does is never paid back.
SHORT_LIVED = "-XX:TieredStopAtLevel=1"


def submit_options() -> str:
    """The value of ``SPARK_SUBMIT_OPTS`` for the tests. What does not fit is not worth a warning, which tests would read."""
    return f"{SHORT_LIVED} -XX:SharedArchiveFile={ARCHIVE} -Xlog:disable" if ARCHIVE.exists() else SHORT_LIVED


def main() -> None:
    from pyspark import SparkContext

    from headrace.engine.spark import SparkEngine, session_settings

    part = ARCHIVE.with_suffix(".part")
    os.environ["SPARK_SUBMIT_OPTS"] = f"-XX:ArchiveClassesAtExit={part} -Xlog:disable"
    engine = SparkEngine(session_settings({"spark.master": "local[2,4]"}, {}))
    engine.warm_up()
    engine.stop()
    process = SparkContext._gateway.proc  # type: ignore[union-attr]
    process.stdin.close()
    process.wait(120)
    if part.exists():
        part.replace(ARCHIVE)
    else:  # one that has no archive of its own classes, as the one that comes as a package
        sys.stdout.write("this Java writes no archive of classes: the tests go without one, and take longer\n")


if __name__ == "__main__":
    main()
