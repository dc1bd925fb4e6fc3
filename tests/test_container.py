"""A container has one user, whatever accounts its image has; what others put onto its volumes is another matter."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.container import SWITCH, is_container
from headrace.errors import DefinitionError
from machines import EVERYTHING, Machine

ONLY_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders to other users")
RANDOM, DEVELOPER, THIRD = 1000650000, 1000, 1001
"""The user of a pod of OpenShift, the first user of most machines, and one more."""
ONE_USER = {SWITCH: "yes"}
POD = {SWITCH: "", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
RED_HAT = Machine(
    (
        "sync:x:5:0:sync:/sbin:/bin/sync",
        "halt:x:7:0:halt:/sbin:/sbin/halt",
        "operator:x:11:0:operator:/root:/sbin/nologin",
        f"default:x:{THIRD}:0:Default Application User:/opt/app-root/src:/sbin/nologin",
        f"{RANDOM}:x:{RANDOM}:0:{RANDOM} user:/opt/app-root/src:/sbin/nologin",
    ),
    environment=ONE_USER,
)
UBUNTU = Machine(
    (f"ubuntu:x:{DEVELOPER}:{DEVELOPER}:Ubuntu:/home/ubuntu:/bin/bash", f"app:x:{THIRD}:{THIRD}::/:/bin/sh"),
    (f"ubuntu:x:{DEVELOPER}:", f"app:x:{THIRD}:"),
    environment=ONE_USER,
)
DATA = EVERYTHING - {"program"}


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        Path(made).chmod(0o755)
        yield Path(made)


def make(path: Path, owner: int = 0, group: int = 0, bits: int = 0o755) -> Path:
    path.mkdir()
    os.chown(path, owner, group)
    path.chmod(bits)
    return path


def shared(machine: Machine) -> Machine:
    """The same where several users share it."""
    return replace(machine, environment={SWITCH: "no"})


def volume(at: Path, machine: Machine, *, mode: str, owner: int = 0, group: int = 0, **environment: str) -> Machine:
    """The machine with a volume, in which there are folders of its user, of the volume's owner and of a third."""
    made = f'v="{at}"; mount -t tmpfs -o mode={mode},uid={owner},gid={group} none "$v"'
    for name, user in (("roots", 0), ("owners", owner), ("thirds", THIRD)):
        made += f' && mkdir -m 755 "$v/{name}" && chown {user} "$v/{name}"'
    made += f' && ln -s roots "$v/link" && chown -h {THIRD} "$v/link"'
    return replace(machine, mounts=made, environment={**machine.environment, **environment})


@ONLY_ROOT
@pytest.mark.parametrize("user", [RANDOM, 0])
def test_folders_that_an_image_opens_to_the_group_root_are_used(place: Path, user: int) -> None:
    """As images for OpenShift have to. Its accounts sync and halt are in that group."""
    app = make(place / "app", 0, 0, 0o775)
    assert RED_HAT.uses(app, user, 0) == DATA
    assert "temporary" not in shared(RED_HAT).uses(app, RANDOM, 0)


@ONLY_ROOT
@pytest.mark.parametrize("group", [0, RANDOM])
def test_a_group_of_an_image_in_which_no_account_is_may_write_to_the_start_of_java(place: Path, group: int) -> None:
    """An image has all of its accounts in a file, unlike a machine with a directory."""
    app = make(place / "app", 0, group, 0o775)
    assert UBUNTU.uses(app, RANDOM, group) == EVERYTHING
    assert shared(UBUNTU).uses(app, RANDOM, group) == {"ledger", "target"}


@ONLY_ROOT
def test_a_home_folder_of_an_account_of_the_image_is_used(place: Path) -> None:
    home = make(place / "src", THIRD, 0, 0o775)
    assert RED_HAT.uses(home, RANDOM, 0) == DATA
    assert shared(RED_HAT).uses(home, RANDOM, 0) == set()


@ONLY_ROOT
def test_a_ledger_that_a_user_of_another_number_left_in_the_container_is_used(place: Path) -> None:
    make(make(place / "app", 0, 0, 0o775) / ".headrace", THIRD, 0, 0o775)
    assert "ledger" in RED_HAT.uses(place / "app", RANDOM, 0)


@ONLY_ROOT
def test_a_volume_may_belong_to_a_user_of_the_host_whose_number_the_image_gives_to_an_account(place: Path) -> None:
    mounted = make(place / "work")
    machine = volume(mounted, UBUNTU, mode="0755", owner=DEVELOPER)
    for folder in (mounted, mounted / "owners", mounted / "roots"):
        assert machine.uses(folder, 0, 0) == DATA
        assert "ledger" not in shared(machine).uses(folder, 0, 0)


