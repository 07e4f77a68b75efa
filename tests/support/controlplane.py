"""A real API server for the reconcile tier: etcd, kube-apiserver and, where asked for, the controller manager.

A conftest offers it by importing the fixture: `from tests.support.controlplane import control_plane`. It is ready
after about five seconds, shared by the session (use a namespace of your own in each test), and can be taken away and
given back in the middle of a test. Nothing is left behind, even when pytest is killed.
"""

import json
import os
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

import pytest
from localcluster import build
from localcluster.console import Failure, Impossible, wait_until
from localcluster.controlplane import ControlPlane
from localcluster.pki import write_kubeconfig
from localcluster.settings import Settings

from tests.support.tiers import unavailable

FOLDER_PREFIX = "perdure-controlplane-"
# The server takes four seconds on an idle machine; the rest is for one that also runs other tests.
START_SECONDS = 60.0
REQUEST_SECONDS = 30.0


@pytest.fixture(scope="session")
def control_plane() -> Iterator["RunningControlPlane"]:
    """etcd, API server and controller manager for the whole session."""
    try:
        plane = RunningControlPlane(controllers=True)
    except Impossible as reason:
        unavailable("reconcile", str(reason))
    with plane:
        yield plane


class ApiError(Exception):
    """The API server refused: `status` is the HTTP code, `body` its Status object."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"{status}: {body}")
        self.status = status
        self.body = body


class RunningControlPlane:
    """Started by `with`; `url` with `token` and `ca_file`, or `kubeconfig`, are the administrator's."""

    def __init__(self, *, controllers: bool = True) -> None:
        if sys.platform != "linux":
            raise Impossible("the control plane of the tests needs Linux, which ends it with its parent")
        settings = Settings.from_environment()
        self._programs = build.CONTROL_PLANE if controllers else build.CONTROL_PLANE[:2]
        build.build(settings, self._programs)
        self.program = build.tool(settings, "kubectl")
        _sweep_after_killed_sessions()
        self.folder = Path(tempfile.mkdtemp(prefix=f"{FOLDER_PREFIX}{os.getpid()}-"))
        api, etcd, peer, manager = _free_ports(4)
        self._plane = ControlPlane(
            binaries=settings.binaries,
            folder=self.folder,
            address="127.0.0.1",
            services=settings.services,
            api_port=api,
            etcd_port=etcd,
            etcd_peer_port=peer,
            controller_manager_port=manager,
        )
        self.url = self._plane.server
        self.kubeconfig = self._plane.kubeconfig
        self.ca_file = self._plane.keys / "ca.crt"
        self.token = secrets.token_hex(16)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        # A child of ours dies with the thread that started it (see _start), so that thread must live as long as
        # we do; a test may restart the API server from a short-lived one.
        self._starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="controlplane")

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            undo.callback(self.close)
            self._plane.prepare()
            self._token_file.write_text(f'{self.token},admin,admin,"system:masters"\n')
            tls = urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=str(self.ca_file)))
            # A proxy of the environment knows nothing of a server inside this machine.
            self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), tls)
            self._start("etcd", self._plane.etcd())
            self.start_api_server()
            if len(self._programs) == len(build.CONTROL_PLANE):
                self._start("kube-controller-manager", self._plane.controller_manager())
            undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End everything at once (there is nothing to save) and remove the folder."""
        for name in list(self._processes):
            self._kill(name)
        self._starter.shutdown()
        shutil.rmtree(self.folder, ignore_errors=True)

    # -- faults ---------------------------------------------------------------------------------------------------

    def stop_api_server(self) -> None:
        """Kill it: connections break, new ones are refused. What etcd holds stays."""
        self._kill("kube-apiserver")

    def start_api_server(self) -> None:
        """Start it again on the same port; returns when it is ready."""
        arguments = [*self._plane.api_server(), f"--token-auth-file={self._token_file}"]
        self._start("kube-apiserver", arguments)
        wait_until("the API server", self._is_ready, seconds=START_SECONDS, interval=0.05)

    @contextmanager
    def api_server_down(self) -> Iterator[None]:
        self.stop_api_server()
        try:
            yield
        finally:
            self.start_api_server()

    @contextmanager
    def api_server_frozen(self) -> Iterator[None]:
        """It accepts connections and never answers, as behind a broken network."""
        process = self._processes["kube-apiserver"]
        process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)

    # -- calls ----------------------------------------------------------------------------------------------------

    def request(self, method: str, path: str, body: object = None, *, content_type: str = "application/json") -> Any:
        """One call as administrator, its JSON answer decoded; raises ApiError."""
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": content_type},
        )
        try:
            with self._opener.open(request, timeout=REQUEST_SECONDS) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                raise ApiError(error.code, error.read().decode(errors="replace")) from None

    def kubectl(self, *arguments: str | Path, stdin: str | None = None) -> str:
        """kubectl as administrator; raises CalledProcessError, whose `stderr` is what a user would read."""
        done = subprocess.run(
            [self.program, f"--kubeconfig={self.kubeconfig}", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    def new_namespace(self, prefix: str = "test") -> str:
        """A namespace of the test's own: its name."""
        body = {"metadata": {"generateName": f"{prefix}-"}}
        name: str = self.request("POST", "/api/v1/namespaces", body)["metadata"]["name"]
        return name

    def service_account_token(self, namespace: str, name: str) -> str:
        """A token with just the rights of that service account, which is created when missing."""
        accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        try:
            self.request("POST", accounts, {"metadata": {"name": name}})
        except ApiError as error:
            if error.status != 409:
                raise
        answer = self.request("POST", f"{accounts}/{name}/token", {"spec": {"expirationSeconds": 3600}})
        token: str = answer["status"]["token"]
        return token

    def service_account_kubeconfig(self, namespace: str, name: str) -> Path:
        """A kubeconfig that acts as that service account, to try its RBAC."""
        token = self.service_account_token(namespace, name)
        path = self.folder / f"{namespace}.{name}.kubeconfig"
        return write_kubeconfig(path, self.url, self.ca_file, {"token": token})

    # -- processes ------------------------------------------------------------------------------------------------

    @property
    def _token_file(self) -> Path:
        return self.folder / "tokens.csv"

    def _start(self, name: str, arguments: list[str]) -> None:
        # setpriv gives the child PR_SET_PDEATHSIG: when pytest is killed, the kernel ends it.
        argv = ["setpriv", "--pdeathsig=KILL", *arguments]
        with self._log(name).open("ab") as log:
            start = self._starter.submit(
                subprocess.Popen, argv, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
            self._processes[name] = start.result()

    def _kill(self, name: str) -> None:
        if process := self._processes.pop(name, None):
            process.kill()
            process.wait()

    def _is_ready(self) -> bool:
        for name, process in self._processes.items():
            if process.poll() is not None:
                last_words = self._log(name).read_text(errors="replace").splitlines()[-20:]
                raise Failure(f"{name} ended with {process.returncode}:\n" + "\n".join(last_words))
        try:
            request = urllib.request.Request(f"{self.url}/readyz", headers={"Authorization": f"Bearer {self.token}"})
            with self._opener.open(request, timeout=REQUEST_SECONDS):
                return True
        except OSError:  # refused, or an HTTP error while it is starting
            return False

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _sweep_after_killed_sessions() -> None:
    """The processes of a killed session are gone; its folder is found by the process id in the name."""
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*-*"):
        if not Path("/proc", folder.name.removeprefix(FOLDER_PREFIX).split("-")[0]).exists():
            shutil.rmtree(folder, ignore_errors=True)
