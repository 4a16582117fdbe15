"""The configuration of the smallest cluster that serves S3: one monitor, one OSD in memory, one gateway.

Each setting that is not plain from its name stands with its reason; what is not here is Ceph's default.
"""

from __future__ import annotations

import socket
from pathlib import Path

HOST = "127.0.0.1"
CONFIGURATION_NAME = "ceph.conf"
STORE_SIZE_BYTES = 4 << 30  # a bound: memory is taken as objects come

_TEMPLATE = """\
[global]
fsid = {fsid}
mon host = [v2:{host}:{monitor_port}/0]
public network = {host}/32
cluster network = {host}/32
ms bind msgr1 = false
# Who finds its port taken says so at once.
ms bind retry count = 1

# Daemons trust each other: they listen on loopback, for a test. S3 requests are signed all the same.
auth cluster required = none
auth service required = none
auth client required = none
# The gateway alone insists on encryption to the monitor, which daemons without keys do not have: without this line it
# waits for ever.
ms mon client mode = crc

keyring = {directory}/keyring
run dir = {directory}
mon data = {directory}/mon
osd data = {directory}/osd
rgw data = {directory}/rgw
log file = {directory}/$name.log
mon cluster log to file = false
pid file =
# A socket's path may have 107 bytes, and the temporary directory of some machines has more.
admin socket =

# The monitor collects changes for a second by default, and a new gateway creates seven pools one after the other.
paxos propose interval = 0.05
paxos min wait = 0.01
# Its disk is the machine's: a nearly full one is no reason not to test.
mon data avail warn = 2
mon data avail crit = 1
mon allow pool size one = true
mon warn on pool no redundancy = false
mon max pg per osd = 1000

osd objectstore = memstore
memstore device bytes = {store_size_bytes}
osd crush chooseleaf type = 0
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd pool default pgp num = 1
osd pool default pg autoscale mode = off

# Without tcp_nodelay the head and the body of a small answer wait 40 ms for each other.
rgw frontends = beast endpoint={host}:{gateway_port} tcp_nodelay=1
rgw thread pool size = 64
rgw num rados handles = 1
# The rest of a large object that was deleted gives its memory back after a minute instead of two hours.
rgw gc obj min wait = 60
rgw gc processor period = 60
rgw override bucket index max shards = 1
rgw dynamic resharding = false
rgw enable lc threads = false
rgw enable quota threads = false
rgw enable usage log = false
rgw run sync thread = false
"""


def free_ports() -> tuple[int, int]:
    """Ports of the loopback interface for a monitor and a gateway; the OSD finds free ones by itself."""
    with socket.create_server((HOST, 0)) as first, socket.create_server((HOST, 0)) as second:  # so that they differ
        return first.getsockname()[1], second.getsockname()[1]


def configuration(directory: Path, fsid: str, monitor_port: int, gateway_port: int) -> str:
    """The text of `ceph.conf` for a cluster that keeps everything below `directory`."""
    return _TEMPLATE.format(
        directory=directory,
        fsid=fsid,
        host=HOST,
        monitor_port=monitor_port,
        gateway_port=gateway_port,
        store_size_bytes=STORE_SIZE_BYTES,
    )
