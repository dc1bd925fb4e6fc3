"""How Spark's JVM is started: which settings may be on its command line, and where its temporary files are.

Every user of the machine can read a command line (``ps``). So only settings that are needed there are on it, listed by name, and
none that holds a secret. All other settings reach the JVM through its socket. The environment of a process is visible only to its
user.
"""

from __future__ import annotations

import atexit
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

from headrace.errors import DefinitionError, JobFailedError
from headrace.scratch import Scratch

SECRET_SETTING = re.compile(
    r"(?i)secret|passw(or)?d|passphrase|token|credential|(access|account|private|api)[._-]?key|azure[.]sas|[.]sas[.]|signature"
)
"""Names of settings that certainly hold a secret."""
DEFAULT_JAVA_OPTIONS = "spark.driver.defaultJavaOptions"
"""Headrace's own options come before the user's in this setting. Those in ``extraJavaOptions`` come last and take precedence."""
_LAUNCH_SETTINGS = frozenset(
    {
        "spark.master",
        "spark.submit.deployMode",
        "spark.submit.pyFiles",
        "spark.driver.memory",
        "spark.driver.extraJavaOptions",
        DEFAULT_JAVA_OPTIONS,
        "spark.driver.extraClassPath",
        "spark.driver.extraLibraryPath",
        "spark.jars",
        "spark.jars.excludes",
        "spark.jars.ivy",
        "spark.jars.ivySettings",
        "spark.jars.packages",
        "spark.jars.repositories",
        "spark.files",
        "spark.archives",
        "spark.kerberos.keytab",
        "spark.kerberos.principal",
    }
)
"""Settings that ``spark-submit`` needs before there is a socket. Nothing else may be on the command line."""
_JAVA_OPTIONS = ("spark.driver.extraJavaOptions", DEFAULT_JAVA_OPTIONS, "spark.executor.extraJavaOptions")
_PROPERTY = re.compile(r"-D([^=]+)=")
_OPTION = re.compile(r"""(?:[^\s"']|"(?:[^"\\]|\\.)*"|'[^']*')+""")
_SECRET_NAME = rf"(?:{SECRET_SETTING.pattern.removeprefix('(?i)')}|pwd|(?<![a-z])(?:pass|sig)(?![a-z])|(?-i:Pass|Sig)(?![a-z]))"
_ASSIGNED = re.compile(rf"(?i){_SECRET_NAME}[\w.\-]*=")
"""A secret's name with the value after it, anywhere in an option, also in a URL or in a nested option."""
_SECRET_URL = re.compile(
    r"(?i)(?<!\babfs:)(?<!\babfss:)(?<!\bwasb:)(?<!\bwasbs:)//[^/\s?#]+@"  # user information, or an Azure container name
    r"|://[^/\s@]*:(?!\d+(?:/|$))[^\s@]*@"  # a password with a slash
    r"|:thin:[^/\s]+/[^@\s]*@"  # Oracle's user/password
    rf"|[?&;][\w.\-]*(?:{_SECRET_NAME}[\w.\-]*|(?<![a-z])key|auth)="  # the signature of a URL that grants access to anyone
)
SECRET = re.compile(rf"(?i){_SECRET_NAME}|{_SECRET_URL.pattern.removeprefix('(?i)')}")
"""Found in the name or the value of a setting, it marks the value as secret. Java interprets the pattern in the same way."""
SECRET_PART = re.compile(rf"(?i)(?:{_SECRET_URL.pattern.removeprefix('(?i)')})[^\s&\"']*")
"""The secret parts of a longer text: a URL from its user information on, and the value of its signature. Also used by Java."""
_SOCKET_FOLDER_BYTES = 107 - len("/.01234567-89ab-cdef-0123-456789abcdef.sock")
"""The path of a socket may have up to 107 bytes (103 on macOS), including the name that PySpark gives it."""
_LOCAL = re.compile(r"local(\[.*\])?")


def is_secret(name: str, value: str) -> bool:
    """Whether the value of a setting must not appear in any output."""
    return SECRET.search(name) is not None or _SECRET_URL.search(value) is not None


def is_local(master: str) -> bool:
    """Whether Spark runs within one JVM."""
    return _LOCAL.fullmatch(master) is not None


