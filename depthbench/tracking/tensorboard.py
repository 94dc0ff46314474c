"""TensorBoard: the event files of a cell, read together, say what the cell's own files say.

They are written by `tensorboard` alone: with torch, a follower would take five times the memory.
Their numbers are fp32, since no other kind is shown by TensorBoard's own loader.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from depthbench.folder import CellFolder, write_json
from depthbench.tracking.noted import read_noted
from depthbench.tracking.points import Point


class TensorBoardRun:
    """Events can only be added; a restart in the log takes back those from its step on."""

    def __init__(self, folder: CellFolder, place: Path) -> None:
        self.place = place
        self.began = folder.config_path.stat().st_mtime
        self.noted = place / "sent.json"
        self.sent = read_noted(self.noted)
        self.writer: EventFileWriter | None = None

    def update(self, points: Sequence[Point]) -> None:
        """Writes what is new, and again what comes after a point that is no longer so."""
        now = {_key(point): point for point in points}
        gone = [step for key, step in self.sent.items() if key not in now]
        new = [point for key, point in now.items() if key not in self.sent]
        if not gone and not new:
            return
        if gone or self.writer is None:
            # Also what an earlier follower wrote and could not note any more.
            first = min([*gone, *(point.step for point in new)])
            self._restart(first)
            new = [point for point in points if point.step >= first]
        assert self.writer is not None
        for point in new:
            self.writer.add_event(self._event(point))
        self.writer.flush()
        self.sent = {key: point.step for key, point in now.items()}
        write_json(self.noted, self.sent)

    def close(self, done: bool) -> None:
        """Closes the event file."""
        if self.writer is not None:
            self.writer.close()
            self.writer = None

    def _restart(self, step: int) -> None:
        """Another event file, whose readers forget all events from `step` on."""
        self.close(done=False)
        self.writer = EventFileWriter(str(self.place))
        begin = SessionLog(status=SessionLog.START)
        self.writer.add_event(Event(wall_time=self.began, step=step, session_log=begin))

    def _event(self, point: Point) -> Event:
        values = [Summary.Value(tag=name, simple_value=x) for name, x in point.values.items()]
        when = self.began + point.elapsed
        return Event(wall_time=when, step=point.step, summary=Summary(value=values))


def _key(point: Point) -> str:
    digest = hashlib.sha256(repr(point).encode()).hexdigest()[:16]
    return f"{point.heading} {point.step} {digest}"
