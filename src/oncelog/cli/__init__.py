"""The command line: one file per command, imported when that command is called."""

from importlib import import_module
from pathlib import Path

import click

from oncelog import __version__


class Commands(click.Group):
    """Finds `serve` in `serve.py`, so that one command never pays for what another one imports."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        files = Path(__file__).parent.glob("[a-z]*.py")
        return sorted(file.stem.replace("_", "-") for file in files)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        command: click.Command = import_module(f"{__name__}.{cmd_name.replace('-', '_')}").command
        return command


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="oncelog")
def main() -> None:
    """A log that keeps every record once, spoken to with the Kafka protocol."""
