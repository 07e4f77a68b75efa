"""How this machine reaches a package index, for the builds of the images: pip's configuration and CA bundle.

Images are built in a file system of their own, where neither the settings of the machine nor those of the user exist.
They are handed to the build as secrets, which leave no trace in the image.
"""

import configparser
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

# Where the Dockerfiles mount the CA bundle.
CA_IN_BUILD = "/etc/perdure-build-ca.pem"
# What says where packages come from; all else that people set (user, target, …) would break the build.
ADDRESSES = ("index-url", "extra-index-url", "trusted-host", "no-index", "find-links", "proxy")
PATIENCE = ("timeout", "default-timeout", "retries")
FILES = ("/etc/xdg/pip/pip.conf", "/etc/pip.conf", "~/.pip/pip.conf", "~/.config/pip/pip.conf")


@dataclass(frozen=True)
class HostPip:
    settings: Mapping[str, str]
    ca_bundle: Path | None
    # Folders with packages: they must be mounted at the same place.
    folders: tuple[Path, ...] = field(default=())

    @classmethod
    def read(cls, env: Mapping[str, str] = os.environ) -> "HostPip":
        """As pip does: each file overrides those before it, and the environment overrides them all."""
        parser = configparser.RawConfigParser()
        files = [Path(name).expanduser() for name in (*FILES, env.get("PIP_CONFIG_FILE", ""))]
        parser.read([path for path in files if path.is_file()])
        found: dict[str, str] = {}
        for section in ("global", "install"):
            if parser.has_section(section):
                found.update(parser.items(section))
        for name, value in env.items():
            if name.startswith("PIP_"):
                found[name.removeprefix("PIP_").lower().replace("_", "-")] = value
        ca = found.get("cert") or env.get("REQUESTS_CA_BUNDLE") or env.get("SSL_CERT_FILE")
        links = found.get("find-links", "").split()
        return cls(
            settings={name: value for name, value in found.items() if name in ADDRESSES + PATIENCE},
            ca_bundle=Path(ca) if ca and Path(ca).is_file() else None,
            folders=tuple(Path(link) for link in links if Path(link).is_dir()),
        )

    def configuration(self) -> str:
        """The pip.conf for the build."""
        settings = dict(self.settings)
        if self.ca_bundle:
            settings["cert"] = CA_IN_BUILD
        lines = ["[global]"]
        # A value of several lines goes on where the next one is indented.
        lines += [f"{name} = {value.replace(chr(10), chr(10) + '  ')}" for name, value in settings.items()]
        return "\n".join(lines) + "\n"
