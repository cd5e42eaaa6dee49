"""`prudent`: the commands, and the one place where an error becomes a sentence and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from prudent._version import __version__


def main(arguments: Sequence[str] | None = None) -> None:
    """The console script."""
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: Sequence[str]) -> int:
    """Run a command; answers its exit code, one of `prudent.cli.exits`."""
    if list(arguments) == ["--version"]:  # before anything heavy is imported
        sys.stdout.write(f"prudent {__version__}\n")
        return 0
    from prudent.cli.console import complain
    from prudent.cli.exits import FAILED, INTERRUPTED, OK
    from prudent.core.errors import PrudentError

    debug = bool(os.environ.get("PRUDENT_DEBUG"))
    try:
        return _invoke(arguments)
    except PrudentError as error:
        if debug:
            raise
        complain(str(error))
        return error.exit_code
    except BrokenPipeError:
        # Whoever read our output has seen enough, as in `prudent prices | head`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except KeyboardInterrupt:
        complain("interrupted.")
        return INTERRUPTED
    except Exception as error:
        if debug:
            raise
        said = " ".join(f"{type(error).__name__}: {error}".split())
        complain(
            f"something went wrong that should not ({said}); PRUDENT_DEBUG=1 shows where, please report it."
        )
        return FAILED


def _invoke(arguments: Sequence[str]) -> int:
    import typer

    from prudent.cli.app import UsageError, group
    from prudent.cli.console import complain
    from prudent.cli.exits import INTERRUPTED, OK, WRONG_REQUEST

    try:
        code = group()(list(arguments), prog_name="prudent", standalone_mode=False)
    except UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            typer.echo(error.format_message())
            return OK
        context = error.ctx.command_path if error.ctx is not None else "prudent"
        complain(f'{error.format_message().rstrip(".")}; see "{context} --help".')
        return WRONG_REQUEST
    except typer.Abort:
        complain("interrupted.")
        return INTERRUPTED
    sys.stdout.flush()
    return code if isinstance(code, int) else OK


if __name__ == "__main__":
    main()
