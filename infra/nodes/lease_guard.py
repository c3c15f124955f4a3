"""The guard of a machine: it ends the machine when its lease has ended, or when nothing trains on it any more.

User-data installs it before all else as the unit ``proteus-lease.service``, so it runs from every boot on:
`python -m proteus_spot.infra.nodes.lease_guard --job ID --blob URL --region NAME --clock SETTING`. It needs neither the
node's processes nor the controller, the metadata service or the network: while the blob store cannot be read, the last
known lease counts, also after a restart. A machine whose start script has ended trains nothing: the script has failed,
or the machine was rebooted, and user-data is not run again. The guard ends such a machine at once.

Before a lease ends that ticks should have extended, the guard raises an alarm: in the bucket, and by a POST to the
webhook that the lease names.

A lease may say that the machine works for another job from now on: the next of its queue. The guard keeps its id on the
disk, and the node's processes, which look at it, start again for that job.
"""

import argparse
import fcntl
import json
import logging
import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from proteus_spot.infra.clock import Clock, open_clock
from proteus_spot.infra.errors import ProteusError
from proteus_spot.infra.masking import mask_logs
from proteus_spot.infra.processes.surroundings import settle
from proteus_spot.infra.storage.alarms import Alarm, write_alarm
from proteus_spot.infra.storage.blobs import BlobError, BlobMissing, Blobs, blobs_at
from proteus_spot.infra.storage.leases import ENDING_S, FIRST_S, Lease, read_lease, utc

logger = logging.getLogger("proteus_spot.infra.nodes.lease_guard")

#: Market seconds between two looks at the lease, and the least real seconds.
_LOOK_S = 15.0
_LOOK_REAL_S = 0.25
#: Maximum real seconds that the end of a machine waits for its alarm; that the bucket, and a webhook, are tried.
_ALARM_REAL_S = 30.0
_STORE_REAL_S = 20.0
_WEBHOOK_REAL_S = 5.0
#: Real seconds after which a machine that still runs is shut down again.
_AGAIN_REAL_S = 30.0
_SHUT_DOWN = ("shutdown", "-h", "now")


@dataclass(frozen=True, slots=True)
class MachineFiles:
    """What the start script and the guard leave in one directory of the machine.

    The script holds a lock on `script_lock` while it, or a process that it started, lives. It creates `script_done`
    when it ends the machine itself.
    """

    directory: Path

    @classmethod
    def ours(cls) -> "MachineFiles":
        """Return the files of this machine; a simulated one names its directory of units."""
        return cls(Path(os.environ.get("PROTEUS_UNIT_DIR") or "/var/lib/proteus"))

    @property
    def script_lock(self) -> Path:
        """File that the start script locks."""
        return self.directory / "proteus-script.lock"

    @property
    def script_done(self) -> Path:
        """File that says that the start script has ended regularly."""
        return self.directory / "proteus-script.done"

    @property
    def instance(self) -> Path:
        """File with the instance id."""
        return self.directory / "proteus-instance"

    @property
    def job(self) -> Path:
        """File with the job that the machine works for, if it is not the one that it was bought for."""
        return self.directory / "proteus-job"

    @property
    def lease(self) -> Path:
        """File with the last known lease."""
        return self.directory / "proteus-lease.json"

    def instance_id(self) -> str | None:
        """Return the instance id; None before the start script has found it."""
        try:
            return self.instance.read_text().strip() or None
        except OSError:
            return None

    def job_id(self) -> str | None:
        """Return the job that the machine works for; None if it is the one that it was bought for."""
        try:
            return self.job.read_text().strip() or None
        except OSError:
            return None

    def keep_job(self, job_id: str) -> None:
        """Write the job that the machine works for from now on."""
        new = self.job.with_suffix(".new")
        new.write_text(f"{job_id}\n")
        new.replace(self.job)

    def known_lease(self) -> Lease | None:
        """Return the last known lease; None on a machine without a guard."""
        try:
            return Lease.from_json(json.loads(self.lease.read_text()))
        except (OSError, ValueError):
            return None

    def keep_lease(self, lease: Lease) -> None:
        """Write the last known lease; other users must not read it, for a webhook may be a secret."""
        new = self.lease.with_suffix(".new")
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(lease.to_json(), file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.lease)

    def script_runs(self) -> bool:
        """Return whether the start script, or a process that it started, lives."""
        try:
            with self.script_lock.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False


