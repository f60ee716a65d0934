"""The `greenroom` command."""

from __future__ import annotations

import gc
import io
import os
import sys


def main() -> None:
    """Runs the command line, and exits with its code."""
    serves = sys.argv[1:2] == ["serve"]
    if serves:
        gc.disable()  # a collection takes a tenth of the start; a started server enables it

    from greenroom.cli.serving import plain_command_line, read_configuration, serve_folder
    from greenroom.cli.terminal import show_error

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that can't show a character must not end the conversation.
            stream.reconfigure(errors="replace")

    try:
        plain = plain_command_line(sys.argv[2:]) if serves else None
        if plain is not None:
            agents_dir, flags = plain
            serve_folder(agents_dir, read_configuration(agents_dir, None, flags))
        else:
            from greenroom.cli.commands import run_command

            run_command()
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # the reader of the output has closed it, as in `greenroom sessions list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:  # reports any error in one line
        show_error(error)
        sys.exit(1)


if __name__ == "__main__":
    main()
