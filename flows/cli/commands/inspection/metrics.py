"""The verb `proteus metrics`."""

import threading
from pathlib import Path

import click

from proteus_spot.flows.cli.options import state_options
from proteus_spot.infra.errors import InputError


@click.command(short_help="Metrics of the jobs for Prometheus: printed once, or served.")
@state_options
@click.option(
    "--serve", metavar="[HOST:]PORT", help="Serve them under /metrics until Ctrl-C. Default: print them once."
)
def metrics(database: str | None, directory: Path | None, serve: str | None) -> None:
    """Show the metrics of the jobs and sweeps in a state database, in Prometheus's form.

    They are dollars, dollars an hour, machines, clock, loss and failed ticks by job, trials and the best value by
    sweep, and the age of the last tick; read anew at each scrape. docs/watching.md has a dashboard and the alarms.
    """
    from prometheus_client import generate_latest, start_http_server

    from proteus_spot.tasks.metrics import opened_registry

    host, port = ("", 0) if serve is None else _address(serve)
    with opened_registry(database, directory) as registry:
        if serve is None:
            click.echo(generate_latest(registry).decode(), nl=False)
            return
        try:
            server, _ = start_http_server(port, host, registry)
        except OSError as error:
            raise InputError(f"--serve {serve}: {error.strerror}; give another address") from None
        click.echo(f"serving http://{host}:{server.server_port}/metrics until Ctrl-C")
        try:
            threading.Event().wait()
        finally:
            server.shutdown()


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or len(port) > 5 or int(port) >= 2**16:
        raise InputError(f"--serve {text}: want a port, or HOST:PORT, as in 127.0.0.1:9464")
    return host or "127.0.0.1", int(port)
