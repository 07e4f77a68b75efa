"""Service discovery of pods for a Prometheus that was built without any for Kubernetes, as Debian's is.

Answers over HTTP with what `kubernetes_sd_configs` of role `pod` would find, as far as monitors look at it.
"""

import json
import re
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

REQUEST_SECONDS = 10.0

Pod = Mapping[str, Any]


@contextmanager
def serving(api_server: str) -> Iterator[str]:
    """The URL to which a namespace is added; each question is answered with what the API server says then."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            namespace = self.path.rpartition("/")[2]
            with urllib.request.urlopen(
                f"{api_server}/api/v1/namespaces/{namespace}/pods", timeout=REQUEST_SECONDS
            ) as answer:
                pods = json.load(answer)["items"]
            body = json.dumps([group for pod in pods for group in target_groups(pod)]).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """A request a second is no news."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, name="pod-discovery", daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def target_groups(pod: Pod) -> Iterator[dict[str, Any]]:
    """One group for each port of each container of a pod that has an address."""
    address = pod["status"].get("podIP")
    if not address:
        return
    labels = {
        "namespace": pod["metadata"]["namespace"],
        "pod_name": pod["metadata"]["name"],
        "pod_phase": pod["status"]["phase"],
    }
    for name, value in pod["metadata"].get("labels", {}).items():
        labels[f"pod_label_{label_name(name)}"] = value
        labels[f"pod_labelpresent_{label_name(name)}"] = "true"
    for container in pod["spec"]["containers"]:
        for port in container.get("ports", []):
            of_port = {
                "pod_container_name": container["name"],
                "pod_container_port_name": port.get("name", ""),
                "pod_container_port_number": str(port["containerPort"]),
            }
            yield {
                "targets": [f"{address}:{port['containerPort']}"],
                "labels": {f"__meta_kubernetes_{name}": value for name, value in (labels | of_port).items()},
            }


def label_name(name: str) -> str:
    """How service discovery spells the name of a label."""
    return re.sub(r"[^a-zA-Z0-9_]", "_", name)
