"""The three ways to Postgres: what the operator is told, what worker pods read, what is mounted."""

from typing import Any

import yaml

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
