"""The desks that a Steward's jobs work for, opened beside them; who only verifies needs no more."""

from __future__ import annotations

from pvdm.lake.stores.stores import Stores
from pvdm.lake.vault import Vault
from pvdm.steward.notary import Notary
from pvdm.steward.pipeline.assemble import PipelineParts, PipelineWorkers, build_workers
from pvdm.steward.work.sources import Sources
from pvdm.verify.fetch import Files
from pvdm.verify.job import Tools


def workers_of(notary: Notary) -> tuple[PipelineWorkers, Tools]:
    """The desks and tools of a Steward, as its own jobs have them; nothing is cleaned up after an attempt."""
    config, stores = notary.config, Stores(notary.config.s3)
    files = Files(stores)
    vault = Vault(config.catalog.vault, stores)
    joined = PipelineParts(
        config,
        notary.ledger,
        notary.clock,
        notary.keys,
        notary.handles,
        notary.recorder,
        notary.log,
        notary.trust,
        notary.proofs,
        notary.catalog,
        stores,
    )
    sources = Sources(notary.ledger, notary.catalog, files)
    tools = Tools(files, notary.handles, notary.keys, vault)
    return build_workers(joined, vault, sources, files, lambda _: None), tools
