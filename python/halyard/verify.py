"""Conformance: the command `halyard verify`, which compares a device with the reference, op by op."""

import json
import os
import pathlib
import shutil
import subprocess

from halyard import _library


def command():
    """The command `halyard`: HALYARD_COMMAND, else the package's own, else the one in PATH."""
    named = os.environ.get("HALYARD_COMMAND")
    packed = pathlib.Path(_library.HERE) / "halyard-command"
    found = named or (str(packed) if packed.exists() else shutil.which("halyard"))
    if not found:
        raise _library.Error("NOT_FOUND", "the command halyard is neither in the package nor in PATH; HALYARD_COMMAND may name it")
    return found


def verify(device=None, *, op=None, seed=None, quick=False, gradients=False, determinism=False):
    """Runs the conformance cases on a device (a Device, a selector, or None for the default), in a process of its own.

    Returns {device, seed, ops, checks, cases, passed, failed, refused, unsupported, output}; `output` tells each failure and the command that
    repeats it. Failed cases are a result, not an exception; halyard.Error where nothing could be run.
    """
    words = [command(), "verify", "--json"]
    if device is not None:
        words += ["--backend", getattr(device, "selector", device)]
    for name, value in (("--op", op), ("--seed", seed)):
        if value is not None:
            words += [name, str(value)]
    words += [name for name, on in (("--quick", quick), ("--gradients", gradients), ("--determinism", determinism)) if on]
    run = subprocess.run(words, capture_output=True, text=True)
    try:
        report = json.loads(run.stdout)
    except json.JSONDecodeError:
        raise _library.Error("UNAVAILABLE", run.stderr.strip() or f"{words[0]} verify ended with {run.returncode}") from None
    return {**report, "output": run.stderr.strip()}
