"""A real Prometheus of one's own, which scrapes pods as a PodMonitor says and evaluates the rules of a PrometheusRule.

It reaches the pods through the API server (`kubectl proxy`), so it works with any cluster, wherever that runs.
"""

import json
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import yaml

from tests.support import pod_discovery
from tests.support.pod_discovery import label_name
from tests.support.tiers import unavailable

SCRAPE_INTERVAL = "1s"
START_SECONDS = 30.0
REQUEST_SECONDS = 10.0

T = TypeVar("T")
Object = Mapping[str, Any]


class Prometheus:
    """Its answers. A test polls with `until`."""

    def __init__(self, url: str) -> None:
        self.url = url

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The instant vector: `metric` has the labels, `value` time and text."""
        found: list[dict[str, Any]] = self._get("query", query=expression)["result"]
        return found

    def until_there(self, expression: str, *, seconds: float) -> list[dict[str, Any]]:
        """What the query gives, once it gives anything."""
        return self.until(expression, lambda: self.query(expression), seconds=seconds)

    def alerts(self, name: str) -> list[dict[str, Any]]:
        """The firing alerts of that name; pending ones are none."""
        found = self._get("alerts")["alerts"]
        return [each for each in found if each["labels"]["alertname"] == name and each["state"] == "firing"]

    def targets(self) -> list[dict[str, Any]]:
        """What it scrapes, with labels, health and the last error."""
        found: list[dict[str, Any]] = self._get("targets", state="active")["activeTargets"]
        return found

    def rule_problems(self) -> list[str]:
        """Errors of the last evaluation of each rule."""
        groups = self._get("rules")["groups"]
        return [each["lastError"] for group in groups for each in group["rules"] if each["health"] == "err"]

    def until(self, what: str, look: Callable[[], T], *, seconds: float) -> T:
        """Look until there is something; the AssertionError says how the targets were."""
        deadline = time.monotonic() + seconds
        while not (found := look()):
            if time.monotonic() > deadline:
                targets = [(each["labels"], each["health"], each["lastError"]) for each in self.targets()]
                raise AssertionError(f"{what} did not come about within {seconds:g} s; targets: {targets}")
            time.sleep(0.2)
        return found

    def _get(self, path: str, **parameters: str) -> Any:
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=REQUEST_SECONDS) as answer:
            return json.load(answer)["data"]


@contextmanager
def running(folder: Path, *, monitors: Sequence[Object], rules: Object, api_server: str) -> Iterator[Prometheus]:
    """Prometheus over `folder`, ready, until the block is left. `api_server` wants no credentials."""
    program = shutil.which("prometheus")
    if program is None:
        unavailable("cluster", "prometheus is missing: it is in Debian's package prometheus")
    (folder / "rules.yml").write_text(yaml.safe_dump(rules["spec"]))
    with pod_discovery.serving(api_server) as discovery:
        scrapes = [scrape_config(monitor, api_server, discovery) for monitor in monitors]
        every = {"scrape_interval": SCRAPE_INTERVAL, "evaluation_interval": SCRAPE_INTERVAL}
        configuration = {"global": every, "rule_files": ["rules.yml"], "scrape_configs": scrapes}
        (folder / "prometheus.yml").write_text(yaml.safe_dump(configuration))
        with _started(program, folder) as url:
            yield Prometheus(url)


@contextmanager
def _started(program: str, folder: Path) -> Iterator[str]:
    port = _free_port()
    argv = [
        program,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "prometheus.log").open("ab") as log:
        process = subprocess.Popen(argv, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_until_ready(url, process, folder / "prometheus.log")
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def scrape_config(monitor: Object, api_server: str, discovery: str) -> dict[str, Any]:
    """What the Prometheus operator makes of a PodMonitor, but for the way to the pods."""
    spec = monitor["spec"]
    (endpoint,) = spec["podMetricsEndpoints"]
    selector = spec["selector"]
    keep = [
        _keep(f"__meta_kubernetes_pod_label_{label_name(label)}", re.escape(value))
        for label, value in selector.get("matchLabels", {}).items()
    ]
    for each in selector.get("matchExpressions", []):
        assert each["operator"] == "Exists", each
        keep.append(_keep(f"__meta_kubernetes_pod_labelpresent_{label_name(each['key'])}", "true"))
    keep.append(_keep("__meta_kubernetes_pod_container_port_name", endpoint["port"]))
    keep.append(_keep("__meta_kubernetes_pod_phase", "Pending|Running|Unknown"))
    place = ["__meta_kubernetes_namespace", "__meta_kubernetes_pod_name", "__meta_kubernetes_pod_container_port_number"]
    labels = {"namespace": "namespace", "pod": "pod_name", "container": "pod_container_name"}
    return {
        "job_name": f"{monitor['metadata']['namespace']}/{monitor['metadata']['name']}",
        "honor_labels": endpoint.get("honorLabels", False),
        "http_sd_configs": [
            {"url": f"{discovery}/{namespace}", "refresh_interval": SCRAPE_INTERVAL}
            for namespace in spec["namespaceSelector"]["matchNames"]
        ],
        "relabel_configs": [
            *keep,
            *(
                {"source_labels": [f"__meta_kubernetes_{source}"], "target_label": target}
                for target, source in labels.items()
            ),
            {"source_labels": ["__address__"], "target_label": "instance"},
            {
                "source_labels": place,
                "separator": ";",
                "regex": "(.+);(.+);(.+)",
                "replacement": "/api/v1/namespaces/$1/pods/$2:$3/proxy/metrics",
                "target_label": "__metrics_path__",
            },
            {"replacement": api_server.removeprefix("http://"), "target_label": "__address__"},
            *endpoint.get("relabelings", []),
        ],
    }


def _keep(source: str, regex: str) -> dict[str, Any]:
    return {"action": "keep", "source_labels": [source], "regex": regex}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_until_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            with urllib.request.urlopen(f"{url}/-/ready", timeout=REQUEST_SECONDS):
                return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"Prometheus does not start:\n{log.read_text()[-2000:]}") from None
            time.sleep(0.1)
