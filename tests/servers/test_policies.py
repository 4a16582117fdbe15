"""The policies of `deploy/iam`, on servers that enforce them: each role does its work, and is refused everything else.

Ceph enforces a user's policies as they are written. moto, which runs everywhere, checks the signature of each request,
and its action and resource; how it compares a resource with a pattern is put right here (`matches`).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, LOCK_NB, flock
from functools import partial
from pathlib import Path
from tempfile import gettempdir
from typing import Any
from uuid import uuid4

import boto3
import pytest
from moto import settings as moto_settings
from moto.iam.access_control import IAMPolicyStatement
from moto.iam.models import iam_backends

from accel import connect
from accel.errors import AccessDenied
from loaders.layout import ObjectLayout
from loaders.store import ObjectStore, StoreSettings, open_store
from tests.accel.cli.worlds import run
from tests.servers.fixtures import Endpoint, aws_environment, drop_bucket, moto_endpoint, named_endpoint, new_bucket
from tests.spark_jobs.worlds import NAMESPACE, fill, make_catalog

__all__ = ["aws_environment", "moto_endpoint", "named_endpoint"]

IAM = Path(__file__).parents[2] / "deploy" / "iam"
GUEST = ("ACCEL_TEST_S3_GUEST", "ACCEL_TEST_S3_GUEST_ACCESS_KEY", "ACCEL_TEST_S3_GUEST_SECRET_KEY")
OWNER = "owner"
PREFIX = "some/prefix"
Keys = tuple[str, str]


def matches(pattern: str, value: str) -> bool:
    """As AWS compares: * is any text, ? one letter. moto takes ? for a part of a regular expression."""
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*").replace(r"\?", "."), value) is not None


def moto_users(environment: pytest.MonkeyPatch) -> tuple[Keys, Keys, Callable[[str], object]]:
    """An owner, a guest, and what sets the guest's policy; from now on moto enforces policies."""
    iam = iam_backends["123456789012"]["aws"]
    names = [f"{name}-{uuid4().hex}" for name in (OWNER, "guest")]
    keys = []
    for name in names:
        iam.create_user("us-east-1", name)
        key = iam.create_access_key(name)
        keys.append((key.access_key_id, key.secret_access_key))
    everything = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
    iam.put_user_policy(names[0], "all", json.dumps(everything))
    environment.setattr(IAMPolicyStatement, "_match", staticmethod(matches))
    environment.setattr(moto_settings, "INITIAL_NO_AUTH_ACTION_COUNT", 0)
    return keys[0], keys[1], partial(iam.put_user_policy, names[1], "role")


def named_users(endpoint: Endpoint) -> tuple[Keys, Keys, Callable[[str], object]]:
    """Likewise, of the server that the environment names."""
    if missing := [name for name in GUEST if not os.environ.get(name)]:
        pytest.skip(f"{', '.join(missing)} are not set: no user of the server can be given policies")
    name, *guest = (os.environ[each] for each in GUEST)
    owner = endpoint.access_key, endpoint.secret_key
    options: dict[str, Any] = {"aws_access_key_id": owner[0], "aws_secret_access_key": owner[1]}
    iam = boto3.client("iam", endpoint_url=endpoint.url, region_name="us-east-1", **options)

    def put(policy: str) -> object:
        return iam.put_user_policy(UserName=name, PolicyName="role", PolicyDocument=policy)

    return owner, (guest[0], guest[1]), put


def lock_of(endpoint: Endpoint) -> Path:
    """A file that all processes of tests know."""
    return Path(gettempdir()) / f"accel-test-guest-of-{re.sub(r'[^0-9a-z]+', '-', endpoint.url)}"


@contextmanager
def alone_with(endpoint: Endpoint) -> Iterator[None]:
    """Wait until no other process of tests sets policies there: the server has one guest, with one policy at a time."""
    with lock_of(endpoint).open("w") as file:
        flock(file, LOCK_EX)  # until the file is closed
        yield


class Account:
    """A bucket with a catalog, its owner, and a guest who takes one role after the other."""

    def __init__(
        self,
        endpoint: Endpoint,
        environment: pytest.MonkeyPatch,
        bucket: str,
        users: tuple[Keys, Keys, Callable[[str], object]],
    ) -> None:
        self.endpoint = endpoint
        self.bucket, self.url = bucket, f"s3://{bucket}/{PREFIX}"
        self._environment = environment
        self._owner, self._guest, self._put_policy = users
        self._settings = StoreSettings(endpoint_url=endpoint.url, attempts=2)
        environment.setenv("ACCEL_ENDPOINT_URL", endpoint.url)

    def act_as(self, role: str) -> None:
        """From now on commands, and stores that are opened, have the credentials of a role."""
        if role != OWNER:
            policy = (IAM / f"{role}.json").read_text()
            names = {"BUCKET": self.bucket, "PREFIX": PREFIX, "NAMESPACE": NAMESPACE}
            for word, stands_for in names.items():
                policy = policy.replace(word, stands_for)
            self._put_policy(policy)
        access, secret = self._owner if role == OWNER else self._guest
        self._environment.setenv("AWS_ACCESS_KEY_ID", access)
        self._environment.setenv("AWS_SECRET_ACCESS_KEY", secret)

    def store(self, role: str) -> ObjectStore:
        """The store as a role sees it."""
        self.act_as(role)
        return open_store(self.url, self._settings)

    def run(self, role: str, *words: str) -> int:
        """Run a command as a role; gives its exit code."""
        self.act_as(role)
        return run(*words, "--store", self.url).exit_code


