"""The one call the worker makes to the Kubernetes API: replace the status of a Workflow, if it is still that one.

A JSON patch that tests the UID and then sets `/status`: a merge patch on the status subresource ignores a wrong UID
and keeps fields that are gone (design, tried on a real server). Used by `reporter`; `answers` says what comes
back. The worker's only right is this verb on this subresource.
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
from kubernetes.aio.client import Configuration
from kubernetes.aio.client.rest import RESTClientObject

from perdure.resources.common import GROUP, VERSION
from perdure.telemetry import names
from perdure.telemetry.prometheus import Metrics
from perdure.worker.answers import Answer, Verdict, classify

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds its token and the cluster's certificate."""

TOKEN_SECONDS = 60.0
"""How long a token that was read is used: the kubelet renews it long before it expires."""

REQUEST_SECONDS = 15.0
"""Limit of one request: reports are repeated, so a hanging connection should not hold one up for long."""


class KubeApi:
    """The API server as a pod sees it, or as `url`, `token_file` and `ca_file` say."""

    def __init__(self, *, url: str, token_file: Path, ca_file: Path, metrics: Metrics) -> None:
        self._url = url.rstrip("/")
        self._token_file = token_file
        self._token = ""
        self._token_read_at = float("-inf")
        self._metrics = metrics
        configuration = Configuration(host=self._url)
        configuration.ssl_ca_cert = str(ca_file)
        # Python 3.13 began to refuse authorities without key usage or key identifier. Many clusters have such a one
        # and cannot change it; signature, name and dates are checked all the same.
        configuration.disable_strict_ssl_verification = True
        # Repetition is the reporter's: it always sends the newest, never the same again.
        configuration.retries = False
        self._http = RESTClientObject(configuration)
        self._request: Callable[..., Awaitable[Any]] = self._http.request

    @classmethod
    def in_cluster(cls, metrics: Metrics, env: Mapping[str, str] | None = None) -> KubeApi | None:
        """The API of the cluster this pod runs in, None when this is no pod or it has no token."""
        source = os.environ if env is None else env
        host, port = source.get("KUBERNETES_SERVICE_HOST", ""), source.get("KUBERNETES_SERVICE_PORT", "")
        token_file = SERVICE_ACCOUNT / "token"
        if not host or not port or not token_file.exists():
            return None
        shown = f"[{host}]" if ":" in host else host
        return cls(
            url=f"https://{shown}:{port}", token_file=token_file, ca_file=SERVICE_ACCOUNT / "ca.crt", metrics=metrics
        )

    async def write_status(self, *, namespace: str, name: str, uid: str, status: Mapping[str, Any]) -> Answer:
        """See `StatusApi.write_status`."""
        url = f"{self._url}/apis/{GROUP}/{VERSION}/namespaces/{namespace}/workflows/{name}/status"
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": uid},
            {"op": "add", "path": "/status", "value": status},
        ]
        started = time.monotonic()
        code = 0
        try:
            headers = {
                "Authorization": f"Bearer {self._bearer()}",
                "Content-Type": "application/json-patch+json",
                # The whole object would hold the input; nobody here reads it.
                "Accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
            }
            response = await self._request("PATCH", url, headers=headers, body=patch, _request_timeout=REQUEST_SECONDS)
            code = response.status
            body = (await response.read()).decode(errors="replace")
            answer = classify(code, body, response.getheader("Retry-After"))
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            answer = Answer(Verdict.RETRY, f"{type(error).__name__}: {error}", overloaded=True)
        if code == 401:
            self._token_read_at = float("-inf")
        self._metrics.count(names.API_REQUESTS, "patch", str(code))
        self._metrics.observe(names.API_REQUEST_SECONDS, time.monotonic() - started, "patch")
        return answer

    async def close(self) -> None:
        """See `StatusApi.close`."""
        await self._http.close()

    def _bearer(self) -> str:
        if time.monotonic() - self._token_read_at > TOKEN_SECONDS:
            self._token = self._token_file.read_text(encoding="utf-8").strip()
            self._token_read_at = time.monotonic()
        return self._token
