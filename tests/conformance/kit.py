"""The verbs of this part on a command line of their own."""

from typing import Any

import typer
from typer.testing import CliRunner

from depthbench.console import Reporting
from depthbench.design_verbs import check, new

app = typer.Typer(cls=Reporting, pretty_exceptions_enable=False)
app.command()(new)
app.command()(check)


def call(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])
