"""Commands with commands of their own: `oncelog topics` alone lists, as does `oncelog topics -b HOST`."""

import click

from oncelog.cli.parts.endings import nearest

# Names from other tools, where the letters do not say it.
MEANT = {"lag": "describe", "offsets": "describe", "show": "describe", "info": "describe", "ls": "list", "rm": "delete"}


class Pointing(click.Group):
    """Names the nearest command where there is none of the name."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        name = args[0]
        # A shell that completes a line with a wrong name in it is not to be told so.
        if name not in known and not name.startswith("-") and not ctx.resilient_parsing:
            meant = MEANT.get(name)
            near = f"; the nearest known one is {meant}" if meant in known else nearest(name, known)
            ctx.fail(f"No such command {name!r}{near}")
        return super().resolve_command(ctx, args)


class ListsAtFirst(Pointing):
    """A group of which `list` is meant where no other command is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_help = bool(args) and args[0] in ctx.help_option_names
        is_completed = ctx.resilient_parsing and not args  # behind `oncelog topics ` come the names of its commands
        if not is_completed and (not args or (args[0].startswith("-") and not is_help)):
            args = ["list", *args]
        return super().parse_args(ctx, args)