@ONLY_ROOT
def test_the_folder_of_a_third_user_on_a_volume_is_refused(place: Path) -> None:
    mounted = make(place / "work")
    told = volume(mounted, UBUNTU, mode="0755", owner=DEVELOPER).refusals(mounted / "thirds", 0, 0)
    assert told["program"].startswith(f"{mounted} belongs to user ubuntu, who")
    assert all(told[use].startswith(f"{mounted}/thirds belongs to user app, who") for use in DATA)


@ONLY_ROOT
@pytest.mark.parametrize("machine", [RED_HAT, UBUNTU])
@pytest.mark.parametrize("mode", ["0777", "2775"])
def test_a_volume_of_a_pod_is_used_for_all_where_no_other_pod_reaches_it(place: Path, machine: Machine, mode: str) -> None:
    mounted = make(place / "scratch")
    group = 0 if mode == "0777" else RANDOM
    made = volume(mounted, replace(machine, environment=POD), mode=mode, group=group)
    assert made.uses(mounted / "new", RANDOM, group, group) == EVERYTHING
    assert made.uses(mounted, RANDOM, group, group) >= {"ledger", "target", "temporary"}


@ONLY_ROOT
@pytest.mark.parametrize("mode", ["0777", "1777"])
def test_in_a_volume_that_everybody_can_write_to_only_what_is_ones_own_or_roots_is_used(place: Path, mode: str) -> None:
    """Pods reach one another's volumes by the node, or by NFS."""
    mounted = make(place / "shared")
    machine = volume(mounted, replace(UBUNTU, environment=POD), mode=mode, owner=THIRD)
    assert machine.uses(mounted / "roots", RANDOM, 0) >= DATA
    for name in ("thirds", "link", "owners"):
        told = machine.refusals(mounted / name, RANDOM, 0)
        assert all(told[use].startswith(f"{mounted}/{name} belongs to user app, who") for use in DATA), told


@ONLY_ROOT
def test_a_link_of_another_user_in_a_volume_leads_to_no_duckdb_file(place: Path) -> None:
    mounted, private = make(place / "shared"), make(place / "private", RANDOM, 0, 0o700)
    machine = volume(mounted, replace(UBUNTU, environment=POD), mode="0777")
    planted = f'{machine.mounts} && ln -s {private}/other.duckdb "$v/shop.duckdb"'
    assert "target" in replace(machine, mounts=planted).uses(mounted, RANDOM, 0)
    told = replace(machine, mounts=f'{planted} && chown -h {THIRD} "$v/shop.duckdb"').refusals(mounted, RANDOM, 0)
    assert told["target"].startswith(f"{mounted}/shop.duckdb belongs to user app, who could read or replace the DuckDB file")


EXCHANGE = """
import os, sys
from pathlib import Path
from headrace.errors import DefinitionError
from headrace.places.object_place import open_place
volume, private = map(Path, sys.argv[1:])
place = open_place(str(volume / "a" / "ledger"), "ledger")
place.put("1.json", b"mine")
child = os.fork()
if child == 0:
    os.setgid(1001), os.setuid(1001)
    os.rename(volume / "a", volume / "b")
    os.symlink(private, volume / "a")
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
for act in (lambda: place.put("2.json", b"mine"), lambda: open_place(str(volume / "a" / "ledger"), "ledger")):
    try:
        act()
        print("used")
    except DefinitionError as error:
        print(error.message)
"""


@ONLY_ROOT
def test_a_folder_that_another_pod_exchanges_for_a_link_is_noticed(place: Path) -> None:
    mounted, private = make(place / "shared"), make(place / "private", bits=0o700)
    told = volume(mounted, replace(UBUNTU, environment=POD), mode="0777").run(EXCHANGE, mounted, private)
    assert told.splitlines() == [f"{mounted}/a belongs to user app, who could read or replace the ledger there."] * 2
    assert list(private.iterdir()) == []


@ONLY_ROOT
@pytest.mark.parametrize("machine", [RED_HAT, UBUNTU])
def test_a_folder_that_everybody_can_write_to_is_refused_in_a_container_too(place: Path, machine: Machine) -> None:
    everybodys = make(place / "open", bits=0o777)
    make(everybodys / "own", bits=0o700)
    for environment in (ONE_USER, POD):
        assert replace(machine, environment=environment).uses(everybodys / "own", 0, 0) == set()
    mounted = make(place / "volume")
    assert volume(mounted, machine, mode="0777").uses(mounted / "roots", 0, 0) == set()


