"""What the user sees while a matrix runs: one line per running cell and one for the matrix."""

import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from depthbench.config import CellConfig
from depthbench.folder import CellFolder, last_training_record
from depthbench.printable import printable

_DRAW_SECONDS = 0.5
_PLAIN_SECONDS = 30.0
# Until this much has been measured, the plan's own estimate is believed.
_PRIOR_SECONDS = 10.0


@dataclass
class Track:
    """One cell of the matrix as the display follows it. Times are in seconds.

    `first` and `share` are the shares of its steps that were done when it started and are now.
    """

    folder: CellFolder
    config: CellConfig
    planned: float
    label: str
    status: str = "waiting"
    first: float = 0.0
    share: float = 0.0
    started: float | None = None
    wall: float = 0.0
    loss: float | None = None
    tokens_per_second: float | None = None

    def read(self) -> None:
        """Takes the newest training record."""
        if record := last_training_record(self.folder.metrics_path):
            self.share = min(1.0, record["step"] / self.config.steps)
            self.loss = record["loss"]
            self.tokens_per_second = record.get("tokens_per_second")

    def remaining(self, ratio: float) -> float:
        return self.planned * (1.0 - self.share) * ratio


@dataclass
class Progress:
    """Redrawn in place on a terminal; elsewhere plain lines as cells start and end."""

    console: Console
    tracks: Mapping[Path, Track]
    _slots: int = 1
    _begun: float = 0.0
    _shown: float = 0.0
    _live: Live | None = None

    def __enter__(self) -> "Progress":
        self._begun = time.monotonic()
        if self.console.is_terminal:
            self._live = Live(console=self.console, auto_refresh=False, transient=True)
            self._live.start()
        else:
            self._shown = self._begun
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def say(self, text: str) -> None:
        """One plain line, above the live part if there is one."""
        say(self.console, text)

    def ended(self, folder: Path, status: str, text: str) -> None:
        """The cell is over for now; `text` is what its line says after its name."""
        track = self.tracks[folder]
        track.read()
        if track.started is not None:
            track.wall += time.monotonic() - track.started
            track.started = None
        track.status = status
        self.say(f"{status:<11} {track.label}  {text}".rstrip())

    def refresh(self, running: Collection[Path], slots: int) -> None:
        """Follows `running`, of which there can be `slots`, and draws if it is time."""
        self._slots = slots
        for folder in running:
            track = self.tracks[folder]
            if track.started is None:
                track.read()
                track.first = track.share
                track.started = time.monotonic()
                track.status = "running"
                if not self._live:
                    self.say(f"{'start':<11} {track.label}{_resumed(track)}")
        now = time.monotonic()
        if now - self._shown < (_DRAW_SECONDS if self._live else _PLAIN_SECONDS):
            return
        self._shown = now
        active = [track for track in self.tracks.values() if track.status == "running"]
        for track in active:
            track.read()
        if self._live:
            self._live.update(self._draw(active), refresh=True)
        else:
            self.say(self._summary())

    def _draw(self, active: Sequence[Track]) -> RenderableType:
        table = Table.grid(padding=(0, 2))
        for _ in range(5):
            table.add_column(no_wrap=True)
        room = max(1, self.console.height - 3)
        ratio = self._ratio()
        for track in active[:room]:
            table.add_row(
                track.label,
                ProgressBar(total=1.0, completed=track.share, width=12),
                "loss -" if track.loss is None else f"loss {track.loss:.3f}",
                rate(track.tokens_per_second),
                f"{clock(track.remaining(ratio))} left",
            )
        more = [Text(f"and {len(active) - room} more")] if len(active) > room else []
        return Group(table, *more, Text(self._summary()))

    def _summary(self) -> str:
        count = Counter(track.status for track in self.tracks.values())
        parts = [f"matrix {count['done'] + count['diverged']}/{len(self.tracks)} finished"]
        if count["diverged"]:
            parts.append(f"{count['diverged']} of them diverged")
        parts.append(f"{count['failed']} failed")
        parts.append(f"{count['running']} running")
        parts.append(f"elapsed {clock(time.monotonic() - self._begun)}")
        parts.append(f"about {clock(self._time_left())} left")
        return ", ".join(parts)

    def _ratio(self) -> float:
        """Measured seconds per planned second, from what this run has done so far."""
        now = time.monotonic()
        measured = planned = _PRIOR_SECONDS
        for track in self.tracks.values():
            measured += track.wall + (now - track.started if track.started is not None else 0.0)
            if track.started is not None or track.wall:
                planned += track.planned * (track.share - track.first)
        return measured / planned

    def _time_left(self) -> float:
        ratio = self._ratio()
        tracks = self.tracks.values()
        return time_left(
            [track.remaining(ratio) for track in tracks if track.status == "running"],
            [track.remaining(ratio) for track in tracks if track.status == "waiting"],
            self._slots,
        )


def say(console: Console, text: str) -> None:
    """One plain line: not wrapped, and nothing in it is read as markup."""
    console.print(printable(text, keep="\n"), soft_wrap=True, markup=False, highlight=False)


def time_left(running: Iterable[float], waiting: Iterable[float], slots: int) -> float:
    """Seconds until the last cell ends, when each waiting one takes the next free slot."""
    ends = list(running)
    ends += [0.0] * (slots - len(ends))
    heapify(ends)
    for seconds in waiting:
        heappush(ends, heappop(ends) + seconds)
    return max(ends)


def labels(configs: Sequence[CellConfig]) -> list[str]:
    """Short names; the folder's name where several cells would have the same."""
    short = [
        f"{c.design.name} L{c.shape.layers} d{c.shape.d_model}{_loop(c)}{_rate(c)} seed {c.seed}"
        for c in configs
    ]
    count = Counter(short)
    return [s if count[s] == 1 else c.folder_name() for s, c in zip(short, configs, strict=True)]


def _loop(config: CellConfig) -> str:
    return f" ×{config.loop.forward}" if config.loop else ""


def _rate(config: CellConfig) -> str:
    return f" rate {config.optimizer.learning_rate:.3g}" if config.role == "tuning" else ""


def clock(seconds: float) -> str:
    """`m:ss` or `h:mm:ss`."""
    minutes, second = divmod(round(seconds), 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour}:{minute:02}:{second:02}" if hour else f"{minute}:{second:02}"


def rate(tokens_per_second: float | None) -> str:
    """Tokens per second with three digits or so."""
    if tokens_per_second is None:
        return "- tok/s"
    if tokens_per_second < 1000:
        return f"{tokens_per_second:.0f} tok/s"
    return f"{tokens_per_second / 1000:.1f}k tok/s"


def _resumed(track: Track) -> str:
    return f"  from step {round(track.share * track.config.steps)}" if track.share else ""
