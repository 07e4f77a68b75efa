"""The three ways to Postgres: what the operator is told, what worker pods read, what is mounted."""

from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import yaml
from perdure.store.pool import database_url, migrate_url
from perdure_operator import settings

from tests.chart import cases
from tests.support import helm
from tests.support.helm import Resource

WORKER_SECRET = "PERDURE_OPERATOR_WORKER_DATABASE_SECRET"


def operator_pod(found: list[Resource]) -> dict[str, Any]:
    pod: dict[str, Any] = helm.only(found, "Deployment", "demo-perdure-operator")["spec"]["template"]["spec"]
    return pod


def environment(found: list[Resource]) -> dict[str, str]:
    listed = operator_pod(found)["containers"][0]["env"]
    return {each["name"]: each["value"] for each in listed if "value" in each}


def database_environment(found: list[Resource]) -> dict[str, str]:
    return {name: value for name, value in environment(found).items() if name.startswith("PERDURE_DATABASE_")}


def secret_files(found: list[Resource]) -> dict[str, tuple[str, str]]:
    """path → (Secret, key), of everything that the operator's container mounts from Secrets."""
    pod = operator_pod(found)
    mounts = {mount["name"]: mount for mount in pod["containers"][0]["volumeMounts"]}
    files = {}
    for volume in pod["volumes"]:
        for item in volume.get("secret", {}).get("items", []):
            mount = mounts[volume["name"]]
            assert mount["readOnly"] is True
            assert "subPath" not in mount, "the kubelet never updates a subPath"
            files[f"{mount['mountPath']}/{item['path']}"] = (volume["secret"]["secretName"], item["key"])
    return files


def test_a_uri_is_mounted_as_a_file_so_that_a_new_password_is_seen() -> None:
    found = cases.render({"database": {"existingSecret": "app-db", "uriKey": "fqdn-uri"}})
    assert database_environment(found) == {"PERDURE_DATABASE_URL_FILE": "/etc/perdure/database/uri"}
    assert secret_files(found) == {"/etc/perdure/database/uri": ("app-db", "fqdn-uri")}
    assert environment(found)[WORKER_SECRET] == "app-db"
    assert environment(found)[f"{WORKER_SECRET}_KEY"] == "fqdn-uri"


def test_workers_may_have_a_secret_of_their_own() -> None:
    found = cases.render({**cases.SMALLEST, "workerDefaults": {"databaseSecret": {"name": "w", "key": "k"}}})
    assert environment(found)[WORKER_SECRET] == "w"
    assert environment(found)[f"{WORKER_SECRET}_KEY"] == "k"


def test_by_parts_the_password_is_a_file_and_in_no_url() -> None:
    """A template that builds a URL breaks with the first @ in a password, which it cannot even see."""
    parts = {
        "host": "db.example.com",
        "port": 6432,
        "passwordSecret": {"name": "p", "key": "db.password"},
        "caSecret": {"name": "ca"},
    }
    found = cases.render({"database": parts, "workerDefaults": {"databaseSecret": {"name": "w"}}})
    assert database_environment(found) == {
        "PERDURE_DATABASE_HOST": "db.example.com",
        "PERDURE_DATABASE_PORT": "6432",
        "PERDURE_DATABASE_NAME": "perdure",
        "PERDURE_DATABASE_USER": "perdure",
        "PERDURE_DATABASE_PASSWORD_FILE": "/etc/perdure/database/password",
        "PERDURE_DATABASE_SSLMODE": "verify-full",
        "PERDURE_DATABASE_SSLROOTCERT": "/etc/perdure/database-ca/ca.crt",
    }
    assert secret_files(found) == {
        "/etc/perdure/database/password": ("p", "db.password"),
        "/etc/perdure/database-ca/ca.crt": ("ca", "ca.crt"),
    }


def test_a_certificate_authority_goes_with_a_uri_too() -> None:
    found = cases.render({"database": {"existingSecret": "db", "caSecret": {"name": "ca", "key": "root.crt"}}})
    assert secret_files(found)["/etc/perdure/database-ca/ca.crt"] == ("ca", "root.crt")


def test_migrations_may_have_a_uri_of_their_own_past_the_pooler(tmp_path: Path) -> None:
    direct = {"migrateSecret": {"name": "direct", "key": "uri-of-postgres"}}
    found = cases.render({"database": {"existingSecret": "db", "pooler": "transaction", **direct}})
    assert secret_files(found)["/etc/perdure/database-migrate/uri"] == ("direct", "uri-of-postgres")
    assert environment(found)[WORKER_SECRET] == "db"
    read = as_in_a_pod(found, tmp_path, "postgresql://a:b@c/d")
    assert (migrate_url(read), database_url(read)) == (
        "postgresql://a:b@c/d",
        "postgresql://a:b@c/d?pooler=transaction",
    )