@pytest.fixture(params=["moto", "named"])
def account(request: pytest.FixtureRequest, aws_environment: pytest.MonkeyPatch) -> Iterator[Account]:
    """An empty bucket."""
    endpoint: Endpoint = request.getfixturevalue(f"{request.param}_endpoint")
    bucket = new_bucket(endpoint.client)
    with pytest.MonkeyPatch.context() as enforcing, alone_with(endpoint):
        users = moto_users(enforcing) if request.param == "moto" else named_users(endpoint)
        yield Account(endpoint, aws_environment, bucket, users)
    if endpoint.is_lasting:
        drop_bucket(endpoint.client, bucket)


@pytest.fixture
def catalog(account: Account) -> Account:
    """A catalog of six objects, which its owner made."""
    store = account.store(OWNER)
    make_catalog(store)
    fill(store, 4, [[(1, at, at + 1), (100 + at, 0, 9)] for at in range(6)])
    return account


named = pytest.mark.parametrize("account", ["named"], indirect=True)
"""What takes many requests: moto answers each ten times as slowly, and `tests/test_deploy.py` compares them, too."""


MERGE = ("catalog", "compact", "--rewrite-all", "--target-objects", "1", "--min-age", "0s")
LOOKUP = ("get-objects", "--stream", "1", "--start", "0", "--end", "6")


@named
def test_each_role_does_its_work(catalog: Account) -> None:
    assert catalog.run("reader", *LOOKUP) == 0
    assert catalog.run("reader", "doctor", "--read-only") == 0
    assert catalog.run("compactor", *MERGE) == 0
    assert catalog.run("compactor", "catalog", "build-hints") == 0
    assert catalog.run("collector", "catalog", "gc", "--yes") == 0
    runs = {found.key.rpartition("/")[2] for found in catalog.store("reader").list("accel/tables/job-runs/")}
    assert runs == {"!table", "compact", "build-hints", "gc"}
    with connect(catalog.store("broker")) as connection:
        connection.create_scope("shop")
        connection.create_stream("shop", "orders")
        with connection.writer("shop", "orders") as writer:
            for number in range(10):
                writer.write(b"order %d" % number, key=str(number))
    assert catalog.run("reader", "stream", "list", "--scope", "shop") == 0
    assert catalog.run("reader", "catalog", "verify") == 0
    assert catalog.run("broker", "doctor") == 0


@named
def test_each_role_is_refused_the_work_of_the_others(catalog: Account) -> None:
    before = {found.key: found.etag for found in catalog.store(OWNER).list("")}
    assert 0 not in [catalog.run(role, *MERGE) for role in ("reader", "collector")]
    assert 0 not in [catalog.run(role, "catalog", "build-hints") for role in ("reader", "broker", "collector")]
    assert catalog.run("reader", "scope", "create", "shop") != 0
    after = {found.key: found.etag for found in catalog.store(OWNER).list("")}
    changed = {key for key in before | after if before.get(key) != after.get(key)}
    # A collector takes ids for the merge that it is then refused. Who may write tables records that its run has failed.
    taking_ids = {"accel/tables/node-lists/0000000004", "accel/tables/counters/object-ids"}
    runs = {f"accel/tables/job-runs/{key}" for key in ("!table", "compact", "build-hints")}
    assert changed - taking_ids - runs == set()


OBJECT = ObjectLayout(namespace=NAMESPACE).object_key(7)
FOREIGN = ObjectLayout(namespace="another").object_key(7)
BESIDE = "data/of/others"
HINT, FORMAT, JOURNAL = "accel/hints/packs/node-4/root", "accel/format", "accel/journal/1"
TABLE, TIME = "accel/tables/nodes/4", "accel/time/1/2"
WRITES = {
    "reader": set(),
    "broker": {OBJECT, FORMAT, TABLE, TIME},
    "compactor": {OBJECT, FORMAT, HINT, TABLE},
    "collector": {FORMAT, JOURNAL, TABLE},
}
DELETES = {
    "reader": set(),
    "broker": {TABLE, TIME},
    "compactor": {OBJECT, HINT, TABLE},
    "collector": {OBJECT, JOURNAL, TABLE},
}
KEYS = (OBJECT, FOREIGN, BESIDE, HINT, FORMAT, JOURNAL, TABLE, TIME)


def taken(act: Callable[[str], object]) -> set[str]:
    """The keys with which somebody may do so."""
    found = set()
    for key in KEYS:
        try:
            act(key)
        except AccessDenied:
            continue
        found.add(key)
    return found


def test_a_role_reads_writes_and_deletes_where_its_policy_says(account: Account) -> None:
    for role, writes in WRITES.items():
        owner = account.store(OWNER)
        for key in KEYS:
            owner.put(key, b"bytes")
        store = account.store(role)
        assert taken(store.get) == {*KEYS} - {FOREIGN, BESIDE}
        assert taken(partial(store.put, body=b"other")) == writes
        assert taken(store.delete) == DELETES[role]


def test_two_processes_do_not_give_one_guest_two_policies(account: Account) -> None:
    with lock_of(account.endpoint).open("w") as file, pytest.raises(BlockingIOError):
        flock(file, LOCK_EX | LOCK_NB)


def test_a_part_of_an_upload_needs_the_right_to_write(account: Account) -> None:
    store = account.store("reader")
    with pytest.raises(AccessDenied):
        store.start_multipart(OBJECT)
    upload = account.store("compactor").start_multipart(OBJECT)
    upload.abort()
