"""Cells as jobs of a Slurm cluster, submitted through submitit as job arrays."""

import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

from depthbench.errors import EXIT_FAILED, InputError
from depthbench.executors import Ended, Task
from depthbench.executors.slurm_job import Job, SlurmOptions, Start, needs
from depthbench.executors.slurm_queue import STARTED, Queue, outside_of_jobs, require
from depthbench.folder import CellFolder

__all__ = ["SlurmExecutor", "SlurmOptions"]

_LARGEST_ARRAY = 1000  # Slurm's MaxArraySize is 1001 by default
_KILL_SECONDS = 120.0  # from scancel to the end of a job; KillWait is 30 by default

# After the cell: a job that was interrupted goes back into the queue, whether or not a depthbench
# is there to see it. 143 is SIGTERM before the cell could listen. The bare number of an array would
# mean all of its jobs.
_REQUEUE = """code=$?
job=${{SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}}${{SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}}
if [ $code = 75 ] || [ $code = 143 ]; then
    [ "${{SLURM_RESTART_COUNT:-0}}" -lt {times} ] && scontrol requeue "$job"
fi
exit $code"""


class SlurmExecutor:
    """Each cell is a job of one process, and cells with equal needs are one job array.

    submitit pickles what a job starts. These files lie in the user's own cache, never among
    results, and hold nothing but the cell command. `every`: seconds between two questions to Slurm.
    `late`: seconds after which a result that another node wrote is surely visible here, and a job
    that no node can take is taken back.

    Raises `InputError` where there is no Slurm, or if it refuses jobs with these options.
    """

    def __init__(
        self,
        options: SlurmOptions,
        plugins: Sequence[Path] = (),
        *,
        command: Sequence[str] = (sys.executable, "-P", "-m", "depthbench", "cell"),
        every: float = 5.0,
        late: float = 60.0,
    ) -> None:
        try:
            import submitit  # noqa: F401
        except ImportError as error:
            raise InputError(
                f"the slurm executor needs submitit ({error}): pip install 'depthbench[slurm]'"
            ) from None
        from depthbench.data import default_cache

        require(options.parameters())
        self.name = f"depthbench-{uuid4().hex[:8]}"
        self._options = options
        self._command = tuple(command)
        self._plugins = [part for path in plugins for part in ("--plugin", str(path.resolve()))]
        self._every = every
        self._late = late
        self._folder = default_cache() / "slurm" / self.name
        self._queue = Queue(self.name)
        self._asked = 0.0
        self._jobs: list[Job] = []
        self._refused: list[Ended] = []
        self._logs_wanted = False

    @property
    def slots(self) -> int:
        return max(1, min(len(self._jobs), self._options.array_parallelism or len(self._jobs)))

    def submit(self, tasks: Sequence[Task]) -> None:
        groups: dict[str, list[Task]] = {}
        for task in tasks:
            groups.setdefault(str(needs(task)), []).append(task)
        for group in groups.values():
            for first in range(0, len(group), _LARGEST_ARRAY):
                self._submit(group[first : first + _LARGEST_ARRAY])

    def poll(self) -> list[Ended]:
        ended, self._refused = self._refused, []
        if self._jobs and time.monotonic() - self._asked >= self._every:
            ended += self._look(self._late)
        self._logs_wanted |= any(end.reason for end in ended)
        return ended

    def running(self) -> list[Task]:
        return [job.task for job in self._jobs if job.state in STARTED]

    def stop(self) -> None:
        self._refused.clear()
        deadline = time.monotonic() + self._options.grace_seconds
        try:
            while self._jobs and time.monotonic() < deadline:
                # More than once: what waited may run by now, and what ran may wait again.
                self._queue.ask_to_end()
                self._wait()
        finally:
            if self._jobs:
                self._queue.cancel()
        deadline = time.monotonic() + _KILL_SECONDS
        while self._jobs and time.monotonic() < deadline:
            self._wait()
        if not self._jobs and not self._logs_wanted:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._jobs.clear()

    def _submit(self, tasks: Sequence[Task]) -> None:
        """One array of tasks with equal needs. What sbatch refuses has ended, with its words."""
        from submitit import SlurmExecutor as Engine
        from submitit.core.utils import FailedSubmissionError, UncompletedJobError

        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        engine = Engine(self._folder)
        engine.update_parameters(
            job_name=self.name,
            time=None,  # submitit's would be five minutes
            wckey=None,
            stderr_to_stdout=True,
            array_parallelism=self._options.array_parallelism or len(tasks),
            srun_args=[f"--cpus-per-task={tasks[0].cores}"],  # no longer taken from sbatch
            teardown=_REQUEUE.format(times=self._options.requeues).splitlines(),
            additional_parameters=needs(tasks[0]) | self._options.parameters(),
        )
        now = time.time()
        try:
            with outside_of_jobs():
                jobs = engine.submit_array([self._start(task) for task in tasks])
        except (FailedSubmissionError, UncompletedJobError, OSError) as error:
            reason = f"the cell could not be submitted to Slurm: {error}"
            self._refused += [Ended(task, EXIT_FAILED, now, reason) for task in tasks]
        else:
            pairs = zip(tasks, jobs, strict=True)
            self._jobs += [Job(task, job.job_id, job.paths.stdout, now) for task, job in pairs]

    def _start(self, task: Task) -> Start:
        folder = task.folder.resolve()
        command = (*self._command, str(folder), *self._plugins)
        return Start(command, str(CellFolder(folder).log_path), task.threads)

    def _look(self, late: float) -> list[Ended]:
        """Asks after all jobs at once; returns those that are over and drops them."""
        states = self._queue.states()
        self._asked = time.monotonic()
        if states is None:
            return []
        ended, still, unwanted = [], [], []
        for job in self._jobs:
            job.see(states.get(job.number))
            end = job.ended(late)
            if end is None:
                still.append(job)
                continue
            ended.append(end)
            if job.unwanted:
                unwanted.append(job.number)
        self._jobs = still
        if unwanted:
            self._queue.cancel(unwanted)
        return ended

    def _wait(self) -> None:
        time.sleep(min(1.0, self._every))
        self._look(late=0.0)
