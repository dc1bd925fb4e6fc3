"""What the JVM is started with: nothing on its command line is a secret, and what it makes lies in folders of this user's own."""

from __future__ import annotations

import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.cli import output
from headrace.cli.options import completed
from headrace.engine.launch import is_local, java_option, launch_settings
from headrace.engine.spark import session_settings
from headrace.errors import DefinitionError
from headrace.pipeline.definition import Settings

SECRET = "sp-Gh64LqVd2s"
HIDDEN = [
    "spark.hadoop.fs.s3a.secret.key",
    "spark.hadoop.fs.s3a.access.key",
    "spark.hadoop.fs.azure.sas.container.account.blob.core.windows.net",
    "spark.hadoop.fs.azure.account.key.account.dfs.core.windows.net",
    "spark.hadoop.fs.gs.auth.service.account.private.key",
    "spark.hadoop.fs.gs.auth.service.account.email",
    "spark.ssl.keyPassword",
    "spark.ssl.trustStorePassword",
    "spark.authenticate.secret",
    "spark.executorEnv.DB_PASS",
    "spark.sql.catalog.pg.url",
    "spark.something.that.nobody.knows",
]


@pytest.mark.parametrize("name", HIDDEN)
def test_a_setting_that_the_launch_does_not_need_is_on_no_command_line(name: str) -> None:
    launched = launch_settings(session_settings({name: SECRET}, {}))
    assert SECRET not in launched.values()
    assert session_settings({name: SECRET}, {})[name] == SECRET, "it reaches the session through the socket"


def test_what_the_launch_needs_is_on_the_command_line() -> None:
    user = {
        "spark.master": "yarn",
        "spark.driver.memory": "3g",
        "spark.driver.extraJavaOptions": "-Xss4m -Dfile.encoding=UTF-8 @/home/me/java-options",
        "spark.jars.packages": "org.apache.hadoop:hadoop-aws:3.4.2",
        "spark.kerberos.keytab": "/etc/security/me.keytab",
    }
    assert launch_settings(session_settings(user, {})).items() >= user.items()


@pytest.mark.parametrize(
    "setting", ["spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions", "spark.executor.extraJavaOptions"]
)
@pytest.mark.parametrize(
    ("options", "told"),
    [
        (f"-Djavax.net.ssl.trustStorePassword={SECRET}", "-Djavax.net.ssl.trustStorePassword"),
        (f"-Xss4m '-Djavax.net.ssl.keyStorePassword={SECRET} x'", "-Djavax.net.ssl.keyStorePassword"),
        (f'-Dx=1 "-Dhttp.proxyPassword={SECRET}"', "-Dhttp.proxyPassword"),
        (f"-Dfs.s3a.secret.key={SECRET}", "-Dfs.s3a.secret.key"),
        (f"-Ddb=jdbc:mysql://me:{SECRET}@db/x", "-Ddb"),
        (f"-javaagent:/opt/agent.jar=token={SECRET}", "-javaagent"),
        (f"-Dfoo.pwd={SECRET}", "-Dfoo.pwd"),
        (f"-Dfoo.pass={SECRET}", "-Dfoo.pass"),
        (f"-DdbPass={SECRET}", "-DdbPass"),
        (f'-Dmy.pass"word"={SECRET}', "-Dmy.password"),
        (f"-Dmy.pass\\word={SECRET}", "-Dmy.password"),
        (f"-Dx='-Dpassword={SECRET}'", "-Dx"),
        (f"-Durl=jdbc:sqlserver://h;user=u;password={SECRET}", "-Durl"),
        (f"-Durl=jdbc:oracle:thin:u/{SECRET}@h", "-Durl"),
        (f"-Durl=https://{SECRET}@host", "-Durl"),
    ],
)
def test_a_secret_in_javas_options_is_refused_with_the_way_to_pass_it(setting: str, options: str, told: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        session_settings({setting: options}, {})
    assert f"{setting} holds a secret ({told})" in str(refused.value)
    assert f"{setting}=@/path/of/the/file" in str(refused.value)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("spark.jars.repositories", f"https://me:{SECRET}@repository.example.org/maven"),
        ("spark.jars", f"https://account.blob.core.windows.net/jars/a.jar?sv=2024&sig={SECRET}"),
        ("spark.files", f"https://bucket.example.org/a?X-Amz-Signature={SECRET}"),
        ("spark.jars", f"https://storage.example.org/a.jar?X-Goog-Date=1&X-Goog-Signature={SECRET}"),
        ("spark.jars", f"https://git.example.org/a.jar?private_token={SECRET}"),
        ("spark.jars", f"https://git.example.org/a.jar?private-token={SECRET}"),
        ("spark.jars", f"/opt/a.jar,https://example.org/a.jar?v=1&api_key={SECRET}"),
        ("spark.jars", f"https://example.org/a.jar?apikey={SECRET}"),
        ("spark.jars", f"https://example.org/a.jar?key={SECRET}"),
        ("spark.jars", f"https://example.org/a.jar?pass={SECRET}"),
        ("spark.jars", f"https://example.org/a.jar?user=me;pwd={SECRET}"),
        ("spark.jars.repositories", f"https://{SECRET}@example.org/maven"),
        ("spark.jars.repositories", f"https://me:pa/{SECRET}@example.org/maven"),
    ],
)
def test_a_url_with_a_password_or_signature_is_refused_on_a_command_line(setting: str, value: str) -> None:
    with pytest.raises(DefinitionError, match=f"{setting} holds a URL with a user, a password or a signature") as refused:
        session_settings({setting: value}, {})
    assert "spark-defaults.conf" in str(refused.value)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    "options",
    [
        "-Djavax.net.ssl.trustStore=/etc/secrets/store.jks",
        "-XX:+UseG1GC -Xlog:gc=info",
        "@/home/me/secret-options",
        "-Da=b@c -Dbypass=true -Dcompass=n",
        "",
    ],
)
def test_options_without_a_secret_pass(options: str) -> None:
    assert session_settings({"spark.driver.extraJavaOptions": options}, {})["spark.driver.extraJavaOptions"] == options