class LeaseGuard:
    """Decides when this machine ends, and ends it.

    Parameters
    ----------
    job_id : the job that the machine was bought for.
    clock : market time.
    files : what the machine keeps of its lease and its start script.
    read : returns the lease of an instance from the blob store; may raise, and may hang.
    warn : stores an alarm of a job, and posts it to a webhook if there is one; may raise, and may hang.
    shut_down : ends the machine.
    """

    def __init__(
        self,
        job_id: str,
        clock: Clock,
        files: MachineFiles,
        read: Callable[[str], Lease],
        warn: Callable[[str, Alarm, str | None], None],
        shut_down: Callable[[], None],
    ) -> None:
        self._job_id = job_id
        self._clock = clock
        self._files = files
        self._read = read
        self._warn = warn
        self._shut_down = shut_down
        self._changed = threading.Event()
        self._lease = files.known_lease() or self._first_lease()
        #: End of the lease that the alarm was raised for.
        self._warned_of_s: float | None = None

    def run(self) -> None:
        """Guard until the machine ends."""
        threading.Thread(target=self._follow, name="follow-lease", daemon=True).start()
        while (why := self._why_end()) is None:
            lease, now_s = self._lease, self._clock.now_s()
            ends_soon_s = lease.until_s - ENDING_S
            is_expected = lease.is_last or lease.is_cut
            if now_s >= ends_soon_s and not is_expected and self._warned_of_s != lease.until_s:
                self._warned_of_s = lease.until_s
                self._raise_alarm(f"no tick extends the lease of this machine: it ends at {utc(lease.until_s)}")
            next_s = lease.until_s if now_s >= ends_soon_s else ends_soon_s
            self._clock.wait_until(min(next_s, now_s + self._look_real_s() * self._clock.scale), self._changed)
            self._changed.clear()
        if why:
            self._raise_alarm(why).join(_ALARM_REAL_S)
        self._shut_down()

    def _first_lease(self) -> Lease:
        lease = Lease(self._clock.now_s() + FIRST_S, reason="the first lease, from the launch on")
        self._keep(lease)
        return lease

    def _why_end(self) -> str | None:
        """Return why the machine has to end now, empty if that is no cause for an alarm; None while it may live."""
        lease = self._lease
        if not self._files.script_runs():
            is_regular = self._files.script_done.exists()
            return "" if is_regular else "the start script has ended (it failed, or the machine was rebooted)"
        if self._clock.now_s() < lease.until_s:
            return None
        logger.info("the lease has ended: %s", lease.reason)
        return "" if lease.is_last else f"the lease of this machine has ended: {lease.reason}"

    def _look_real_s(self) -> float:
        return max(_LOOK_S / self._clock.scale, _LOOK_REAL_S)

    def _follow(self) -> None:
        """Read the lease again and again, apart from the loop that ends the machine, for a store may hang."""
        pause, can_read = threading.Event(), True
        while True:
            instance_id = self._files.instance_id()
            if instance_id is not None:
                try:
                    self._take(self._read(instance_id))
                    can_read = True
                except BlobMissing:
                    can_read = True  # no tick has extended the first lease
                except Exception as error:  # noqa: BLE001 - whatever a store raises, the last known lease counts
                    if can_read:
                        logger.warning("the last known lease counts, until %s: %s", utc(self._lease.until_s), error)
                    can_read = False
            pause.wait(self._look_real_s())

    def _take(self, lease: Lease) -> None:
        if lease != self._lease:
            self._lease = lease
            self._keep(lease)
            self._changed.set()

    def _keep(self, lease: Lease) -> None:
        try:
            self._files.keep_lease(lease)
            if lease.job and lease.job != self._files.job_id():
                logger.info("this machine works for job %s from now on", lease.job)
                self._files.keep_job(lease.job)
        except OSError as error:  # a full disk: the lease in memory counts until the next restart
            logger.error("the lease is not kept on the disk: %s", error)

    def _raise_alarm(self, reason: str) -> threading.Thread:
        """Store and post an alarm in the background, for that may hang."""
        logger.error("%s", reason)
        instance_id, webhook = self._files.instance_id(), self._lease.webhook
        job_id = self._lease.job or self._job_id
        alarm = Alarm(instance_id or "", self._clock.now_s(), reason)

        def warn() -> None:
            if instance_id is None:
                return  # without an id the alarm names no machine; the console has it
            try:
                self._warn(job_id, alarm, webhook)
            except Exception as error:  # noqa: BLE001 - an alarm that cannot be stored must not keep the machine on
                logger.error("the alarm was not stored: %s", error)

        thread = threading.Thread(target=warn, name="alarm", daemon=True)
        thread.start()
        return thread


