"""What a person sees while something runs: a view in a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import termios
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Generic, ParamSpec, Protocol

from rich.live import Live

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

Told = ParamSpec("Told")
"""What a view is told of an event: a study tells the event and itself, the others the event alone."""


class LiveView(Protocol[Told]):
    """`with view:` around what runs, `watch` for its events."""

    def __enter__(self) -> object: ...

    def __exit__(self, *_: object) -> None: ...

    def watch(self, *told: Told.args, **more: Told.kwargs) -> None: ...


class SilentView:
    """Nothing to see, for `--json`."""

    def __enter__(self) -> SilentView:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def watch(self, *told: object, **more: object) -> None:
        del told, more


class LineView(Generic[Told]):
    """The lines of each event, for logs and pipes; `lines` takes the event in and answers what to print."""

    def __init__(self, lines: Callable[Told, Iterable[str]], console: Console, style: str = "") -> None:
        self._lines, self._console, self._style = lines, console, style

    def __enter__(self) -> LineView[Told]:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def watch(self, *told: Told.args, **more: Told.kwargs) -> None:
        for line in self._lines(*told, **more):
            self._console.print(line, soft_wrap=True, markup=False, style=self._style)


class ScreenView(Generic[Told]):
    """A view for a terminal, redrawn four times a second; `take_in` is called for events, in another thread.

    At the end `draw(True)` draws it once more and it stays; a `transient` view disappears.
    """

    def __init__(
        self,
        take_in: Callable[Told, object],
        draw: Callable[[bool], RenderableType],
        console: Console,
        transient: bool = False,
    ) -> None:
        self._take_in, self._console, self._over = take_in, console, False
        self._restore_echo: Callable[[], None] = lambda: None
        self._live = Live(
            get_renderable=lambda: draw(self._over),
            console=console,
            refresh_per_second=4,
            vertical_overflow="crop",
            transient=transient,
        )

    def __enter__(self) -> ScreenView[Told]:
        self._restore_echo = _without_echo(self._console)
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        self._live.stop()
        self._restore_echo()

    def watch(self, *told: Told.args, **more: Told.kwargs) -> None:
        self._take_in(*told, **more)


def live_view(
    console: Console | None,
    lines: Callable[Told, Iterable[str]],
    take_in: Callable[Told, object],
    draw: Callable[[bool], RenderableType],
    transient: bool = False,
) -> LiveView[Told]:
    """The view for where output goes: none without a console, a redrawn one in a terminal, else lines."""
    if console is None:
        return SilentView()
    if console.is_terminal:
        return ScreenView(take_in, draw, console, transient)
    return LineView(lines, console)


def _without_echo(console: Console) -> Callable[[], None]:
    """Keep the terminal from writing ^C into the view; answers how to undo that."""
    try:
        terminal = console.file.fileno()
        before = termios.tcgetattr(terminal)
        quiet = [*before]
        quiet[3] = before[3] & ~termios.ECHOCTL
        termios.tcsetattr(terminal, termios.TCSANOW, quiet)
    except (OSError, ValueError, termios.error):
        return lambda: None
    return lambda: termios.tcsetattr(terminal, termios.TCSANOW, before)


def format_clock(seconds: float) -> str:
    """
    >>> format_clock(75), format_clock(3700)
    ('1:15', '1:01:40')
    """
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
