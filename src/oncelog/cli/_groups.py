"""Commands with commands of their own: `oncelog topics` alone lists, as does `oncelog topics -b HOST`."""

import click


class ListsAtFirst(click.Group):
    """A group of which `list` is meant where no other command is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_help = bool(args) and args[0] in ctx.help_option_names
        if not args or (args[0].startswith("-") and not is_help):
            args = ["list", *args]
        return super().parse_args(ctx, args)
