"""What `list`, `plan` and `status` show, as plain records that are printed as tables or JSON."""

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal, get_args

from depthbench.progress import clock, time_left

if TYPE_CHECKING:
    from depthbench.plan import PlannedCell

Kind = Literal["designs", "ladders", "suites", "corpora"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Record = dict[str, Any]


def records(kind: Kind) -> list[Record]:
    """Everything of one kind that can be named in a suite or on the command line."""
    return {"designs": designs, "ladders": ladders, "suites": suites, "corpora": corpora}[kind]()


def designs() -> list[Record]:
    """Registered designs, the newest version of each, by family."""
    import residuals

    return [
        {
            "name": design.name,
            "version": design.version,
            "family": design.family,
            "title": design.title,
            "paper": design.paper,
            "options": design.option_defaults(),
            "summary": design.summary(),
        }
        for design in residuals.all_designs()
    ]


def ladders() -> list[Record]:
    """Shipped ladders with the count that each shape is matched on."""
    from depthbench.shapes import load_ladders

    return [
        {
            **ladder.model_dump(exclude={"shapes"}),
            "shapes": [
                {**s.model_dump(), "aspect_ratio": s.aspect_ratio, "count": ladder.count(s)}
                for s in ladder.shapes
            ],
        }
        for ladder in load_ladders().values()
    ]


def suites() -> list[Record]:
    """Shipped suites."""
    from depthbench.corpora import declared_ref
    from depthbench.expand import expand
    from depthbench.suite import load_suite, suite_names

    loaded = [load_suite(name) for name in suite_names()]
    return [
        {
            "name": suite.name,
            "description": suite.description,
            "designs": [design.name for design in suite.designs],
            "ladder": suite.ladder.name,
            "corpus": suite.corpus,
            "budget": suite.budget.model_dump(exclude_none=True),
            "seeds": list(suite.seeds),
            "cells": len(expand(suite, declared_ref(suite.corpus, suite.local, suite.hub))),
        }
        for suite in loaded
    ]


def corpora() -> list[Record]:
    """Corpora that are known by name, and where each lies if it is prepared."""
    from depthbench.corpora import prepared_ref
    from depthbench.data import LocalOptions, known_corpora, locate

    return [
        {
            "name": name,
            "description": description,
            "prepared": prepared_ref(name, LocalOptions()) is not None,
            "folder": str(locate(name)),
        }
        for name, description in known_corpora().items()
    ]


def cells(planned: Sequence["PlannedCell"]) -> list[Record]:
    """Cells with what each costs."""
    return [
        {
            "cell": cell.config.folder_name(),
            "role": cell.config.role,
            "learning_rate": cell.config.optimizer.learning_rate,
            "design": cell.config.design.name,
            "options": cell.config.design.options,
            **cell.config.shape.model_dump(),
            "loop": cell.config.loop.model_dump() if cell.config.loop else None,
            "seed": cell.config.seed,
            "device": cell.config.device,
            "threads": cell.config.threads,
            "ranks": cell.config.ranks.num,
            "precision": cell.config.precision,
            "steps": cell.config.steps,
            "tokens": cell.config.tokens,
            **cell.ledger,
            "seconds": cell.seconds,
            "device_hours": cell.device_hours,
            "memory_bytes": cell.memory_bytes,
            "rank_bytes": cell.rank_bytes,
            "needs": cell.needs,
            "disk_bytes": cell.disk_bytes,
        }
        for cell in planned
    ]


def total(planned: Sequence[Record], jobs: int | None) -> Record:
    """Sums over the cells of a plan, and the seconds until the last of them ends.

    Without `jobs` as many run at once as this machine has cores for; on accelerators one.
    """
    from depthbench.executors.local import available_cores

    cores = max((cell["threads"] * cell["ranks"] for cell in planned), default=1)
    on_cpu = all(cell["device"] == "cpu" for cell in planned)
    slots = jobs or (max(1, available_cores() // cores) if on_cpu else 1)
    longest_first = sorted((cell["seconds"] for cell in planned), reverse=True)
    return {
        "total_flops": sum(cell["total_flops"] for cell in planned),
        "seconds": time_left([], longest_first, slots),
        "device_hours": sum(cell["device_hours"] for cell in planned),
        "largest_tokens": max((cell["tokens"] for cell in planned), default=0),
        "largest_rank_bytes": max((cell["rank_bytes"] for cell in planned), default=0),
        "largest_memory_bytes": max((cell["memory_bytes"] for cell in planned), default=0),
        "disk_bytes": sum(cell["disk_bytes"] for cell in planned),
    }


def _fits(record: Mapping[str, Any]) -> str:
    needs = record["needs"]
    return "no" if needs is None else " ".join(("with", *needs)) if needs else "yes"


def _first_to_last(shapes: Sequence[Record]) -> str:
    ends = (shapes[0], shapes[-1])
    return " … ".join(f"{shape['layers']} × {shape['d_model']}" for shape in ends)


def _options(record: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in record["options"].items())


def _loop(record: Mapping[str, Any]) -> str | None:
    loop = record["loop"]
    if loop is None:
        return None
    if loop["layout"] == "whole":
        return f"×{loop['rounds']}"
    core = "core" if loop["tied"] else "untied"
    return f"{loop['prelude']} + {core} ×{loop['forward']} (B {loop['backward']}) + {loop['coda']}"


COLUMNS: dict[str, dict[str, Callable[[Mapping[str, Any]], Any]]] = {
    "designs": {
        "name": itemgetter("name"),
        "version": itemgetter("version"),
        "family": itemgetter("family"),
        "paper": itemgetter("paper"),
        "options": _options,
        "summary": itemgetter("summary"),
    },
    "ladders": {
        "name": itemgetter("name"),
        "shapes": lambda ladder: len(ladder["shapes"]),
        "layers × width": lambda ladder: _first_to_last(ladder["shapes"]),
        "target": itemgetter("target"),
        "counted": itemgetter("match_on"),
        "tolerance": lambda ladder: ladder["tolerance"] and f"{ladder['tolerance']:.1%}",
        "vocabulary": itemgetter("vocab_size"),
    },
    "suites": {
        "name": itemgetter("name"),
        "designs": lambda suite: len(suite["designs"]),
        "ladder": itemgetter("ladder"),
        "seeds": lambda suite: len(suite["seeds"]),
        "cells": itemgetter("cells"),
        "corpus": itemgetter("corpus"),
        "description": itemgetter("description"),
    },
    "corpora": {
        "name": itemgetter("name"),
        "prepared": itemgetter("prepared"),
        "description": itemgetter("description"),
    },
    "cells": {
        "design": lambda cell: f"{cell['design']} {_options(cell)}".strip(),
        "layers × width": lambda cell: f"{cell['layers']} × {cell['d_model']}",
        "ffn": itemgetter("ffn"),
        "loop": _loop,
        "rate": lambda cell: f"{cell['learning_rate']:.3g}",
        "seed": itemgetter("seed"),
        "parameters": itemgetter("parameters"),
        "backbone": itemgetter("backbone"),
        "added": lambda cell: f"{cell['added_by_design_share']:.1%}",
        "tokens": itemgetter("tokens"),
        "FLOPs": lambda cell: f"{cell['total_flops']:.3g}",
        "time": lambda cell: clock(cell["seconds"]),
    },
    "cells-on": {
        "design": lambda cell: f"{cell['design']} {_options(cell)}".strip(),
        "layers × width": lambda cell: f"{cell['layers']} × {cell['d_model']}",
        "loop": _loop,
        "role": itemgetter("role"),
        "rate": lambda cell: f"{cell['learning_rate']:.3g}",
        "seed": itemgetter("seed"),
        "parameters": itemgetter("parameters"),
        "added": lambda cell: f"{cell['added_by_design_share']:.1%}",
        "tokens": itemgetter("tokens"),
        "FLOPs": lambda cell: f"{cell['total_flops']:.3g}",
        "ranks": itemgetter("ranks"),
        "device-hours": lambda cell: f"{cell['device_hours']:.1f}",
        "memory of a rank": lambda cell: f"{cell['rank_bytes'] / 1e9:.1f} GB",
        "fits": _fits,
        "disk": lambda cell: f"{cell['disk_bytes'] / 1e9:.1f} GB",
    },
    "status": {
        "cell": itemgetter("cell"),
        "status": itemgetter("status"),
        "step": lambda cell: None if cell["step"] is None else f"{cell['step']}/{cell['steps']}",
        "loss": lambda cell: cell["loss"],
        "tokens/s": lambda cell: cell["tokens_per_second"],
        "left": lambda cell: None if cell["eta"] is None else clock(cell["eta"]),
        "error": lambda cell: str(cell["error"] or "").partition("\n")[0],
    },
    "doctor": {
        "what": itemgetter("name"),
        "state": itemgetter("state"),
        "found": itemgetter("found"),
        "needed for": itemgetter("needed_for"),
        "what to do": itemgetter("remedy"),
    },
}
