"""Takes the picture in ``docs``: the real GTKWave on a screen that nobody sees.

Needs the Debian packages gtkwave, xvfb, xdotool and imagemagick.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from sim.dump import WavesError
from sim.waves import gtkwave_command

_NEEDED = {"gtkwave": "gtkwave", "Xvfb": "xvfb", "xdotool": "xdotool", "convert": "imagemagick"}
_SETTINGS = (
    "splash_disable on",
    # More rows than usual fit the picture.
    "fontname_signals Monospace 8",
    "fontname_waves Monospace 8",
)
_SCREEN = (1600, 1260)
_CROP = "+46+99"
"""Without the bars at the top, and the folded tree at the left."""
_START_SECONDS = 30
_DRAW_SECONDS = 2


@contextlib.contextmanager
def virtual_screen() -> Iterator[dict[str, str]]:
    """A screen in memory; yields the environment that programs need to draw on it.

    Raises
    ------
    WavesError
        If there is no Xvfb, or it doesn't start.
    """
    if shutil.which("Xvfb") is None:
        raise WavesError("Xvfb is missing: install the Debian package xvfb.")
    reading, writing = os.pipe()
    size = "{}x{}x24".format(*_SCREEN)
    with subprocess.Popen(
        ["Xvfb", "-displayfd", str(writing), "-screen", "0", size, "-nolisten", "tcp"],
        pass_fds=[writing],
        stderr=subprocess.DEVNULL,
    ) as server:
        os.close(writing)
        try:
            with os.fdopen(reading) as file:
                # It says which number it found free once it is ready, or closes the pipe.
                number = file.readline().strip()
            if not number:
                raise WavesError("Xvfb did not start.")
            environment = {k: v for k, v in os.environ.items() if k != "WAYLAND_DISPLAY"}
            yield {**environment, "DISPLAY": f":{number}", "GDK_BACKEND": "x11"}
        finally:
            server.terminate()


def screenshot(save: Path, png: Path) -> None:
    """Opens a save file in GTKWave and writes what it shows to ``png``.

    Raises
    ------
    WavesError
        If a program is missing, or GTKWave doesn't show a window.
    """
    for program, package in _NEEDED.items():
        if shutil.which(program) is None:
            raise WavesError(f"{program} is missing: install the Debian package {package}.")
    with virtual_screen() as environment, tempfile.TemporaryDirectory() as home:
        # Nobody's own settings are to be seen in the picture.
        environment["HOME"] = home
        command = gtkwave_command(save)
        for setting in _SETTINGS:
            command += ["--rcvar", setting]
        with subprocess.Popen(
            command,
            cwd=save.parent,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as viewer:
            try:
                search = ["xdotool", "search", "--onlyvisible", "--name", "GTKWave"]
                deadline = time.monotonic() + _START_SECONDS
                while subprocess.run(search, env=environment, capture_output=True).returncode:
                    if viewer.poll() is not None or time.monotonic() > deadline:
                        raise WavesError("GTKWave shows no window.")
                    time.sleep(0.2)
                # Nobody else gives the window the whole screen.
                resize = ["windowsize", "%@", *map(str, _SCREEN)]
                subprocess.run([*search, *resize], env=environment, check=True)
                time.sleep(_DRAW_SECONDS)
                # Few colours, so the file stays small without becoming hard to read.
                convert = ["-trim", "+repage", "-crop", _CROP, "+repage", "+dither"]
                convert += ["-colors", "24", "-strip", f"png8:{png.resolve()}"]
                subprocess.run(["import", "-window", "root", *convert], env=environment, check=True)
            finally:
                viewer.terminate()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python -m sim.screenshot build/latest/save.gtkw docs/gtkwave.png")
    try:
        screenshot(Path(sys.argv[1]), Path(sys.argv[2]))
    except WavesError as error:
        sys.exit(str(error))
