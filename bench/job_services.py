"""Builds the services with which a Steward verifies and publishes, so that a benchmark can call them step by step."""

from __future__ import annotations

from dataclasses import replace

from pvdm.lake.vault import Vault
from pvdm.steward.notary import Notary
from pvdm.steward.pipeline.assemble import JobServices, build_job_services
from pvdm.verify.fetch import Files
from pvdm.verify.job import Tools


def job_services_of(notary: Notary) -> tuple[JobServices, Tools]:
    """The services and tools, as the Steward's own jobs have them; only a call of `disposal` cleans up."""
    files = Files(notary.stores)
    vault = Vault(notary.config.catalog.vault, notary.stores)
    tools = Tools(files, notary.handles, notary.keys, vault)
    return build_job_services(replace(notary, spark=None), vault, notary.sources, files, lambda _: None), tools
