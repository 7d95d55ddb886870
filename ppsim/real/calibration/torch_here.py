"""Measuring what a pipeline costs on this machine, with torch; torch is imported when something is measured."""

from __future__ import annotations

from typing import Any

from ppsim.errors import InputError, MissingDependency
from ppsim.version import INSTALL_TORCH


def torch_module() -> Any:
    """The torch package (MissingDependency: it is not installed, or cannot be loaded)."""
    try:
        import torch
        import torch.distributed
    except (ImportError, OSError) as error:
        raise MissingDependency(f"measuring needs torch, which cannot be imported: {error}", INSTALL_TORCH) from error
    if not torch.distributed.is_available():
        raise MissingDependency("this torch is built without torch.distributed", INSTALL_TORCH)
    return torch


def device_for(name: str) -> str:
    """``cpu`` or ``cuda``, for ``auto`` the best there is (MissingDependency: no GPU; InputError: any other name)."""
    if name not in ("auto", "cpu", "cuda"):
        raise InputError(f"unknown device '{name}'", "auto, cpu or cuda")
    torch = torch_module()
    there = torch.cuda.is_available()
    if name == "cuda" and not there:
        why = "this torch is built without CUDA" if torch.version.cuda is None else "torch finds no GPU"
        raise MissingDependency(f"no CUDA device: {why}", "--device cpu, or run where nvidia-smi shows a GPU")
    return "cuda" if name == "cuda" or (name == "auto" and there) else "cpu"
