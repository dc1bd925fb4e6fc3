"""The JVM that PySpark has started: whether it is alive, and how to continue without it.

PySpark keeps one gateway for the whole process and cannot start another one, so this module uses some of its private names.
"""

from __future__ import annotations

import logging
import signal
import subprocess
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HINT = "If you did not end it, the machine may be short of memory: set how much the JVM takes with --spark spark.driver.memory."

_KILLED_SECONDS = 5.0
LAUNCH_HINT = "Its output shows why; set its memory and options with --spark spark.driver.memory and spark.driver.extraJavaOptions."


def launch(settings: Mapping[str, str], inherited: Collection[int], stderr: int) -> None:
    """Starts the JVM with these settings on its command line, unless there is one.

    It inherits the open files ``inherited``, and writes its standard output and error to ``stderr``. With the process's own
    output, whoever reads that through a pipe would wait for the end of a JVM that is still starting when the process is done.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is None:
        conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
        gateway = launch_gateway(conf, {"pass_fds": tuple(inherited), "stdout": stderr, "stderr": stderr})
        SparkContext._ensure_initialized(gateway=gateway, conf=conf)


def has_died(wait: float = 0.0) -> bool:
    """Whether the JVM has ended. Waits up to ``wait`` seconds for its end, because its sockets close earlier."""
    process = _process()
    if process is None:
        return False
    with suppress(subprocess.TimeoutExpired):
        process.wait(wait)
    return process.poll() is not None


def kill() -> None:
    """Ends the JVM at once, if there is one."""
    process = _process()
    if process is not None:
        process.kill()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_KILLED_SECONDS)


def has_answered(error: Exception) -> bool:
    """Whether the JVM itself reported the error, as opposed to an error in reaching the JVM."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    return isinstance(error, (Py4JJavaError, PySparkException))


def was_not_launched(error: Exception) -> bool:
    """Whether PySpark reports that the JVM ended before it could be reached."""
    from pyspark.errors import PySparkRuntimeError

    return isinstance(error, PySparkRuntimeError) and error.getCondition() == "JAVA_GATEWAY_EXITED"


def obituary() -> str:
    """A sentence about the end of a JVM that has died."""
    code = _process().poll()
    return f"The JVM of Spark {f'was killed by {_signal_name(-code)}' if code < 0 else f'ended with exit code {code}'}."


def die_quietly(session: SparkSession) -> None:
    """Keeps stack traces off the terminal when the JVM dies: Py4J logs some, and PySpark's accumulator server prints one."""
    logging.getLogger().addFilter(_not_of_py4j)
    session.sparkContext._accumulatorServer.handle_error = lambda *_: None


def _not_of_py4j(record: logging.LogRecord) -> bool:
    return record.module != "java_gateway"  # it logs without a logger name; its exceptions are reported anyway


def forget() -> None:
    """Lets PySpark start another JVM for the next session."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession, SQLContext

    context = SparkContext._active_spark_context
    if context is not None:
        context._jsc = None  # it cannot be stopped any more
        context.stop()
    SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    SQLContext._instantiatedContext = None


def _process() -> Any:
    """The process, a ``subprocess.Popen``; ``None`` if PySpark has not started one."""
    from pyspark import SparkContext

    return getattr(SparkContext._gateway, "proc", None)


def _signal_name(number: int) -> str:
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
