"""The desks that a Steward's jobs work for, opened beside them; who only verifies needs no more."""

from __future__ import annotations

from dataclasses import replace

from pvdm.lake.vault import Vault
from pvdm.steward.notary import Notary
from pvdm.steward.pipeline.assemble import PipelineWorkers, build_workers
from pvdm.verify.fetch import Files
from pvdm.verify.job import Tools


def workers_of(notary: Notary) -> tuple[PipelineWorkers, Tools]:
    """The desks and tools of a Steward, as its own jobs have them; nothing is cleaned up after an attempt."""
    files = Files(notary.stores)
    vault = Vault(notary.config.catalog.vault, notary.stores)
    tools = Tools(files, notary.handles, notary.keys, vault)
    return build_workers(replace(notary, spark=None), vault, notary.sources, files, lambda _: None), tools
