"""ppsim calibrate and ppsim profile from the command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ppsim.inputs.profile.profile import read
from tests.clock import HANG_S
from tests.commands import SOURCE, invoke, refused, with_options
from tests.warm_processes import start_warm

SIZES = {"hidden": 16, "heads": 2, "seq": 8, "mbs": 1, "layers": 1, "vocab": 32}
COUNTS = {"repeats": 2, "warm-up": 1, "max-bytes": 4096}
TINY = [word for name, value in (SIZES | COUNTS).items() for word in (f"--{name}", str(value))]


@pytest.fixture(scope="module")
def profile(tmp_path_factory) -> str:
    pytest.importorskip("torch", reason="measuring needs torch")
    path = tmp_path_factory.mktemp("measured") / "profile.toml"
    with pytest.MonkeyPatch.context() as monkeypatch:
        start_warm(monkeypatch)
        result = invoke("calibrate", "-o", str(path), "--device", "cpu", "--note", "a test", *TINY)
    assert result.exit_code == 0, result.output
    assert f"wrote {path}" in result.stderr
    return str(path)


@pytest.mark.torch
def test_calibrate_then_run_with_the_profile(profile):
    result = invoke(
        "run", "--schedule", "1f1b", "--stages", "4", "--mb", "8", "--profile", profile, "--json"
    )
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["unit"] == "ms"


@pytest.mark.torch
def test_show_prints_the_profile_as_text_and_as_json(profile):
    text = invoke("profile", "show", profile)
    assert "note: a test" in text.stdout
    assert "1 layer F, cold" in text.stdout
    shown = json.loads(invoke("profile", "show", profile, "--json").stdout)
    assert shown["schema"] == "ppsim.profile-summary/1"
    assert shown["model"]["hidden"] == 16
    assert shown["summary"]["F_ms"] > 0


@pytest.mark.torch
def test_a_profile_does_not_differ_from_itself(profile):
    found = json.loads(invoke("profile", "diff", profile, profile, "--json").stdout)
    assert found["schema"] == "ppsim.profile-diff/1"
    assert found["settings"] == {}
    assert {t["ratio"] for t in found["times"]} == {1.0}
    assert "spreads apart" not in invoke("profile", "diff", profile, profile).stdout


@pytest.mark.torch
def test_an_existing_profile_is_kept_unless_forced(profile):
    before = Path(profile).read_bytes()
    error = refused("calibrate", "-o", profile, *TINY)
    assert error.exit_code == 2
    assert "--force" in error.hint
    assert Path(profile).read_bytes() == before


def test_a_path_that_cannot_be_written_is_refused_before_measuring(tmp_path):
    assert "cannot write" in str(refused("calibrate", "-o", str(tmp_path / "no" / "p.toml"), *TINY))
    assert "cannot write" in str(refused("calibrate", "-o", str(tmp_path), *TINY))
    assert list(tmp_path.iterdir()) == []


def test_without_torch_the_exit_code_is_3_and_the_hint_installs_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    error = refused("calibrate", "-o", str(tmp_path / "p.toml"), *TINY)
    assert error.exit_code == 3
    assert "pip install 'ppsim-pipeline[torch]'" in error.hint
    assert list(tmp_path.iterdir()) == []


@pytest.mark.torch
def test_cuda_without_a_gpu_is_exit_3(tmp_path):
    torch = pytest.importorskip("torch", reason="measuring needs torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    assert (
        refused("calibrate", "-o", str(tmp_path / "p.toml"), "--device", "cuda", *TINY).exit_code
        == 3
    )


@pytest.mark.parametrize(
    "flags",
    [
        ["--hidden", "0"],
        ["--repeats", "0"],
        ["--seq", "x"],
        ["--dtype", "int8"],
        ["--max-bytes", "12"],
        ["--sizes", "x"],
        ["--sizes", "0"],
    ],
)
def test_impossible_numbers_are_usage_errors(flags, tmp_path):
    assert invoke("calibrate", "-o", str(tmp_path / "p.toml"), *flags).exit_code == 2


@pytest.mark.slow
def test_the_commands_do_not_import_torch_or_numpy_for_their_help():
    code = (
        "import sys; from ppsim.cli import group; group(['calibrate', '--help'], "
        "standalone_mode=False); "
    )
    code += "sys.exit(any(m in sys.modules for m in ('torch', 'numpy')))"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], env=SOURCE, capture_output=True, check=False
        ).returncode
        == 0
    )


ANNOUNCED = """
from ppsim.cli import main
from ppsim.real.calibration import links

measured = links.measure_links

