"""The desks that a Steward's jobs work for, opened beside them; who only verifies needs no more."""

from __future__ import annotations

from pvdm.lake.stores.stores import Stores
from pvdm.lake.vault import Vault
from pvdm.steward.notary import Notary
from pvdm.steward.pipeline.assemble import Desks, Joined, open_desks
from pvdm.steward.work.sources import Sources
from pvdm.verify.fetch import Files
from pvdm.verify.job import Tools


def desks_of(notary: Notary) -> tuple[Desks, Tools]:
    """The desks and tools of a Steward, as its own jobs have them; nothing is cleaned up after an attempt."""
    config, stores = notary.config, Stores(notary.config.s3)
    files = Files(stores)
    assert config.catalog is not None
    vault = Vault(config.catalog.vault, stores)
    joined = Joined(
        config,
        notary.ledger,
        notary.clock,
        notary.keys,
        notary.handles,
        notary.recorder,
        notary.log,
        notary.trust,
        notary.proofs,
        lambda: notary.catalog,
        stores,
    )
    sources = Sources(notary.ledger, lambda: notary.catalog, files)
    tools = Tools(files, notary.handles, notary.keys, vault)
    return open_desks(joined, vault, sources, files, lambda _: None), tools