def send_alarm(blobs: Blobs, job_id: str, alarm: Alarm, webhook: str | None) -> None:
    """Store an alarm in the bucket, and post it to a webhook, if there is one.

    After a reboot the network may come up later than the guard: the bucket is tried for some seconds. The webhook's URL
    may be a secret: it is in no message.

    Raises
    ------
    BlobError
        If the alarm is not stored; it was posted nevertheless.
    """
    attempts = Retrying(
        stop=stop_after_delay(_STORE_REAL_S),
        wait=wait_fixed(1.0),
        retry=retry_if_exception_type(BlobError),
        reraise=True,
    )
    try:
        attempts(write_alarm, blobs, job_id, alarm)
    finally:
        if webhook is not None:
            _post(webhook, job_id, alarm)


def _post(webhook: str, job_id: str, alarm: Alarm) -> None:
    text = f"proteus: job {job_id}, machine {alarm.instance_id}: {alarm.reason}"
    body = json.dumps({"text": text, "job": job_id, "instance": alarm.instance_id, "reason": alarm.reason})
    try:
        request = urllib.request.Request(webhook, body.encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=_WEBHOOK_REAL_S):
            pass
    except (OSError, ValueError) as error:
        logger.error("the webhook did not take the alarm (%s)", type(error).__name__)


def shut_down() -> None:
    """Shut this machine down; does not return."""
    while True:
        try:
            subprocess.run(_SHUT_DOWN, check=True, timeout=_AGAIN_REAL_S)
        except (OSError, subprocess.SubprocessError) as error:
            logger.error("%s: %s", " ".join(_SHUT_DOWN), error)
        threading.Event().wait(_AGAIN_REAL_S)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options; a bad one ends the process with exit code 2 and one line."""
    parser = argparse.ArgumentParser(
        prog="python -m proteus_spot.infra.nodes.lease_guard", description="The guard of a machine."
    )
    parser.add_argument("--job", required=True, help="job id")
    parser.add_argument("--blob", required=True, help="fsspec URL of the blob store")
    parser.add_argument("--region", required=True, help="region of the blob store")
    parser.add_argument("--clock", required=True, help="`system`, or a scaled clock's file")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Guard this machine to its end."""
    options = parse(arguments)
    settle()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    mask_logs()
    try:
        blobs = blobs_at(options.blob, options.region)
        guard = LeaseGuard(
            options.job,
            open_clock(options.clock),
            MachineFiles.ours(),
            lambda instance_id: read_lease(blobs, options.job, instance_id),
            lambda job_id, alarm, webhook: send_alarm(blobs, job_id, alarm, webhook),
            shut_down,
        )
        guard.run()
    except ProteusError as error:
        logger.error("%s", error)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
