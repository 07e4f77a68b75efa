"""Keys and certificates of one cluster, made by openssl when it starts and thrown away with it."""

import base64
import json
from collections.abc import Sequence
from pathlib import Path

from localcluster.console import run

# A cluster that is left running keeps working; nothing here is worth stealing for longer than it lives.
DAYS = "3650"
# Elliptic curve keys take a few milliseconds each, RSA ones half a second of the start of every test run.
NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class Authority:
    """Signs for the API server and for everything that calls it. Files: `<name>.crt` and `<name>.key`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        self.certificate = folder / "ca.crt"
        self._key = folder / "ca.key"
        request = ["openssl", "req", "-x509", *NEW_KEY, "-days", DAYS, "-subj", "/CN=perdure-local"]
        # Python 3.13 and newer refuse an authority that does not say what its key is for.
        request += ["-addext", "keyUsage=critical,keyCertSign,cRLSign"]
        run([*request, "-keyout", str(self._key), "-out", str(self.certificate)])

    def sign(self, name: str, *, user: str, groups: Sequence[str] = (), names: Sequence[str] = ()) -> None:
        """A certificate for a client (`user` and `groups`, as Kubernetes reads them) or a server (`names`)."""
        subject = "".join(f"/O={group}" for group in groups) + f"/CN={user}"
        extensions = ["keyUsage=digitalSignature,keyEncipherment", "extendedKeyUsage=serverAuth,clientAuth"]
        extensions += ["subjectKeyIdentifier=hash", "authorityKeyIdentifier=keyid"]
        if names:
            extensions.append("subjectAltName=" + ",".join(names))
        key, request, settings = (self.folder / f"{name}.{kind}" for kind in ("key", "csr", "ext"))
        settings.write_text("\n".join(extensions))
        run(["openssl", "req", *NEW_KEY, "-subj", subject, "-keyout", key, "-out", request])
        sign: list[str | Path] = ["openssl", "x509", "-req", "-CA", self.certificate, "-CAkey", self._key]
        result = self.folder / f"{name}.crt"
        run([*sign, "-CAcreateserial", "-days", DAYS, "-in", request, "-extfile", settings, "-out", result])

    def service_account_keys(self) -> None:
        """`sa.key` signs the tokens of service accounts, `sa.pub` lets the API server check them."""
        private = self.folder / "sa.key"
        run(["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", private])
        run(["openssl", "ec", "-in", private, "-pubout", "-out", self.folder / "sa.pub"])

    def kubeconfig(self, path: Path, server: str, client: str) -> Path:
        """A kubeconfig that calls `server` with the certificate of `client`."""
        user = {
            "client-certificate-data": encoded(self.folder / f"{client}.crt"),
            "client-key-data": encoded(self.folder / f"{client}.key"),
        }
        return write_kubeconfig(path, server, self.certificate, user)


def encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def write_kubeconfig(path: Path, server: str, authority: Path, user: dict[str, str]) -> Path:
    """Everything is inside the file, so it may be copied; JSON is YAML too, and the library for it is here."""
    name = "perdure-local"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": server, "certificate-authority-data": encoded(authority)}}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps(config, indent=1))
    return path
