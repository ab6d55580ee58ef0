"""The permit: the value that only the gate's checks construct and only the commit consumes, in the same process."""

from __future__ import annotations

from dataclasses import dataclass

from pvdm.errors import NotAllowedError


@dataclass(frozen=True, slots=True)
class Permit:
    """One change of what `main` of one table shows: from exactly this metadata file to exactly that one."""

    table_uuid: str
    base_sha256: str
    new_sha256: str

    def require(self, *, table_uuid: str, base_sha256: str, new_sha256: str) -> None:
        """This permit is for this swap and no other."""
        if (self.table_uuid, self.base_sha256, self.new_sha256) != (table_uuid, base_sha256, new_sha256):
            raise NotAllowedError(
                "permit_for_other_commit",
                "the permit is for another commit",
                expected=f"{self.table_uuid} from {self.base_sha256} to {self.new_sha256}",
                got=f"{table_uuid} from {base_sha256} to {new_sha256}",
            )
