"""API servers whose authority says little about itself are trusted, by each of the three who call them."""

import functools
import ssl
import subprocess
from pathlib import Path

import kopf
import pytest
from perdure.telemetry import names
from perdure.telemetry.prometheus import Metrics
from perdure.worker.kubeapi import KubeApi
from perdure_operator.control import watch
from perdure_operator.kube.access import Access


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contexts as Python 3.13 makes them, whichever Python this is."""
    create = ssl.create_default_context

    @functools.wraps(create)
    def stricter(*arguments: object, **named: object) -> ssl.SSLContext:
        context = create(*arguments, **named)  # type: ignore[arg-type]
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", stricter)


@pytest.fixture
def access(tmp_path: Path) -> Access:
    """An authority without key usage, as kubeadm, EKS and others have made them."""
    authority, key, token = (tmp_path / name for name in ("ca.crt", "ca.key", "token"))
    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=old"]
    subprocess.run(
        ["openssl", "req", "-x509", *new, "-keyout", key, "-out", authority], check=True, capture_output=True
    )
    token.write_text("t")
    return Access("https://10.0.0.1:443", authority, token)


def lenient(context: ssl.SSLContext) -> bool:
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.cert_store_stats()["x509_ca"] == 1
    return not context.verify_flags & ssl.VERIFY_X509_STRICT


@pytest.mark.usefixtures("strict")
def test_the_operators_client(access: Access) -> None:
    assert lenient(access.tls())


@pytest.mark.usefixtures("strict")
def test_the_operators_watch(access: Access) -> None:
    connection: kopf.ConnectionInfo = watch.connection(access)
    assert lenient(connection.as_ssl_context())


@pytest.mark.usefixtures("strict")
async def test_the_workers_reports(access: Access) -> None:
    metrics = Metrics(names.declared(names.Component.WORKER))
    api = KubeApi(url=access.server, token_file=access.token_file, ca_file=access.ca_file, metrics=metrics)
    assert lenient(api._http.ssl_context)
    await api.close()
