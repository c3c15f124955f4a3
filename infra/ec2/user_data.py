"""The start script of a machine (user-data), the same on EC2 and in a local run.

Before all else it installs the guard of the machine (`infra.nodes.lease_guard`) as a systemd unit, so that the machine
ends whatever happens to this script. Then it gets the machine's name from the metadata service, restarts the node's
processes until they end regularly, and shuts the machine down when they have ended. Everybody on the machine and many
in the account can read user-data and the unit, so they may hold no secret.
"""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from proteus_spot.bidding.market.model import Tier
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.storage.job_paths import JobPaths
from proteus_spot.infra.storage.trial_paths import TrialPaths

#: EC2's limit on user-data, in bytes.
MAX_BYTES = 16 * 1024
#: Names of variables that may hold a secret.
_SECRET_NAME = re.compile(r"KEY|SECRET|TOKEN|PASSW|CREDENTIAL|AUTH|^AWS_|^PREFECT_|DATABASE_URL|PREFECT_API")
_SECRET_VALUE = re.compile(r"://[^/\s]*:[^/\s]*@")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: Words that need no quotes in a unit.
_PLAIN = re.compile(r"[A-Za-z0-9_./:@%+,=-]+")


@dataclass(frozen=True, slots=True)
class NodeBoot:
    """What a machine needs to know to become a node of a job, or the machine of a trial.

    Parameters
    ----------
    job_id : the job, or the sweep of the trial.
    threads : number of tasks that run at a time.
    controller : whether the job's controller runs on this machine too; its end ends the machine.
    python : path of the interpreter on the machine.
    poll_s : real seconds between two polls for a notice; None: the node's default.
    environment : settings for the node's processes (such as ``PROTEUS_CLOCK``); never secrets.
    clock : clock by which the machine's lease runs: `system`, or a scaled clock's file.
    region : region of the blob store.
    grace_s : real seconds from SIGTERM to SIGKILL of a process.
    trial : number of the trial that the machine runs, from 0, and its deployment (order id); None: a node of a job.
    """

    job_id: str
    blob_url: str
    tier: Tier
    threads: int = 1
    controller: bool = False
    python: str = "python3"
    poll_s: float | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    clock: str = "system"
    region: str = "us-east-1"
    grace_s: int = 20
    trial: tuple[int, str] | None = None


def user_data(node: NodeBoot) -> str:
    """Return the bash script that turns a machine into `node`.

    Raises
    ------
    InputError
        If a variable may hold a secret or has an invalid name, or the script exceeds EC2's limit.
    """
    JobPaths(node.job_id)
    if node.controller and node.tier is not Tier.RELIABLE:
        raise InputError(f"node of {node.job_id}: the controller runs on the reliable tier, not on {node.tier}")
    if node.threads < 1 or node.grace_s < 0:
        raise InputError(f"node of {node.job_id}: threads and times must be positive")
    for name, value in {**node.environment, "PROTEUS_BLOB_URL": node.blob_url}.items():
        if not _NAME.fullmatch(name):
            raise InputError(f"node of {node.job_id}: {name!r} is not a valid name of a variable")
        if _SECRET_NAME.search(name) or _SECRET_VALUE.search(value):
            raise InputError(
                f"node of {node.job_id}: {name} may be a secret, and user-data can be read by others; "
                "give the machine an instance profile instead"
            )
    if node.trial is not None and node.controller:
        raise InputError(f"node of {node.job_id}: the machine of a trial has no controller")
    arguments = [
        *("--job", node.job_id, "--blob", node.blob_url, *_role(node), "--threads", str(node.threads)),
        *(() if node.poll_s is None else ("--poll-s", f"{node.poll_s:g}")),
    ]
    processes = ["supervise node --controller &\npids+=($!)"] if node.controller else []
    values = {
        "@EXPORTS@": "\n".join(f"export {name}={shlex.quote(value)}" for name, value in node.environment.items()),
        "@PYTHON@": shlex.quote(node.python),
        "@ARGUMENTS@": shlex.join(arguments),
        "@MODULE@": "proteus_spot.infra.nodes.main" if node.trial is None else "proteus_spot.infra.nodes.trial_main",
        "@GRACE_S@": str(node.grace_s),
        "@UNIT@": lease_unit(node),
        "@PROCESSES@": "\n".join([*processes, "supervise node &\npids+=($!)"]),
    }
    script = re.sub(r"@[A-Z_]+@", lambda mark: values[mark[0]], _SCRIPT)
    if len(script.encode()) > MAX_BYTES:
        raise InputError(f"node of {node.job_id}: user-data of {len(script.encode())} bytes; EC2 takes {MAX_BYTES}")
    return script


def _role(node: NodeBoot) -> tuple[str, ...]:
    if node.trial is None:
        return "--tier", str(node.tier)
    number, deployment = node.trial
    TrialPaths(node.job_id, number).report(deployment)  # refuses what cannot be a trial's
    no_notices = () if node.tier is Tier.TRANSIENT else ("--no-notices",)
    return "--trial", str(number), "--deployment", deployment, *no_notices


def lease_unit(node: NodeBoot) -> str:
    """Return the systemd unit of the machine's guard.

    A guard that cannot even start, because the image is broken, ends the machine by systemd's own means.

    Raises
    ------
    InputError
        If a value has a line break, which a unit cannot hold.
    """
    command = [
        node.python,
        "-P",
        "-m",
        "proteus_spot.infra.nodes.lease_guard",
        "--job",
        node.job_id,
        "--blob",
        node.blob_url,
    ]
    command += ["--region", node.region, "--clock", node.clock]
    return _UNIT.replace("@COMMAND@", " ".join(_unit_word(word, node.job_id) for word in command))


