"""A producer with an id is killed while it writes: its next lives go on, and each event is there once."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from uuid import UUID

import pytest

import accel
from loaders.store import S3Store
from tests.processes.children import CHILD_SECONDS
from tests.servers.stores import store_on_s3

PRODUCER = UUID("6c8f9d7e-0000-4000-8000-00000000beef")
KEYS = 3
KILLED_AT = 100

LIFE = """
    import sys
    import accel
    from uuid import UUID
    from loaders.store import StoreSettings, S3Store

    bucket, url, producer, count = sys.argv[1:]
    with accel.connect(S3Store(bucket, StoreSettings(endpoint_url=url)), node_id=4, create=True) as connection:
        connection.stream_store.create_scope("shop")
        connection.create_stream("shop", "orders", segments=2)
        writer = connection.writer("shop", "orders", writer_id=UUID(producer))
        for number in range(writer.resume(), int(count)):
            writer.write(b"%d" % number, b"key-%d" % (number % 3), number=number)
            if number % 50 == 0:
                writer.flush()
                print(number, flush=True)
        writer.flush()
        print("all", flush=True)
"""


@pytest.fixture
def store(request: pytest.FixtureRequest) -> Iterator[S3Store]:
    with store_on_s3(request, "boto3-moto") as store:
        assert isinstance(store, S3Store)
        yield store


def test_a_process_that_is_killed_goes_on_where_it_was(store: S3Store) -> None:
    count = 250
    address = [store.bucket, str(store.settings.endpoint_url)]
    command = [sys.executable, "-c", textwrap.dedent(LIFE), *address, str(PRODUCER), str(count)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - our own
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip() == "all" or int(line) >= KILLED_AT:
                break
        process.kill()
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=CHILD_SECONDS)  # noqa: S603 - our own
    assert done.stdout.splitlines()[-1] == "all"
    with accel.connect(store) as connection, connection.reader("shop", "orders") as reader:
        found = [int(event.payload) for batch in iter(reader.next_batch, None) for event in batch]
    assert {key: [each for each in found if each % KEYS == key] for key in range(KEYS)} == {
        key: list(range(key, count, KEYS)) for key in range(KEYS)
    }