def announce(*args, tick, **options):
    return measured(*args, tick=lambda what: print("exchanging", flush=True), **options)

if __name__ == "__main__":
    links.measure_links = announce
    main()
"""


@pytest.mark.torch
def test_ctrl_c_while_messages_are_exchanged_leaves_no_file_and_no_process(tmp_path):
    pytest.importorskip("torch", reason="measuring needs torch")
    script = tmp_path / "script.py"
    script.write_text(ANNOUNCED)
    sizes = ["--sizes", f"1024,{64 << 20}", "--vocab", "0"]
    words = [
        sys.executable,
        "script.py",
        *with_options(["calibrate", "-o", "p.toml", *TINY[:-2]], sizes),
    ]
    process = subprocess.Popen(
        words,
        cwd=tmp_path,
        env=SOURCE,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"exchanging\n"
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=HANG_S)
    assert (process.returncode, b"Traceback" in err) == (130, False), err
    assert [path.name for path in tmp_path.iterdir()] == ["script.py"]
    for _ in range(100):  # the last of them may still be going
        if not _lives(process.pid):
            break
        time.sleep(0.1)
    assert not _lives(process.pid)


def _lives(group_id: int) -> bool:
    try:
        os.killpg(group_id, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.torch
def test_under_torchrun_rank_0_writes_one_profile(tmp_path):
    pytest.importorskip("torch", reason="measuring needs torch")
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
    ]
    words = [*torchrun, "-m", "ppsim", "calibrate", "-o", "p.toml", "--device", "cpu", *TINY]
    done = subprocess.run(
        words, cwd=tmp_path, env=SOURCE, capture_output=True, text=True, timeout=HANG_S, check=False
    )
    assert done.returncode == 0, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["p.toml"]
    assert {m.link for m in read(str(tmp_path / "p.toml")).message} == {"same-host"}
    assert done.stdout.count("1 layer F, cold") == 1


@pytest.fixture
def hosts() -> Iterator[list[list[str]]]:
    """Two hosts on a network of their own: what to put ahead of a command to run it there."""
    names = [f"ppsim{os.getpid()}{end}" for end in "ab"]
    ends = [f"veth{os.getpid()}{end}" for end in "ab"]
    inside = [["ip", "netns", "exec", name] for name in names]
    steps = [["ip", "netns", "add", name] for name in names]
    steps.append(["ip", "link", "add", ends[0], "type", "veth", "peer", "name", ends[1]])
    for number, (name, end, there) in enumerate(zip(names, ends, inside, strict=True), 1):
        steps.append(["ip", "link", "set", end, "netns", name])
        steps.append([*there, "ip", "address", "add", f"10.231.7.{number}/24", "dev", end])
        steps += [[*there, "ip", "link", "set", link, "up"] for link in (end, "lo")]
    try:
        for step in steps:
            subprocess.run(step, check=True, capture_output=True)
        as_host = 'hostname $1 && export GLOO_SOCKET_IFNAME=$2 && shift 2 && exec "$@"'
        yield [
            [*there, "unshare", "--uts", "sh", "-c", as_host, "sh", name, end]
            for there, name, end in zip(inside, names, ends, strict=True)
        ]
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"network namespaces cannot be made here: {error}")
    finally:
        with suppress(OSError):
            for name in names:
                subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


@pytest.mark.torch
def test_on_two_hosts_rank_0_tells_their_links_apart(tmp_path, hosts):
    """Two ranks on one host and one on the other, with what torchrun tells them: links within a
    host, and between.
    """
    pytest.importorskip("torch", reason="measuring needs torch")
    words = [sys.executable, "-m", "ppsim", "calibrate", "-o", "p.toml", "--device", "cpu", *TINY]
    running = []
    for rank, (node, local) in enumerate(((0, 0), (0, 1), (1, 0))):
        told = {
            "RANK": rank,
            "WORLD_SIZE": 3,
            "LOCAL_RANK": local,
            "MASTER_ADDR": "10.231.7.1",
            "MASTER_PORT": 29571,
        }
        running.append(
            subprocess.Popen(
                [*hosts[node], *words],
                cwd=tmp_path,
                env=SOURCE | {name: str(value) for name, value in told.items()},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    try:
        for process in running:
            _, err = process.communicate(timeout=HANG_S)
            assert process.returncode == 0, err
    finally:
        for process in running:
            process.kill()
            process.communicate()
    assert [path.name for path in tmp_path.iterdir()] == ["p.toml"]
    assert {m.link for m in read(str(tmp_path / "p.toml")).message} == {
        "same-host",
        "between-hosts",
    }
