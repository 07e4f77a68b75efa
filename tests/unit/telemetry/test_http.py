"""The server of probes and metrics answers from its own threads."""

import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from perdure.telemetry.http import Answer, Handler, HttpServer, exposition, probe
from perdure.telemetry.names import SLOTS, declared
from perdure.telemetry.prometheus import Metrics


@contextmanager
def serving(**routes: Handler) -> Iterator[str]:
    server = HttpServer({f"/{path}": handler for path, handler in routes.items()}, port=0, host="127.0.0.1")
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.close()


def get(url: str, method: str = "GET") -> tuple[int, str]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_a_probe_says_what_is_wrong() -> None:
    problem: list[str | None] = [None]
    with serving(livez=probe(lambda: problem[0])) as url:
        assert get(f"{url}/livez") == (200, "ok\n")
        problem[0] = "the loop has not answered for 12 s"
        assert get(f"{url}/livez?verbose") == (503, "the loop has not answered for 12 s\n")
        assert get(f"{url}/livez", "HEAD") == (503, "")


def test_metrics_are_served() -> None:
    metrics = Metrics(declared())
    metrics.set(SLOTS, 4)
    with serving(metrics=exposition(metrics)) as url:
        status, body = get(f"{url}/metrics")
    assert status == 200
    assert "perdure_worker_slots 4.0" in body


def test_unknown_paths_and_failing_handlers_are_answers_too() -> None:
    def broken() -> Answer:
        raise RuntimeError("boom")

    with serving(broken=broken) as url:
        assert get(f"{url}/nothing")[0] == 404
        assert get(f"{url}/broken")[0] == 500
        assert get(f"{url}/broken")[0] == 500


def test_a_slow_handler_does_not_hold_up_the_others() -> None:
    release = threading.Event()

    def slow() -> Answer:
        release.wait(10)
        return Answer()

    with serving(slow=slow, livez=probe(lambda: None)) as url:
        thread = threading.Thread(target=get, args=(f"{url}/slow",))
        thread.start()
        assert get(f"{url}/livez")[0] == 200
        release.set()
        thread.join()


def test_a_port_in_use_is_an_error() -> None:
    server = HttpServer({}, port=0, host="127.0.0.1")
    try:
        with pytest.raises(OSError, match="in use"):
            HttpServer({}, port=server.port, host="127.0.0.1")
    finally:
        server.close()