@pytest.mark.parametrize(
    "value",
    [
        "abfss://container@account.dfs.core.windows.net/jars/a.jar,wasbs://jars@account.blob.core.windows.net/a.jar",
        "https://example.org:8443/jars/a@1.2.jar?monkey=1&design=2&version=3",
        "hdfs://namenode:8020/secrets/a.jar",
    ],
)
def test_urls_without_a_secret_pass(value: str) -> None:
    assert launch_settings(session_settings({"spark.jars": value}, {}))["spark.jars"] == value


@pytest.mark.parametrize(
    ("master", "local"),
    [
        ("local", True),
        ("local[4]", True),
        ("local[*,4]", True),
        ("local-cluster[1,1,1024]", False),
        ("spark://local:7077", False),
        ("yarn", False),
    ],
)
def test_spark_asks_for_a_secret_where_it_can_draw_one_itself(master: str, local: bool) -> None:
    settings = session_settings({"spark.master": master}, {})
    assert is_local(master) == local
    assert settings.get("spark.authenticate") == ("true" if local else None)
    assert settings.get("spark.driver.bindAddress") == ("127.0.0.1" if local else None)


@pytest.mark.parametrize("master", ["local[2]", "yarn"])
def test_what_a_user_says_of_the_secret_counts(master: str) -> None:
    for said in ("true", "false"):
        assert session_settings({"spark.master": master, "spark.authenticate": said}, {})["spark.authenticate"] == said


def test_an_option_with_spaces_is_one_option() -> None:
    assert java_option("-Djava.io.tmpdir=/tmp/x") == "-Djava.io.tmpdir=/tmp/x"
    assert java_option('-Dx=/tmp/my "own" folder') == '"-Dx=/tmp/my \\"own\\" folder"'


RUN = """
import os, subprocess, sys
from pathlib import Path
from headrace.engine.spark import SparkEngine, session_settings
user = dict(pair.split("=", 1) for pair in sys.argv[1:])
engine = SparkEngine(session_settings({"spark.master": "local[1,4]", **user}, {}))
session = engine.start()
context = session.sparkContext
told = context.broadcast(b"x" * 2_000_000)
session.range(3).write.saveAsTable("kept")
files = context.parallelize([0], 1).map(lambda _: len(told.value)).collect()
system = context._jvm.java.lang.System
print("property", system.getProperty("headrace.test"))
print("artifacts", session._jsparkSession.artifactManager().artifactPath())
command = Path(f"/proc/{context._gateway.proc.pid}/cmdline").read_bytes()
print("command", b"sp-Gh64LqVd2s" in command, b"spark.driver.memory" in command)
for path in Path(os.environ["TMPDIR"]).rglob("*"):
    print("file", oct(path.lstat().st_mode), path)
print("end reached", flush=True)
"""