@ONLY_ROOT
def test_in_a_sticky_folder_of_a_container_only_what_is_ones_own_is_used(place: Path) -> None:
    sticky = make(place / "tmp", bits=0o1777)
    make(sticky / "own", RANDOM, 0, 0o700)
    make(sticky / "thirds", THIRD, 0)
    (sticky / "link").symlink_to("own")
    os.chown(sticky / "link", THIRD, 0, follow_symlinks=False)
    assert RED_HAT.uses(sticky / "own", RANDOM, 0) == EVERYTHING
    assert RED_HAT.uses(sticky / "thirds", RANDOM, 0) == set()
    assert RED_HAT.uses(sticky / "link", RANDOM, 0) == set()


@ONLY_ROOT
def test_the_start_of_java_trusts_nobody_in_a_container(place: Path) -> None:
    """Neither accounts of the image, nor members of its groups, nor the owner of a volume, nor who else reaches one."""
    mounted = make(place / "volume")
    for folder in (make(place / "home", THIRD, 0), make(place / "app", 0, 0, 0o775)):
        assert RED_HAT.uses(folder, RANDOM, 0) == DATA
    assert volume(mounted, UBUNTU, mode="0755", owner=DEVELOPER).uses(mounted / "roots", 0, 0) == DATA
    pod = replace(UBUNTU, environment=POD)
    assert volume(mounted, pod, mode="0777").uses(mounted / "roots", 0, 0) == EVERYTHING


@ONLY_ROOT
@pytest.mark.parametrize(
    ("source", "is_empty_dir"),
    [
        ("var/lib/kubelet/pods/3f/volumes/kubernetes.io~empty-dir/scratch", True),
        ("pods/3f/volumes/kubernetes.io~empty-dir/scratch/sub path", True),
        ("srv/shared", False),
        ("opt/local-path-provisioner/pvc-1", False),
    ],
)
def test_the_start_of_java_lies_in_no_volume_of_the_host_that_everybody_can_write_to(
    place: Path, source: str, is_empty_dir: bool
) -> None:
    """In the place of a folder of the user's, others would put another of the same user's; its look would not show that."""
    host, mounted = make(place / "host"), make(place / "a volume")
    mounts = (
        f'mount -t tmpfs -o mode=0755 none "{host}" && mkdir -p "{host}/{source}" && chmod 777 "{host}/{source}"'
        f' && mount --bind "{host}/{source}" "{mounted}"'
    )
    pod = replace(UBUNTU, environment=POD, mounts=mounts)
    assert pod.uses(mounted / "new", 0, 0) == (EVERYTHING if is_empty_dir else DATA)


@pytest.fixture
def _unmarked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (SWITCH, "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("_unmarked")
def test_a_pod_and_what_the_user_calls_so_is_a_container(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert is_container()
    monkeypatch.setenv(SWITCH, "no")
    assert not is_container()
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    monkeypatch.setenv(SWITCH, "yes")
    assert is_container()
    for wrong in ("true", "1", "YES", " yes"):
        monkeypatch.setenv(SWITCH, wrong)
        with pytest.raises(DefinitionError, match=f"The environment variable HEADRACE_CONTAINER is '{wrong}': it takes yes or no"):
            is_container()


TOLD = """
import sys
from pathlib import Path
from headrace import container
container._MARKS = (Path("/nowhere"), Path(sys.argv[1]))
print(container.is_container())
"""


@ONLY_ROOT
@pytest.mark.usefixtures("_unmarked")
def test_a_mark_tells_a_container_only_where_it_has_processes_of_its_own(tmp_path: Path) -> None:
    """A machine whose disk was made from an image has the mark, and several users."""

    def is_told(mark: Path, *namespace: str) -> str:
        command = [*namespace, sys.executable, "-c", TOLD, str(mark)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.stderr.startswith("unshare:"):
            pytest.skip(done.stderr)
        return done.stdout.strip()

    (tmp_path / "mark").touch()
    assert is_told(tmp_path / "mark", "unshare", "--pid", "--fork") == "True"
    assert is_told(tmp_path / "missing", "unshare", "--pid", "--fork") == "False"
    if str(Path("/proc/self/ns/pid").readlink()) == "pid:[4026531836]":
        assert is_told(tmp_path / "mark") == "False"
