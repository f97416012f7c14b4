"""Requests drawn from the OpenAPI file: none ends in an error of the server, each refusal is one sentence."""

import os
from collections import Counter
from contextlib import suppress

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable

pytest.importorskip("schemathesis", reason="schemathesis is not installed")

import schemathesis
from schemathesis import GenerationMode
from standin import make_review

from onepos import SinglePositiveClassifier
from onepos.server.app import create_app
from onepos.server.guard import Limits
from onepos.server.trial import Trial

# Per route, half of them wrong on purpose; ONEPOS_FUZZ=300 makes more than 2000 requests in all.
EXAMPLES = int(os.environ.get("ONEPOS_FUZZ", "36"))


def test_no_request_ends_in_an_error_of_the_server(tmp_path):
    review = make_review(tmp_path / "reviews.db")
    X = pd.DataFrame({"width": np.arange(60.0), "height": np.ones(60), "text": ["some text", "other words"] * 30})
    model = SinglePositiveClassifier("an", epochs=1, random_state=0).fit(X, ["cat", "dog"] * 30)
    app = create_app(
        review, Trial(model, X), names=("testserver",), limits=Limits(requests=1e6, burst=10**6, costly=1e6)
    )
    schema = schemathesis.openapi.from_asgi("/api/openapi.json", app)
    statuses = Counter()
    for result in schema.get_all_operations():
        operation = result.ok()
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            _send(operation.as_strategy(generation_mode=mode), statuses)
    review.close()
    print(f"{sum(statuses.values())} requests: {dict(sorted(statuses.items()))}")
    assert sum(statuses.values()) >= 5 * EXAMPLES
    assert len(statuses) > 3


def _send(strategy, statuses):
    """Requests of one route."""

    @settings(
        max_examples=EXAMPLES // 2,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def send(case):
        response = case.call()
        statuses[response.status_code] += 1
        assert response.status_code < 500, (case.as_curl_command(), response.text)
        if response.status_code >= 400:
            found = response.json()
            assert set(found) == {"detail"}
            assert len(found["detail"]) < 500
            assert "\n" not in found["detail"]

    with suppress(Unsatisfiable):  # a route without parameters can not be called wrongly
        send()
