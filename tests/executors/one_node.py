"""Slurm on one machine: munged, slurmctld and slurmd on loopback, without systemd or accounting.

`python tests/executors/one_node.py COMMAND…` runs the command in such a cluster and ends it after.
"""

import getpass
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

DAEMONS = ("munged", "slurmctld", "slurmd")
NODE = "one"
_SBIN = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))

# A container has no cgroups of its own and no GPU: processes are found by their parents, and the
# two GPUs are empty files. `cred_expire` is also what a requeued job waits, and 5 s is the least.
_CONFIG = """
ClusterName=depthbench
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={controller}
SlurmdPort={daemon}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SchedulerType=sched/builtin
SchedulerParameters=batch_sched_delay=0,sched_interval=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
KillWait=2
ReturnToService=2
SlurmdParameters=config_overrides
GresTypes=gpu
NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 CPUs=4 RealMemory=4000 Gres=gpu:2
PartitionName=main Nodes={node} Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=60
PartitionName=urgent Nodes={node} MaxTime=INFINITE State=UP PriorityTier=9 PreemptMode=OFF
"""


def missing() -> list[str]:
    """Daemons that are not installed."""
    return [name for name in DAEMONS if shutil.which(name, path=_SBIN) is None]


@contextmanager
def one_node_slurm(folder: Path) -> Iterator[dict[str, str]]:
    """A cluster of one node with four CPUs while the context lasts; yields its environment.

    Everything it writes lies in `folder`. Partitions: `main`, and `urgent`, whose jobs preempt
    those of `main`. The daemons die with this process.
    """
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    config = folder / "slurm.conf"
    controller, daemon = _free_ports(2)
    text = _CONFIG.format(
        host=socket.gethostname().partition(".")[0],
        user=getpass.getuser(),
        folder=folder,
        node=NODE,
        controller=controller,
        daemon=daemon,
    )
    config.write_text(text)
    for number in range(2):
        (folder / f"gpu{number}").touch()
    (folder / "gres.conf").write_text(f"Name=gpu File={folder}/gpu[0-1]\n")
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    key = folder / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(128))
    environment = {"SLURM_CONF": str(config)}
    with ExitStack() as stack:
        files = [f"--{name}-file={folder}/munge.{name}" for name in ("key", "pid", "log", "seed")]
        munged = ["munged", "--foreground", "--force", f"--socket={folder}/munge.socket", *files]
        stack.enter_context(_daemon(folder, munged))
        _wait_until((folder / "munge.socket").exists, folder)
        stack.enter_context(_daemon(folder, ["slurmctld", "-D", "-f", str(config)]))
        stack.enter_context(_daemon(folder, ["slurmd", "-D", "-N", NODE, "-f", str(config)]))
        _wait_until(lambda: _ask(environment, "sinfo", "--format=%T")[:1] == ["idle"], folder)
        try:
            yield environment
        finally:
            # What runs would outlive the daemons.
            _ask(environment, "scancel", f"--user={getpass.getuser()}")
            _wait_until(lambda: not _ask(environment, "squeue"), folder)


@contextmanager
def _daemon(folder: Path, command: Sequence[str]) -> Iterator[None]:
    name = command[0]
    with open(folder / f"{name}.out", "wb") as log:
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "TERM", *command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=os.environ | {"PATH": _SBIN, "SLURM_CONF": str(folder / "slurm.conf")},
        )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _ask(environment: dict[str, str], program: str, *arguments: str) -> list[str]:
    """The lines that it answers."""
    header = ["--noheader"] if program != "scancel" else []
    asked = subprocess.run(
        [program, *header, *arguments],
        capture_output=True,
        text=True,
        env=os.environ | environment,
    )
    return asked.stdout.splitlines()


def _wait_until(true: Callable[[], bool], folder: Path, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            logs = [f"{path}:\n{path.read_text()[-2000:]}" for path in sorted(folder.glob("*.out"))]
            raise TimeoutError("Slurm did not start or end\n" + "\n".join(logs))
        time.sleep(0.2)


def _free_ports(num: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(num)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def main(command: Sequence[str]) -> int:
    if absent := missing():
        print(f"{', '.join(absent)} missing: apt-get install slurm-wlm munge")
        return 1
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    with tempfile.TemporaryDirectory() as folder, one_node_slurm(Path(folder)) as environment:
        return subprocess.run(list(command), env=os.environ | environment).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
