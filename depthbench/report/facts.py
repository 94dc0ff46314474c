"""What was run and on what: one term and value per line, each from the rows."""

import json
from collections.abc import Iterable, Sequence

from depthbench.folder import FINISHED
from depthbench.report.lines import status_text
from depthbench.report.values import count_range, joined, plain, spelled_seconds
from depthbench.store import Record

Fact = tuple[str, str]
_HASH = 12  # digits shown; the rows have them all
_TIE = "\N{NO-BREAK SPACE}"
_VERSIONS = {
    "depthbench": "depthbench",
    "torch": "PyTorch",
    "numpy": "NumPy",
    "python": "Python",
    "platform": "Platform",
}


def head_facts(records: Sequence[Record]) -> list[Fact]:
    """The few that open the page."""
    scored = [record for record in records if record["role"] != "tuning"]
    tuning = [record for record in records if record["role"] == "tuning"]
    done = [record for record in scored if record["status"] == "done"]
    known = [record for record in scored if record["design"] is not None]
    shapes = sorted(
        {(record["layers"], record["d_model"]) for record in known}, key=lambda s: -s[1] / s[0]
    )
    facts = [("Suite", joined(_distinct(records, "suite")))]
    if scored:
        facts.append(("Runs", f"{len(done)} of {len(scored)} done"))
        designs = {(r["design"], r["design_version"], r["options"]) for r in known}
        facts.append(("Designs", str(len(designs))))
    if shapes:
        names = [f"L{layers}{_TIE}/{_TIE}d{width}" for layers, width in shapes]
        facts.append(("Shapes", " → ".join(dict.fromkeys((names[0], names[-1])))))
        facts.append(("Seeds", str(len({record["seed"] for record in known}))))
        facts.append(("Tokens a run", count_range(record["tokens"] for record in known)))
    if done:
        facts.append(("Parameters", count_range(record["parameters"] for record in done)))
    if tuning:
        ended = sum(record["status"] in FINISHED for record in tuning)
        facts.append(("Tuning runs", f"{ended} of {len(tuning)} ended"))
    return facts


def setup_facts(records: Sequence[Record]) -> list[Fact]:
    """Corpus, budget, recipe, machine and versions of one section."""
    first = records[0]
    recipe = json.loads(first["recipe"])
    seconds = sum(record["seconds"] or 0.0 for record in records)
    entropies = {f"{e:.4f}" for e in (r["unigram_entropy"] for r in records) if e is not None}
    facts = [
        ("Suite", joined(_distinct(records, "suite"))),
        ("Ladder", f"{first['ladder']}, matched by {first['match']}"),
        ("Corpus", f"{first['corpus']}, hash {first['corpus_hash'][:_HASH]}"),
        ("Tokenizer", f"{first['vocab_size']:,} types, hash {first['tokenizer_hash'][:_HASH]}"),
        ("Evaluation", f"{first['evaluation_tokens']:,} tokens, hash {first['evaluation']}"),
        ("Unigram entropy", f"{joined(sorted(entropies)) or 'not recorded'} nats per token"),
        ("Budget", _budget(records)),
        ("Optimiser", ", ".join(f"{n.replace('_', ' ')} {plain(v)}" for n, v in recipe.items())),
        ("Learning rates", joined(f"{rate:.3g}" for rate in _distinct(records, "learning_rate"))),
        ("Seed numbers", joined(str(seed) for seed in _distinct(records, "seed"))),
        ("Precision", first["precision"]),
        ("Hosts", _machines(records)),
        ("Threads a cell", joined(str(n) for n in _distinct(records, "threads"))),
    ]
    for name, term in _VERSIONS.items():
        facts.append((term, joined(_distinct(records, name)) or "not recorded"))
    commits = joined(commit[:_HASH] for commit in _distinct(records, "git_commit"))
    facts.append(("Commit", commits or "not recorded"))
    if any(record["git_dirty"] for record in records):
        facts.append(("Working tree", "had uncommitted changes in at least one run"))
    return [*facts, ("Time of all runs", spelled_seconds(seconds))]


def unfinished(records: Iterable[Record]) -> list[dict[str, str]]:
    """Every cell without a loss: where it is, how it stands, and why.

    A tuning run that diverged is a point of its curve, not one of these.
    """
    return [
        {
            "cell": f"{record['suite']} / {record['cell']}",
            "path": record["path"],
            "status": status_text([record]),
            "error": record["error"] or "",
        }
        for record in records
        if record["status"] != "done"
        and not (record["role"] == "tuning" and record["status"] == "diverged")
    ]


def copies(records: Iterable[Record]) -> list[str]:
    """A sentence for every cell that lay in several folders."""
    return [
        f"{record['path']} was given more than once and is counted once; also in {record['copies']}"
        for record in records
        if record["copies"]
    ]


def _distinct(records: Sequence[Record], name: str) -> list[str]:
    values = {record[name] for record in records if record[name] is not None}
    return sorted(values)


def _budget(records: Sequence[Record]) -> str:
    first = records[0]
    tokens = count_range(record["tokens"] for record in records)
    steps = count_range(record["steps"] for record in records)
    track = "FLOPs" if first["budget"] == "flops" else "tokens"
    return (
        f"{tokens} tokens a run (track: {track}), {steps} steps of "
        f"{first['batch_size']} × {first['sequence_length']} tokens"
    )


def _machines(records: Sequence[Record]) -> str:
    machines = {
        f"{record['host']} ({record['cpu'] or 'CPU not recorded'}, {record['device']})"
        for record in records
        if record["host"]
    }
    return "; ".join(sorted(machines)) or "not recorded"
