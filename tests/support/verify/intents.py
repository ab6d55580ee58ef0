"""The digest of a chunk's intent (the intended rows) alone, computed as the threads of a verification do."""

from __future__ import annotations

from pvdm.digest import Keys, Partial, Plan
from pvdm.digest.sharing import share
from pvdm.model.chunk import ChunkDefinition
from pvdm.model.contract import BoundContract
from pvdm.model.projection import ProjectionName
from pvdm.verify.chunk_files import files_of_chunk
from pvdm.verify.fetch import Fetcher
from pvdm.verify.intent import Intent, IntentDigest
from pvdm.verify.source import PinnedSource


def digest_intent(
    bound: BoundContract,
    source: PinnedSource,
    chunk: ChunkDefinition,
    plan: Plan,
    keys: Keys,
    fetch: Fetcher,
    *,
    threads: int = 1,
) -> dict[ProjectionName, Partial]:
    intent = IntentDigest(Intent(bound, source, chunk, plan), plan, keys)
    share(files_of_chunk(bound, source, chunk), [intent.file_adder(fetch) for _ in range(threads)])
    return intent.partials()