def test_the_throwaway_postgres_and_its_uri_in_every_namespace() -> None:
    found = cases.render({**cases.THROWAWAY, "watchNamespaces": ["a", "b"]})
    secrets = {each["metadata"]["namespace"]: each for each in found if each["kind"] == "Secret"}
    assert secrets.keys() == {"perdure-system", "a", "b"}
    address = "demo-perdure-postgres.perdure-system.svc:5432"
    for namespace, secret in secrets.items():
        uri = f"postgresql://perdure:perdure-throwaway@{address}/perdure?sslmode=disable"
        assert secret["stringData"]["uri"] == uri
        assert ("password" in secret["stringData"]) == (namespace == "perdure-system")
    assert secret_files(found) == {"/etc/perdure/database/uri": ("demo-perdure-database", "uri")}
    assert environment(found)[WORKER_SECRET] == "demo-perdure-database"
    assert environment(found)[f"{WORKER_SECRET}_KEY"] == "uri"
    assert helm.only(found, "Service", "demo-perdure-postgres")["spec"]["type"] == "ClusterIP"


def test_a_new_password_of_the_throwaway_postgres_restarts_it() -> None:
    def template(password: str) -> Any:
        found = cases.render({"database": {"throwaway": {"enabled": True, "password": password}}})
        return helm.only(found, "Deployment", "demo-perdure-postgres")["spec"]["template"]

    assert template("one") != template("two")
    assert "one" not in yaml.safe_dump(template("one")["metadata"]["annotations"]).split()


# -- the same values, as the programs read them


def as_in_a_pod(found: list[Resource], folder: Path, content: str) -> dict[str, str]:
    """The operator's variables, with the mounted files in `folder`, each with this content."""
    moved = {name: value.replace("/etc/perdure", str(folder)) for name, value in environment(found).items()}
    for path in secret_files(found):
        file = folder / Path(path).relative_to("/etc/perdure")
        file.parent.mkdir(exist_ok=True)
        file.write_text(content)
    return moved


@pytest.mark.parametrize("case", [case for case in cases.CASES if case != "everything"])
def test_the_operator_reads_the_uri_that_is_mounted(case: str, tmp_path: Path) -> None:
    uri = "postgresql://a:b@c/d"
    assert database_url(as_in_a_pod(cases.objects(case), tmp_path, f"{uri}\n")) == uri


def test_any_password_survives_the_way_through_parts(tmp_path: Path) -> None:
    password = "p@ss/w:rd #%&?é"
    values = {
        "database": {"host": "db", "sslMode": "require", "passwordSecret": {"name": "p"}},
        "workerDefaults": {"databaseSecret": {"name": "w"}},
    }
    url = urlsplit(database_url(as_in_a_pod(cases.render(values), tmp_path, password)))
    assert unquote(url.password or "") == password
    assert (url.hostname, url.port, url.path, url.query) == ("db", 5432, "/perdure", "sslmode=require")


def test_every_variable_is_one_that_the_operator_reads() -> None:
    """A misspelt one would be ignored in silence."""
    known = {f"{settings.PREFIX}{name.upper()}" for name in settings.OperatorSettings.model_fields}
    found = cases.render({**cases.SMALLEST, "operator": {"logLevel": "WARNING", "resyncSeconds": 60}})
    given = {each["name"] for each in operator_pod(found)["containers"][0]["env"]}
    assert {name for name in given if not name.startswith("PERDURE_DATABASE_")} <= known
    read = settings.load(environment(found))
    assert (read.log_level, read.resync_seconds, read.namespaces) == ("WARNING", 60, ("perdure-system",))


def test_the_chart_and_the_operator_have_the_same_defaults() -> None:
    rendered = settings.load(environment(cases.render(cases.SMALLEST)))
    own = settings.load({"PERDURE_OPERATOR_NAMESPACES": "x"})
    for name in ("lease_seconds", "resync_seconds", "metrics_port", "probe_port", "log_level"):
        assert getattr(rendered, name) == getattr(own, name), name
    assert rendered.worker_service_account == own.worker_service_account
    assert rendered.worker_database_secret_key == own.worker_database_secret_key