def _unit_word(word: str, job_id: str) -> str:
    """Return a word of a command as systemd reads it: without variables and specifiers."""
    if not word.isprintable():
        raise InputError(f"node of {job_id}: {word!r} has a line break or another character that a unit cannot hold")
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return escaped if _PLAIN.fullmatch(escaped) else f'"{escaped}"'


_UNIT = """[Unit]
Description=End this machine when its Proteus lease has ended
StartLimitIntervalSec=900
StartLimitBurst=20
StartLimitAction=poweroff

[Service]
ExecStart=@COMMAND@
Restart=always
RestartSec=10
OOMScoreAdjust=-900

[Install]
WantedBy=multi-user.target"""


_SCRIPT = r"""#!/bin/bash
set -u
@EXPORTS@
PYTHON=@PYTHON@
ARGUMENTS=(@ARGUMENTS@)
IMDS=${AWS_EC2_METADATA_SERVICE_ENDPOINT:-http://169.254.169.254}

# A simulated machine names its directory of units, and has its own `shutdown` and `systemctl`.
UNITS=${PROTEUS_UNIT_DIR:-/etc/systemd/system}
FILES=${PROTEUS_UNIT_DIR:-/var/lib/proteus}

say() { echo "proteus: $*" >&2; }

is_machine() { [[ -n ${PROTEUS_UNIT_DIR:-} || $IMDS == http://169.254.169.254 ]]; }

# Installs the guard, which ends the machine whatever happens to this script. Its lock says that this script lives.
guard() {
  mkdir -p "$UNITS" "$FILES" && rm -f "$FILES/proteus-script.done" && exec 9>"$FILES/proteus-script.lock" &&
    flock 9 && cat >"$UNITS/proteus-lease.service" <<'UNIT' && systemctl daemon-reload 9>&- &&
@UNIT@
UNIT
    systemctl enable --now proteus-lease.service 9>&-
}

# A machine of the cloud is paid for until it is switched off.
end_machine() {
  is_machine || exit "$1"
  touch "$FILES/proteus-script.done"
  shutdown -h now
  exit "$1"
}

if is_machine && ! guard; then
  say "the guard of this machine cannot be installed"
  end_machine 1
fi

# One request to the metadata service (METHOD PATH HEADER), by bash alone: starting an interpreter would take longer.
metadata() {
  local rest=${IMDS#http://} host port=80 path='' status='' line wire
  rest=${rest%/}
  host=${rest%%/*}
  [[ $rest == */* ]] && path=/${rest#*/}
  [[ $host == *:* ]] && port=${host##*:} && host=${host%:*}
  exec {wire}<>"/dev/tcp/$host/$port" || return 1
  printf '%s %s HTTP/1.0\r\nHost: %s\r\n%s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n' \
    "$1" "$path$2" "$host" "$3" >&"$wire"
  read -r -t 5 _ status _ <&"$wire"
  while read -r -t 5 line <&"$wire" && [[ -n ${line%$'\r'} ]]; do :; done
  read -r -t 5 -d '' line <&"$wire"
  exec {wire}>&-
  [[ $status == 200 && -n $line ]] && printf '%s' "$line"
}

instance_id() {
  local token
  token=$(metadata PUT /latest/api/token 'X-aws-ec2-metadata-token-ttl-seconds: 60') || return 1
  metadata GET /latest/meta-data/instance-id "X-aws-ec2-metadata-token: $token"
}

# The guard leaves the job that the machine works for, if it is not the one that it was bought for.
node() {
  local job=()
  [[ -s $FILES/proteus-job ]] && job=(--job "$(<"$FILES/proteus-job")")
  exec "$PYTHON" -P -m @MODULE@ "${ARGUMENTS[@]}" --name "$NAME" "${job[@]}" "$@"
}

# Runs a command again, ever more slowly, until it ends with 0 or TERM comes.
supervise() {
  local child='' stopping='' delay=1 began code tenths
  trap 'stopping=1; [[ -n $child ]] && kill -TERM "$child" 2>/dev/null' TERM
  while [[ -z $stopping ]]; do
    began=$SECONDS
    "$@" &
    child=$!
    [[ -n $stopping ]] && kill -TERM "$child" 2>/dev/null
    wait "$child"
    code=$?
    if [[ -n $stopping ]]; then
      for ((tenths = @GRACE_S@ * 10; tenths > 0; tenths--)); do
        kill -0 "$child" 2>/dev/null || break
        sleep 0.1
      done
      kill -KILL "$child" 2>/dev/null
      wait "$child" 2>/dev/null
      return 0
    fi
    child=''
    ((code == 0)) && return 0
    ((SECONDS - began > 60)) && delay=1
    say "$* ended with $code; again in $delay s"
    sleep "$delay" &
    child=$!
    wait "$child"
    child=''
    delay=$((delay < 16 ? delay * 2 : 30))
  done
}

wait_for() {
  while kill -0 "$1" 2>/dev/null; do wait "$1"; done
}

NAME=''
for ((tries = 30; tries > 0; tries--)); do
  NAME=$(instance_id) && break
  sleep 1
done
[[ -n $NAME ]] || { say "no metadata service at $IMDS"; exit 1; }
is_machine && echo "$NAME" >"$FILES/proteus-instance"

pids=()
stopping=''
stop() { ((${#pids[@]})) && kill -TERM "${pids[@]}" 2>/dev/null; }
trap 'stopping=1; stop' TERM INT
@PROCESSES@
[[ -n $stopping ]] && stop
# The first process ends the rest: the controller where there is one.
wait_for "${pids[0]}"
stop
for pid in "${pids[@]}"; do wait_for "$pid"; done
end_machine 0
"""