def launch_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings with which the JVM is launched, on its command line.

    Raises DefinitionError if one of them holds a secret.
    """
    require_no_secrets(settings)
    return {name: value for name, value in settings.items() if name in _LAUNCH_SETTINGS}


def require_no_secrets(settings: Mapping[str, str]) -> None:
    """Raises DefinitionError for a secret in a setting that must be on a command line. The message does not repeat it."""
    for name in _JAVA_OPTIONS:
        for option in _OPTION.findall(settings.get(name, "")):
            secret = _secret_in(re.sub(r"[\"'\\]", "", option))
            if secret:
                raise DefinitionError(
                    f"{name} holds a secret ({secret}), and every user of the machine can read the command line of a JVM.",
                    f"Write the option into a file that only you can read, and pass {name}=@/path/of/the/file.",
                )
    for name in sorted(_LAUNCH_SETTINGS & settings.keys()):
        if _SECRET_URL.search(settings[name]):
            raise DefinitionError(
                f"{name} holds a URL with a user, a password or a signature, and every user of the machine can read the "
                "command line of a JVM.",
                f"Set {name} in a spark-defaults.conf that only you can read, in the folder that SPARK_CONF_DIR names.",
            )


def _secret_in(option: str) -> str:
    """The name of a secret in a Java option; empty if there is none. ``@`` begins the name of an argument file."""
    if option.startswith("@"):
        return ""
    if found := _PROPERTY.match(option):
        is_secret = _ASSIGNED.search(option) or _SECRET_URL.search(option)
        return f"-D{found.group(1)}" if is_secret else ""
    is_secret = ("=" in option and SECRET_SETTING.search(option)) or _ASSIGNED.search(option) or _SECRET_URL.search(option)
    return re.split("[:=]", option)[0] if is_secret else ""


def java_option(text: str) -> str:
    """A Java option, quoted if it has white space, because Spark's launcher splits options there."""
    if not re.search(r"[\s\"'\\]", text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


@dataclass(frozen=True)
class SparkFolders:
    """Folders that only this user can read: ``temporary`` is the JVM's own, ``local`` are those of blocks and shuffle files."""

    temporary: Scratch
    local: tuple[Scratch, ...]
    _launches: Event = field(default_factory=Event)

    @property
    def locks(self) -> tuple[int, ...]:
        """Locks that the JVM inherits. A folder thus counts as used as long as the JVM lives, even if this process was killed."""
        return tuple(scratch.lock for scratch in {self.temporary, *self.local})

    def settings(self, settings: Mapping[str, str]) -> dict[str, str]:
        """The settings, with everything that Spark would create elsewhere put into these folders. The user's settings prevail."""
        temporary = str(self.temporary.path)
        options = (f"-Djava.io.tmpdir={temporary}", f"-Dderby.system.home={temporary}")
        defaults = " ".join([*map(java_option, options), settings.get(DEFAULT_JAVA_OPTIONS, "")])
        placed = {
            "spark.sql.warehouse.dir": f"{temporary}/warehouse",
            **settings,
            DEFAULT_JAVA_OPTIONS: defaults.strip(),
        }
        if self.local and "spark.python.unix.domain.socket.enabled" not in settings:
            # Other users can connect to a port first and fill the memory of the listening process. These sockets are private.
            placed["spark.python.unix.domain.socket.enabled"] = str(len(temporary.encode()) <= _SOCKET_FOLDER_BYTES).lower()
            placed.setdefault("spark.python.unix.domain.socket.dir", temporary)
        if self.local:
            placed["spark.local.dir"] = ",".join(str(scratch.path) for scratch in self.local)
        return placed

    def remove(self) -> None:
        """Removes the folders when the process ends.

        A JVM that is still starting would create them again, with other modes. In that case they are left for the next run to
        remove.
        """
        if not self._launches.is_set():
            for scratch in (self.temporary, *self.local):
                scratch.remove()

    @contextmanager
    def launching(self) -> Iterator[None]:
        """Wraps the launch of a JVM. PySpark gets port and secret in a file in the temporary folder.

        Locally, ``SPARK_LOCAL_DIRS`` is removed meanwhile, so that the JVM uses ``spark.local.dir``.
        """
        former, tempfile.tempdir = tempfile.tempdir, str(self.temporary.path)
        said = os.environ.pop("SPARK_LOCAL_DIRS", None) if self.local else None
        self._launches.set()
        try:
            yield
        finally:
            self._launches.clear()
            tempfile.tempdir = former
            if said is not None:
                os.environ["SPARK_LOCAL_DIRS"] = said


_made: dict[tuple[str, ...], SparkFolders] = {}


def spark_folders(settings: Mapping[str, str]) -> SparkFolders:
    """The folders of this process's JVM, created when they are first needed and removed when the process ends.

    They are in the folders that ``SPARK_LOCAL_DIRS`` or ``spark.local.dir`` names, otherwise in the temporary folder. If Spark also
    runs on other machines, ``spark.local.dir`` applies to those and is not changed. Raises JobFailedError.
    """
    parents: tuple[str, ...] = ()
    if is_local(settings["spark.master"]):
        said = os.environ.get("SPARK_LOCAL_DIRS") or settings.get("spark.local.dir") or tempfile.gettempdir()
        parents = tuple(dict.fromkeys(part.strip() for part in said.split(",") if part.strip()))
    if parents not in _made:
        try:
            local = tuple(Scratch.make("spark", Path(parent)) for parent in parents)
            _made[parents] = SparkFolders(local[0] if local else Scratch.make("spark"), local)
        except OSError as error:
            raise JobFailedError(
                f"Spark has no folder for temporary files: {error}.",
                "Make room there, or name another folder with TMPDIR or --spark spark.local.dir.",
            ) from error
        atexit.register(_remove, _made[parents], os.getpid())
    return _made[parents]


def _remove(folders: SparkFolders, maker: int) -> None:
    if os.getpid() == maker:  # not in a forked process
        folders.remove()
