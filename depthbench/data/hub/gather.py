"""Which shards are tokenised, and how far: as many as the tokens need, each only once."""

from collections.abc import Callable, Sequence
from pathlib import Path

from depthbench.data.hub import workers
from depthbench.data.hub.estimate import Sample
from depthbench.data.hub.merge import Part
from depthbench.data.hub.options import HubCorpus
from depthbench.data.hub.repository import Shard
from depthbench.data.hub.shards import Job, Record, write_shard
from depthbench.data.layout import TOKENIZER
from depthbench.data.progress import Progress
from depthbench.errors import DataError

_HEADROOM = 0.95  # of a shard's estimated tokens count until it is finished


class Gathering:
    """The shards in `work`, each done where it does not stand."""

    def __init__(
        self, corpus: HubCorpus, work: Path, found: Sample, processes: int, progress: Progress
    ) -> None:
        self._corpus, self._work, self._sample = corpus, work, found
        self._processes, self._progress = processes, progress
        self._records: dict[str, Record] = {}

    def validation(self, shards: Sequence[Shard]) -> list[Part]:
        """Equal shares of the validation tokens, each from a shard of its own."""
        share = -(-self._corpus.options.validation_tokens // len(shards))
        jobs = [self._job(shard, share) for shard in shards]
        left = iter([job for job in jobs if not self._stands(job)])
        processes = min(self._processes, len(jobs))
        self._run("validation tokens", lambda: next(left, None), jobs, share * len(jobs), processes)
        return [self._part(job, share) for job in jobs]

    def train(self, shards: Sequence[Shard], held_out: Sequence[Part]) -> list[Part]:
        """Shards in their order until they have the tokens; none is begun that is not needed."""
        wanted, left = self._corpus.options.tokens, iter(shards)
        without = tuple(part.index for part in held_out)
        jobs: list[Job] = []

        def next_job() -> Job | None:
            while self._count(jobs) + self._expected(jobs) < wanted:
                shard = next(left, None)
                if shard is None:
                    return None
                jobs.append(self._job(shard, wanted - self._count(jobs), without))
                if not self._stands(jobs[-1]):
                    return jobs[-1]
            return None

        self._run("training tokens", next_job, jobs, wanted, self._processes)
        parts: list[Part] = []
        for job in jobs:
            if wanted > 0:
                parts.append(self._part(job, wanted))
                wanted -= self._records[job.shard.name].count
        if wanted > 0:
            had = self._corpus.options.tokens - wanted
            raise DataError(
                f"the shards of {self._corpus.name} that are left to train on have {had:,} tokens, "
                f"not {self._corpus.options.tokens:,}: ask for at most as many. Finished shards "
                "are not done again"
            )
        return parts

    def _run(
        self,
        stage: str,
        next_job: Callable[[], Job | None],
        jobs: Sequence[Job],
        total: int,
        processes: int,
    ) -> None:
        def tell(running: int) -> None:
            self._progress(stage, min(total, self._count(jobs) + running), total)

        tell(0)
        workers.run(write_shard, next_job, self._finished, processes, tell)
        tell(0)

    def _job(self, shard: Shard, limit: int, without: tuple[Path, ...] = ()) -> Job:
        column = self._corpus.options.text
        return Job(shard, limit, self._work, column, self._work / TOKENIZER, without)

    def _stands(self, job: Job) -> bool:
        record = job.standing()
        if record is not None:
            self._records[job.shard.name] = record
        return record is not None

    def _finished(self, job: Job) -> None:
        self._records[job.shard.name] = job.record()

    def _part(self, job: Job, limit: int) -> Part:
        source_sha256 = self._records[job.shard.name].source_sha256
        return Part(job.shard.name, source_sha256, job.file("bin"), job.file("index"), limit)

    def _count(self, jobs: Sequence[Job]) -> int:
        """Tokens of those that are finished."""
        found = (self._records.get(job.shard.name) for job in jobs)
        return sum(record.count for record in found if record is not None)

    def _expected(self, jobs: Sequence[Job]) -> float:
        """About how many tokens, rather too few, the others will have."""
        running = (job for job in jobs if job.shard.name not in self._records)
        return _HEADROOM * sum(min(job.limit, self._sample.tokens(job.shard)) for job in running)
