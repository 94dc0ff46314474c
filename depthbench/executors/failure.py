"""The result of a cell whose process ended without writing one."""

import signal
import time
from datetime import UTC, datetime
from typing import Any

from depthbench.executors import Ended
from depthbench.folder import SCHEMA, CellFolder, last_training_record, write_json

_LOG_LINES = 12


def contain(folder: CellFolder, ended: Ended) -> dict[str, Any]:
    """Writes and returns a "failed" result that says why, so that one crash stays one cell's."""
    record = last_training_record(folder.metrics_path)
    now = time.time()
    result: dict[str, Any] = {
        "schema": SCHEMA,
        "status": "failed",
        "config": folder.config().model_dump(mode="json"),
        "step": record["step"] if record else 0,
        "diverged_step": None,
        "error": explain(folder, ended),
        "measures": None,
        "ledger": None,
        "environment": None,
        "times": {
            "started": datetime.fromtimestamp(ended.started, UTC).isoformat(),
            "finished": datetime.fromtimestamp(now, UTC).isoformat(),
            "seconds": now - ended.started,
        },
    }
    with folder.lock():
        write_json(folder.result_path, result)
    return result


def explain(folder: CellFolder, ended: Ended) -> str:
    """Why the process ended, as far as can be known from outside, and its last words."""
    log: list[str] = []
    if folder.log_path.exists():
        log = folder.log_path.read_text(encoding="utf-8", errors="replace").splitlines()
    if ended.reason:
        text = ended.reason
    elif ended.returncode == -signal.SIGKILL:
        text = (
            "the cell was ended by SIGKILL: most likely the machine ran out of memory (planned for "
            f"this cell: {ended.task.memory_bytes:,} bytes). Run fewer cells at once (--jobs) or "
            "set a smaller micro_batch_size"
        )
    elif ended.returncode < 0:
        text = f"the cell was ended by {_signal_name(-ended.returncode)}"
    else:
        text = f"the cell ended with exit code {ended.returncode} and without a result"
        text += f": {log[-1]}" if log else ""
    return "\n".join([text, f"The end of {folder.log_path}:", *log[-_LOG_LINES:]])


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"
