import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="fastapi is not installed")

from onepos.server.app import create_app

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))


@pytest.fixture
def review(tmp_path):
    from standin import make_review

    review = make_review(tmp_path / "reviews.db")
    yield review
    review.close()


@pytest.fixture
def client(review):
    """An HTTP client inside this process; its requests come from the page itself."""
    from starlette.testclient import TestClient

    with TestClient(create_app(review), base_url="http://127.0.0.1:8765", raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def serve(tmp_path):
    """Starts a server in a process of its own: serve(port=0) → (process, address)."""
    started = []

    def serve(port=0, n=60, seconds=0.0, path=tmp_path / "served.db"):
        command = [sys.executable, str(HERE / "standin.py"), str(path), str(port), str(n), str(seconds)]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
        )
        started.append(process)
        address = process.stdout.readline().strip()
        assert address, "the server did not start"
        return process, address

    yield serve
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()
