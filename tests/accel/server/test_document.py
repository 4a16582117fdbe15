"""Schemathesis asks what the OpenAPI document offers, right and wrong, and compares each answer with the document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import ignored_auth, positive_data_acceptance
from schemathesis.specs.openapi.schemas import OpenApiSchema

import accel
from accel.server.app import OPERATIONS
from tests.accel.server.asking import AUTHORISED, filled
from tests.accel.server.test_served import Served, served

MODES = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
EXCLUDED = [positive_data_acceptance, ignored_auth]
"""An end before a start is wrong, which no schema can say; tokens have tests of their own."""

EXAMPLES = 3
"""Of each operation."""


@pytest.fixture(scope="module")
def one() -> Iterator[Served]:
    store = filled(2)
    with accel.connect(store) as connection:
        connection.create_scope("shop")
        connection.create_stream("shop", "orders")
    with served(store) as sidecar:
        yield sidecar


def test_every_answer_is_one_that_the_document_has(one: Served) -> None:
    base = f"http://127.0.0.1:{one.port}"
    schema: OpenApiSchema = schemathesis.openapi.from_url(f"{base}/openapi.json")
    operations = [each.ok() for each in schema.get_all_operations() if isinstance(each, Ok)]
    for operation in operations:

        @settings(max_examples=EXAMPLES, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
        @given(operation.as_strategy(generation_mode=MODES[0]) | operation.as_strategy(generation_mode=MODES[1]))
        def ask(case: schemathesis.Case[Any]) -> None:
            case.call_and_validate(base_url=base, headers=AUTHORISED, excluded_checks=EXCLUDED)

        ask()
    assert {f"{each.method.upper()} {each.path}" for each in operations} == {
        f"{each.method} {each.path}" for each in OPERATIONS
    }
