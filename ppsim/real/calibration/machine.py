"""The machine of a measurement: torch, device, free memory, and its description for files."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ppsim.errors import InputError, MissingDependency
from ppsim.inputs.profile.profile import Provenance
from ppsim.version import INSTALL_TORCH, VERSION

GPU_QUERY = "clocks.sm,clocks.mem,power.draw,temperature.gpu,clocks_event_reasons.active"


def torch_module() -> Any:
    """Return the torch package (MissingDependency: it cannot be imported)."""
    try:
        import torch
        import torch.distributed
    except (ImportError, OSError) as error:
        raise MissingDependency(
            f"measuring needs torch, which cannot be imported: {error}", INSTALL_TORCH
        ) from error
    if not torch.distributed.is_available():
        raise MissingDependency("this torch is built without torch.distributed", INSTALL_TORCH)
    return torch


def device_for(name: str) -> str:
    """Return ``cpu`` or ``cuda``; ``auto`` is cuda if there is a GPU.

    Raises:
        InputError: the name is another one.
        MissingDependency: the name is cuda and torch finds no GPU.
    """
    if name not in ("auto", "cpu", "cuda"):
        raise InputError(f"unknown device '{name}'", "auto, cpu or cuda")
    torch = torch_module()
    has_gpu = torch.cuda.is_available()
    if name == "cuda" and not has_gpu:
        reason = (
            "this torch is built without CUDA"
            if torch.version.cuda is None
            else "torch finds no GPU"
        )
        raise MissingDependency(
            f"no CUDA device: {reason}", "--device cpu, or run where nvidia-smi shows a GPU"
        )
    return "cuda" if name == "cuda" or (name == "auto" and has_gpu) else "cpu"


def provenance(device: str, command: str, note: str = "") -> Provenance:
    """Return the description of this machine; its settings are read, never changed."""
    import torch

    return Provenance(
        machine=f"{platform.system()} {platform.machine()}",
        cpu=_cpuinfo("model name") or platform.processor() or platform.machine(),
        cores=len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count() or 1,
        threads=1 if device == "cpu" else torch.get_num_threads(),
        load=round(os.getloadavg()[0], 2),
        device=torch.cuda.get_device_name() if device == "cuda" else "cpu",
        clocks=clocks(device),
        torch=torch.__version__,
        python=platform.python_version(),
        ppsim=VERSION,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        command=command,
        note=note,
    )


def clocks(device: str) -> str:
    """Return the current clock rates as text; for a GPU also power, temperature and throttling."""
    if device == "cuda":
        return _gpu_clocks()
    megahertz = _cpuinfo("cpu MHz")
    return f"{float(megahertz):.0f} MHz" if megahertz else "unknown"


def available_bytes(device: str) -> int | None:
    """Return the free bytes of the device's memory, or None if the system does not report them."""
    if device == "cuda":
        import torch

        free: int = torch.cuda.mem_get_info()[0]
        return free
    try:
        found = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    except OSError:
        return None
    return int(found[1]) * 1024 if found else None


def _cpuinfo(key: str) -> str:
    """Return the first value of a key in /proc/cpuinfo, or ''."""
    try:
        found = re.search(rf"^{key}\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        return ""
    return found[1].strip() if found else ""


def _gpu_clocks() -> str:
    """Return the answer of nvidia-smi on the first GPU, or 'unknown'."""
    if not shutil.which("nvidia-smi"):
        return "unknown"
    command = ["nvidia-smi", f"--query-gpu={GPU_QUERY}", "--format=csv,noheader", "--id=0"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return f"{GPU_QUERY}: {answer.stdout.strip()}" if answer.returncode == 0 else "unknown"
