"""Signed documents: what is written is read back, and a changed byte is refused."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pvdm.errors import InputError, PvdmError
from pvdm.model.canonical_json import dump, parse
from pvdm.model.statements.core import ProofCore
from pvdm.model.statements.proof import Proof
from pvdm.trust.envelope import Envelope, Signature, parse_envelope
from pvdm.trust.statement import payload_of, read_statement
from pvdm.trust.verify import sign_statement, verify_threshold
from tests.support.examples import examples
from tests.support.gate.proof_strategies import cores, proofs
from tools.proof_kit import CORE, NOW, PROOF, ROOT, SIGNERS, notary_part

pytestmark = pytest.mark.property

ENVELOPES = {
    "Ed25519": sign_statement(PROOF, SIGNERS["notary-a"]),
    "P-256": sign_statement(Proof(CORE, notary_part("notary-b")), SIGNERS["notary-b"]),
}


@given(cores())
def test_a_core_is_read_back_as_it_was_written(core: ProofCore) -> None:
    assert ProofCore.from_json(parse(core.to_bytes(), size_max_bytes=1 << 20)) == core


@given(proofs())
def test_a_statement_is_read_back_as_it_was_written(proof: Proof) -> None:
    assert read_statement(payload_of(proof), Proof) == proof


def _objects(value: Any) -> list[dict[str, Any]]:
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    found = [value] if isinstance(value, dict) else []
    return found + [each for child in inner for each in _objects(child)]


@given(cores(), st.data())
def test_a_core_that_lacks_a_key_is_refused(core: ProofCore, data: st.DataObject) -> None:
    value = json.loads(core.to_bytes())
    # The keys of parameters and partition come from the contract; all other objects have fixed keys.
    maps = (value["attempt"]["parameters"], value["target"]["partition"])
    places = [place for place in _objects(value) if place and not any(place is found for found in maps)]
    place = data.draw(st.sampled_from(range(len(places))))
    del places[place][data.draw(st.sampled_from(sorted(places[place])))]
    with pytest.raises(InputError) as refusal:
        ProofCore.from_json(value)
    assert refusal.value.reason == "document_key_missing"


@given(cores(), st.data())
def test_a_core_with_one_more_key_is_refused(core: ProofCore, data: st.DataObject) -> None:
    value = json.loads(core.to_bytes())
    maps = (value["attempt"]["parameters"], value["target"]["partition"])
    places = [place for place in _objects(value) if not any(place is found for found in maps)]
    places[data.draw(st.sampled_from(range(len(places))))]["more"] = "x"
    with pytest.raises(InputError) as refusal:
        ProofCore.from_json(value)
    assert refusal.value.reason == "document_key_unknown"


def _changed(data: bytes, place: int, mask: int) -> bytes:
    at = place % len(data)
    return data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]


@pytest.mark.parametrize("algorithm", sorted(ENVELOPES))
@given(place=st.integers(0, 10_000), mask=st.integers(1, 255))
def test_a_payload_with_one_byte_changed_is_refused(algorithm: str, place: int, mask: int) -> None:
    envelope = ENVELOPES[algorithm]
    changed = Envelope(envelope.payload_type, _changed(envelope.payload, place, mask), envelope.signatures)
    with pytest.raises(PvdmError) as refusal:
        verify_threshold([changed.to_bytes()], ROOT, threshold=1, now=NOW)
    assert refusal.value.reason == "signature_invalid"


@pytest.mark.parametrize("algorithm", sorted(ENVELOPES))
@given(place=st.integers(0, 100), mask=st.integers(1, 255))
def test_a_signature_with_one_byte_changed_is_refused(algorithm: str, place: int, mask: int) -> None:
    envelope = ENVELOPES[algorithm]
    spoiled = Signature(envelope.signature.key_id, _changed(envelope.signature.value, place, mask))
    changed = Envelope(envelope.payload_type, envelope.payload, (spoiled,))
    with pytest.raises(PvdmError) as refusal:
        verify_threshold([changed.to_bytes()], ROOT, threshold=1, now=NOW)
    assert refusal.value.reason in {"signature_invalid", "signature_form_invalid"}


@pytest.mark.parametrize("algorithm", sorted(ENVELOPES))
def test_an_envelope_with_any_one_byte_changed_is_refused(algorithm: str) -> None:
    data = ENVELOPES[algorithm].to_bytes()
    accepted = []
    for place in range(len(data)):
        try:
            verify_threshold([_changed(data, place, 1)], ROOT, threshold=1, now=NOW)
        except PvdmError:
            continue
        accepted.append(place)
    assert accepted == []


@given(st.binary(max_size=200))
@examples(300)
def test_arbitrary_bytes_are_refused_with_a_code(data: bytes) -> None:
    with pytest.raises(PvdmError):
        parse_envelope(data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(st.characters(codec="utf-8"), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=8), inner)
    ),
    max_leaves=6,
)


@given(JSON, st.data())
def test_a_core_with_any_value_in_any_place_is_read_or_refused_with_a_code(junk: Any, data: st.DataObject) -> None:
    value = copy.deepcopy(json.loads(CORE.to_bytes()))
    places = [(place, key) for place in _objects(value) for key in place]
    place, key = data.draw(st.sampled_from(places))
    place[key] = junk
    try:
        core = ProofCore.from_json(value)
    except InputError:
        return
    assert core.to_bytes() == dump(value)