@pytest.mark.spark
@pytest.mark.parametrize("named", ["TMPDIR", "spark.local.dir", "SPARK_LOCAL_DIRS"])
def test_all_that_spark_makes_lies_in_a_folder_of_the_users_own_and_is_removed(
    tmp_path: Path, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks, broadcasts, artifacts, tables; the options of Java's lie in a file, so no command line shows them."""
    temporary, place = tmp_path / "my tmp", tmp_path / "work"
    for folder in (temporary, place):
        folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    (tmp_path / "options").write_text(f"-Dheadrace.test={SECRET}\n")
    command = [sys.executable, "-c", RUN, f"spark.driver.extraJavaOptions=@{tmp_path / 'options'}"]
    chosen = temporary / "chosen"
    if named == "SPARK_LOCAL_DIRS":
        monkeypatch.setenv(named, str(chosen))
    elif named == "spark.local.dir":
        command.append(f"{named}={chosen}")
    parent = temporary if named == "TMPDIR" else chosen
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=240, check=False)
    assert "end reached" in done.stdout, done.stderr
    lines = [line.split(" ", 1) for line in done.stdout.splitlines()]
    said = {name: text for name, text in lines if name != "file"}
    assert said["property"] == SECRET
    assert said["command"] == "False True"
    files = [text.split(" ", 1) for name, text in lines if name == "file"]
    (own,) = {Path(path).relative_to(parent).parts[0] for _, path in files if path != str(chosen)}
    assert [mode for mode, path in files if path == str(parent / own)] == [oct(stat.S_IFDIR | 0o700)]
    made = {part.split("-")[0] for _, path in files for part in Path(path).parts}
    assert made >= {"blockmgr", "spark", "warehouse"}
    assert str(parent / own) in said["artifacts"]
    assert list(place.iterdir()) == []
    assert [path for path in temporary.rglob("*") if path != chosen] == []
    assert "ERROR" not in done.stderr
    assert "Traceback" not in done.stderr


SHOWN_NOWHERE = {
    "spark.my.pass": SECRET,
    "spark.hadoop.javax.jdo.option.ConnectionPwd": SECRET,
    "spark.hadoop.fs.s3a.secret.key": SECRET,
    "spark.executorEnv.DB_PASSWORD": SECRET,
    "spark.x.url": f"https://u:{SECRET}@h/x",
    "spark.x.signed": f"https://h/x?a=1&sig={SECRET}",
    "spark.x.jdbc": f"jdbc:oracle:thin:u/{SECRET}@h:1521/x",
}


@pytest.mark.spark
def test_the_event_log_shows_no_secret(tmp_path: Path) -> None:
    """In a process of its own, since a process has one JVM."""
    log = {"spark.eventLog.enabled": "true", "spark.eventLog.compress": "false", "spark.eventLog.dir": tmp_path.as_uri()}
    settings = {"spark.master": "local[1]", "spark.x.harmless": "harmless-value", **log, **SHOWN_NOWHERE}
    program = (
        "from headrace.engine.spark import SparkEngine, session_settings\n"
        f"engine = SparkEngine(session_settings({settings!r}, {{}}))\n"
        "engine.start()\n"
        "engine.stop()\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
    logged = "".join(path.read_text() for path in tmp_path.rglob("*") if path.is_file())
    assert "harmless-value" in logged
    assert [line[:200] for line in logged.splitlines() if SECRET in line] == []


@pytest.mark.parametrize("name", SHOWN_NOWHERE)
def test_no_output_shows_the_value_of_a_setting_that_holds_a_secret(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "_HIDDEN", set())
    completed(Settings(spark={name: SHOWN_NOWHERE[name]}), None)
    output.make_output(json=False).line(f"Spark said: {SHOWN_NOWHERE[name]}")
    assert capsys.readouterr().out == "Spark said: ***\n"


@pytest.mark.parametrize("text", [f"read https://u:{SECRET}@h/x now", f"read https://h/x?a=1&sig={SECRET}&b=2 now"])
def test_texts_that_spark_writes_show_no_secret_of_a_url(text: str) -> None:
    pattern = session_settings({}, {})["spark.redaction.string.regex"]
    assert SECRET not in re.sub(pattern, "***", text)
    assert re.sub(pattern, "***", text).endswith(" now")
