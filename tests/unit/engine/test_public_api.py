"""The types of the public API, as mypy and pyright see them in a user's code, and its names."""

import subprocess
import sys
from pathlib import Path

import perdure

ROOT = Path(__file__).parents[3]


def test_mypy_accepts_what_is_right_and_refuses_what_is_wrong():
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "tests/typing/public_api.py",
        "examples/order/flows.py",
        "examples/approval/flows.py",
        "examples/cron/flows.py",
        "examples/fanout/flows.py",
        "examples/reminder/flows.py",
        "examples/saga/flows.py",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_pyright_accepts_what_is_right_and_refuses_what_is_wrong():
    """An ignored line of the file that pyright would take is an error, as its settings say."""
    done = subprocess.run([sys.executable, "-m", "pyright"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 errors" in done.stdout


def test_everything_public_is_there():
    assert all(hasattr(perdure, name) for name in perdure.__all__)
