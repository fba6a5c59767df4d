"""`oncelog completion`: the script with which a shell completes our commands, options and their values."""

from typing import Final

import click
from click.shell_completion import get_completion_class

SHELLS: Final = ("bash", "zsh", "fish")
VARIABLE: Final = "_ONCELOG_COMPLETE"  # click looks for it under the program's name


@click.command(name="completion")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print the script that completes `oncelog` on a TAB; the shell is to read it at its start.

    \b
    bash   echo 'eval "$(oncelog completion bash)"' >> ~/.bashrc
    zsh    echo 'eval "$(oncelog completion zsh)"' >> ~/.zshrc   (behind compinit)
    fish   oncelog completion fish > ~/.config/fish/completions/oncelog.fish

    Exit codes: 0 done, 2 wrong usage.
    """
    completing = get_completion_class(shell)
    assert completing is not None
    click.echo(completing(context.find_root().command, {}, "oncelog", VARIABLE).source(), nl=False)
