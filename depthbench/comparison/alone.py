"""How designs stand in reports that may not be ranked together, every report by itself."""

from collections.abc import Iterator

from depthbench.comparison import words
from depthbench.comparison.blocks import Block, Table
from depthbench.comparison.words import Document, design_name


def side_by_side(parts: list[Document]) -> Block:
    """Courses of designs, every part by itself."""
    names: dict[tuple[str, str], dict[int, Document]] = {}
    for number, part in enumerate(parts):
        for course in part["designs"]:
            key = course["design"]["design"], course["design"]["options"]
            names.setdefault(key, {})[number] = course
    titles = [f"{part['label']} {part['title']}".strip() for part in parts]
    titles = [t if titles.count(t) == 1 else f"{t} ({n})" for n, t in enumerate(titles, 1)]
    columns = ["Design", *(f"{t}: {what}" for t in titles for what in ("depth", "place"))]
    rows = []
    for (design, options), courses in names.items():
        row = [design_name({"design": design, "options": options})]
        for number in range(len(parts)):
            course = courses.get(number)
            row += [words.change(course["depth"]), _place(course)] if course else [words.BLANK] * 2
        rows.append(tuple(row))
    shapes = (
        f"{title}: from {part['shapes'][0]} to {part['shapes'][-1]}."
        for title, part in zip(titles, parts, strict=True)
        if part["shapes"]
    )
    say = (
        "Depth is the loss at the deepest shape minus that at the shallowest, in nats. Place is "
        "the order of means over shapes minus the baseline's; a rank from intervals is named where "
        "there is one.",
        *shapes,
        *_why_no_depth(titles, parts),
    )
    warning = "Every column is of one report by itself: none of its numbers ranks with another's."
    table = Table("How designs stand in every report", tuple(columns), tuple(rows))
    return Block("Side by side", (warning,), say, (table,))


def _why_no_depth(titles: list[str], parts: list[Document]) -> Iterator[str]:
    for title, part in zip(titles, parts, strict=True):
        missing = [c for c in part["designs"] if c["depth"]["value"] is None]
        reasons = dict.fromkeys(course["depth"]["reason"] for course in missing)
        if reasons:
            yield f"{title}: no depth for want of {'; '.join(reasons)}."


def _place(course: Document) -> str:
    place = words.BLANK if course["place"] is None else str(course["place"])
    return place if course["rank"] is None else f"{place} (rank {course['rank']})"
