"""Where the API server is and who we are to it. Read from the pod's environment; the token anew from its file.

Used by `client` and by the watch's login. Tokens of service accounts are replaced about once an hour, so nobody
keeps one for longer than a minute.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from perdure.errors import ConfigurationError

ACCOUNT_DIR = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where the kubelet puts token, CA certificate and namespace of the pod's service account."""


@dataclass(frozen=True, slots=True)
class Access:
    """Address of the API server and the files with its CA certificate and our token."""

    server: str
    ca_file: Path
    token_file: Path

    @classmethod
    def in_cluster(cls, env: Mapping[str, str] | None = None) -> Access:
        """From the variables that the kubelet sets. Raises ConfigurationError outside a pod."""
        source = os.environ if env is None else env
        host, port = source.get("KUBERNETES_SERVICE_HOST"), source.get("KUBERNETES_SERVICE_PORT", "443")
        if not host:
            raise ConfigurationError(
                "not in a pod (no KUBERNETES_SERVICE_HOST): set PERDURE_OPERATOR_KUBE_SERVER, "
                "PERDURE_OPERATOR_KUBE_CA_FILE and PERDURE_OPERATOR_KUBE_TOKEN_FILE"
            )
        address = f"[{host}]" if ":" in host else host
        return cls(f"https://{address}:{port}", ACCOUNT_DIR / "ca.crt", ACCOUNT_DIR / "token")

    def token(self) -> str:
        """The present token. Raises OSError when the file cannot be read."""
        return self.token_file.read_text(encoding="utf-8").strip()

    def tls(self) -> ssl.SSLContext:
        """A context that trusts the cluster's CA and nobody else. Raises OSError when the file cannot be read."""
        context = ssl.create_default_context(cafile=str(self.ca_file))
        # Python 3.13 began to refuse authorities without key usage or key identifier. Many clusters have such a one
        # and cannot change it; signature, name and dates are checked all the same.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        return context


def own_namespace() -> str | None:
    """The namespace of this pod, None outside one."""
    try:
        return (ACCOUNT_DIR / "namespace").read_text(encoding="utf-8").strip() or None
    except OSError:
        return None
