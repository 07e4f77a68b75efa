"""The benchmarks still run: a drain by a worker process and runs through the client, too short to measure anything."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 110


def test_a_smoke_run_of_the_benchmarks_leaves_numbers_and_a_page(tmp_path: Path) -> None:
    path = os.pathsep.join([str(ROOT / "hack"), str(ROOT), str(ROOT / "worker_image")])
    command = [sys.executable, "-m", "benchmarks", "--size", "smoke", "--results", str(tmp_path), "drain", "latency"]
    env = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    parts = json.loads((tmp_path / "latest.json").read_text())["parts"]
    assert all(line["figures"] for part in parts.values() for line in part["lines"])
    assert set(parts) == {"drain", "latency"}
    assert "## Draining 5-step runs" in (tmp_path / "benchmarks.md").read_text()
