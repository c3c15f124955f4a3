"""Machines of the endpoint as processes, and the requests of a machine."""

import httpx
import psutil
import pytest
from botocore.exceptions import ClientError

from proteus_spot.infra.simulated_ec2.process_reaper import INSTANCE_MARK
from proteus_spot.infra.simulated_ec2.server import KEY_HEADER
from tests.support.market_servers import KEY, client, request, wait_for

CONTROL = {KEY_HEADER: KEY}
#: Starts a child in its own group, one in the background and one in its own session, and never exits: four processes,
#: and at times a short `sleep`.
FAMILY = """#!/bin/bash
trap '' TERM
sleep 997 &
setsid sleep 998 &
set -m
sleep 999 &
touch up
while :; do sleep 0.1; done
"""


def processes(instance_id):
    """Return the living processes that carry the instance's mark."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(INSTANCE_MARK) == instance_id and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def launch_family(url, work_dir):
    """Launch a machine with a family of processes, and wait until all have started."""
    (fact,) = client(url).launch(request("family", user_data=FAMILY))
    wait_for((work_dir / fact.instance_id / "up").exists, "the user-data")
    wait_for(lambda: len(processes(fact.instance_id)) >= 4, "the family")
    return fact.instance_id


def token(url):
    return httpx.put(f"{url}/latest/api/token", headers={"X-aws-ec2-metadata-token-ttl-seconds": "60"}).text


def code_of(call, **params):
    with pytest.raises(ClientError) as error:
        call(**params)
    return error.value.response["Error"]["Code"]
