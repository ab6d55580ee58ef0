"""Signed notes and checkpoints: published examples are accepted, and malformed or false ones are refused."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from pvdm.errors import InputError, VerificationError
from pvdm.trust.keys.epochs import KeyRole
from pvdm.trust.keys.public import PublicKey
from pvdm.trust.keys.service import Signer
from pvdm.trust.log.checkpoint import Checkpoint, SignedCheckpoint, open_checkpoint, sign_checkpoint
from pvdm.trust.log.merkle import EMPTY_ROOT
from pvdm.trust.log.note import NOTE_SIGNATURES_MAX, NOTE_SIZE_MAX_BYTES, NoteKey, open_note, parse_vkey, sign_note
from tests.support.for_each import for_each
from tests.support.ledger.log_storage import KEY, ORIGIN, SIGNER, EcdsaSigner, MemorySigner

# The example of the C2SP signed-note specification.
EXAMPLE_VKEY = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k"
EXAMPLE_NOTE = (
    "This is an example message.\n"
    "\n"
    "— example.com/foo Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM=\n"
).encode()

# A checkpoint of the public Rekor log, whose key is ECDSA P-256 (a test vector of transparency-dev/formats).
REKOR_VKEY = (
    "rekor.sigstore.dev+c0d23d6a+AjBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABNhtmPtrWm3U1eQXBogSMdGvXwBcK5AW5i0hrZLOC96l"
    "+smGNM7nwZ4QvFK/4sueRoVj//QP22Ni4Qt9DPfkWLc="
)
REKOR_NOTE = (
    "Rekor\n798034\nf+7CoKgXKE/tNys9TTXcr/ad6U/K3xvznmzew9y6SP0=\n\n"
    "— rekor.sigstore.dev wNI9ajBEAiARInWIWyCdyG27CO6LPnPekyw20qO0YJfoaPaowGp/XgIgc+qEHS3+GKVClgqq20uDLet7MCoTURUCRdx"
    "wWBHHufk=\n"
).encode()

STRANGER = MemorySigner(1)
ROOT = bytes(range(32))
GOOD = sign_checkpoint(Checkpoint(ORIGIN, 70_000, ROOT), SIGNER)
ROOT_TEXT = base64.b64encode(ROOT).decode()


def open_text(note: bytes) -> Checkpoint:
    return open_checkpoint(note, origin=ORIGIN, keys=[KEY]).checkpoint


def reason_of(note: bytes) -> str:
    with pytest.raises(VerificationError) as caught:
        open_text(note)
    return caught.value.reason


def sign_text(text: str) -> bytes:
    """A note of this text with a valid signature of the log key: only the parser can refuse it."""
    line = base64.b64encode(KEY.key_id + SIGNER.sign(text.encode())).decode()
    return f"{text}\n— {ORIGIN} {line}\n".encode()


def signature_line(note: bytes) -> bytes:
    return note.rpartition(b"\n\n")[2]


def test_the_published_example_is_accepted() -> None:
    assert open_note(EXAMPLE_NOTE, [parse_vkey(EXAMPLE_VKEY)]) == "This is an example message.\n"


def test_a_published_checkpoint_under_an_ecdsa_key_is_accepted() -> None:
    found = open_checkpoint(REKOR_NOTE, origin="Rekor", keys=[parse_vkey(REKOR_VKEY)])
    assert found.checkpoint.size == 798_034


def test_a_changed_checkpoint_under_an_ecdsa_key_is_refused() -> None:
    with pytest.raises(VerificationError) as caught:
        open_checkpoint(REKOR_NOTE.replace(b"798034", b"798035"), origin="Rekor", keys=[parse_vkey(REKOR_VKEY)])
    assert caught.value.reason == "note_signature_invalid"


@pytest.mark.parametrize("vkey", [EXAMPLE_VKEY, REKOR_VKEY])
def test_a_verifier_key_is_written_as_it_was_read(vkey: str) -> None:
    assert parse_vkey(vkey).to_vkey() == vkey


@for_each(
    "vkey",
    [
        "",
        "example.com/foo",
        EXAMPLE_VKEY.replace("530d903a", "530d903b"),
        EXAMPLE_VKEY.replace("530d903a", "530D903A"),
        EXAMPLE_VKEY.replace("+Aeky", "+Aekz"),
        EXAMPLE_VKEY.replace("+Ae", "+Be"),
        EXAMPLE_VKEY + "=",
        EXAMPLE_VKEY[:-4],
        EXAMPLE_VKEY.replace("example.com/foo", "example.com/ foo"),
        EXAMPLE_VKEY.replace("example.com/foo", ""),
        REKOR_VKEY.replace("c0d23d6a", "c0d23d6b"),
        REKOR_VKEY.replace("+AjBZ", "+AzBZ"),
        REKOR_VKEY.replace("+AjBZ", "+ATBZ"),
        "rekor.sigstore.dev+c0d23d6a+Ag==",
    ],
)
def test_a_damaged_verifier_key_is_refused(vkey: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_vkey(vkey)
    assert caught.value.reason == "note_key_malformed"


def test_a_checkpoint_is_three_lines_and_a_signature() -> None:
    text, _, signature = GOOD.note.partition(b"\n\n")
    assert text.decode() == f"{ORIGIN}\n70000\n{ROOT_TEXT}"
    assert signature.decode().startswith(f"— {ORIGIN} ")


def test_a_checkpoint_is_read_back() -> None:
    assert open_checkpoint(GOOD.note, origin=ORIGIN, keys=[KEY]) == GOOD


def test_signed_extension_lines_are_read() -> None:
    assert open_text(sign_text(f"{ORIGIN}\n1\n{ROOT_TEXT}\nfirst\nsecond\n")).extensions == ("first", "second")


@for_each(
    ("text", "reason"),
    [
        pytest.param(f"other.example/log\n5\n{ROOT_TEXT}\n", "checkpoint_origin", id="wrong-origin"),
        pytest.param(f"{ORIGIN}/\n5\n{ROOT_TEXT}\n", "checkpoint_origin", id="longer-origin"),
        pytest.param(f"{ORIGIN}\n05\n{ROOT_TEXT}\n", "checkpoint_size_malformed", id="leading-zero"),
        pytest.param(f"{ORIGIN}\n+5\n{ROOT_TEXT}\n", "checkpoint_size_malformed", id="plus-sign"),
        pytest.param(f"{ORIGIN}\n-5\n{ROOT_TEXT}\n", "checkpoint_size_malformed", id="negative"),
        pytest.param(f"{ORIGIN}\n 5\n{ROOT_TEXT}\n", "checkpoint_size_malformed", id="space-before-size"),
        pytest.param(f"{ORIGIN}\n1_0\n{ROOT_TEXT}\n", "checkpoint_size_malformed", id="underscore"),
        pytest.param(f"{ORIGIN}\n٥\n{ROOT_TEXT}\n", "checkpoint_size_malformed", id="arabic-digit"),
        pytest.param(f"{ORIGIN}\n{2**63}\n{ROOT_TEXT}\n", "checkpoint_size_malformed", id="beyond-63-bits"),
        pytest.param(f"{ORIGIN}\n0\n{ROOT_TEXT}\n", "checkpoint_root_malformed", id="empty-with-a-root"),
        pytest.param(f"{ORIGIN}\n5\n{ROOT_TEXT[:-1]}\n", "checkpoint_root_malformed", id="no-padding"),
        pytest.param(f"{ORIGIN}\n5\n{ROOT_TEXT[:-2]}9=\n", "checkpoint_root_malformed", id="loose-bits"),
        pytest.param(f"{ORIGIN}\n5\n{ROOT_TEXT} \n", "checkpoint_root_malformed", id="space-after-root"),
        pytest.param(f"{ORIGIN}\n5\n{ROOT.hex()}\n", "checkpoint_root_malformed", id="hex-root"),
        pytest.param(
            f"{ORIGIN}\n5\n{base64.b64encode(ROOT[:31]).decode()}\n", "checkpoint_root_malformed", id="short-root"
        ),
        pytest.param(
            f"{ORIGIN}\n5\n{'_' * 42}8=\n",
            "checkpoint_root_malformed",
            id="url-safe-base64",
        ),
        pytest.param(f"{ORIGIN}\n5\n", "checkpoint_malformed", id="two-lines"),
        pytest.param(f"{ORIGIN}\n5\n{ROOT_TEXT}\n\nlater\n", "checkpoint_malformed", id="empty-line-inside"),
        pytest.param(f"\n{ORIGIN}\n5\n{ROOT_TEXT}\n", "checkpoint_malformed", id="empty-line-first"),
        pytest.param(f"{ORIGIN}\n5\n{ROOT_TEXT}\n" + "x\n" * 17, "checkpoint_extensions_too_many", id="17-extensions"),
        pytest.param(f"{ORIGIN}\r\n5\r\n{ROOT_TEXT}\r\n", "note_malformed", id="crlf"),
        pytest.param(f"{ORIGIN}\t\n5\n{ROOT_TEXT}\n", "note_malformed", id="tab"),
    ],
)
def test_a_hostile_text_is_refused_even_when_the_log_key_signed_it(text: str, reason: str) -> None:
    assert reason_of(sign_text(text)) == reason


def signature_of(name: str, signer: MemorySigner) -> bytes:
    key = NoteKey(name, signer.public.der)
    text = GOOD.checkpoint.to_text().encode()
    return f"— {name} {base64.b64encode(key.key_id + signer.sign(text)).decode()}\n".encode()


def body() -> bytes:
    return GOOD.checkpoint.to_text().encode() + b"\n"


LINE = signature_line(GOOD.note)
WRONG = b"\xe2\x80\x94 " + ORIGIN.encode() + b" " + base64.b64encode(KEY.key_id + b"\x00" * 64) + b"\n"


@for_each(
    ("make", "reason"),
    [
        pytest.param(lambda: body() + signature_of(ORIGIN, STRANGER), "note_key_unknown", id="other-key-same-name"),
        pytest.param(lambda: body() + signature_of("witness", SIGNER), "note_key_unknown", id="same-key-other-name"),
        pytest.param(lambda: body() + LINE + LINE, "note_signature_duplicate", id="one-key-twice"),
        pytest.param(lambda: body() + WRONG, "note_signature_invalid", id="zero-signature"),
        pytest.param(lambda: body() + WRONG + LINE, "note_signature_invalid", id="bad-then-good"),
        pytest.param(lambda: GOOD.note.replace(b"70000", b"70001"), "note_signature_invalid", id="changed-size"),
        pytest.param(lambda: body()[:-1] + b"more\n\n" + LINE, "note_signature_invalid", id="unsigned-extra-line"),
        pytest.param(lambda: GOOD.note + b"more\n", "note_malformed", id="line-behind"),
        pytest.param(lambda: GOOD.note + b"\n", "note_malformed", id="empty-line-behind"),
        pytest.param(lambda: GOOD.note.replace(b"\n", b"\r\n"), "note_malformed", id="crlf-everywhere"),
        pytest.param(lambda: GOOD.note.replace(b"\xe2\x80\x94", b"-"), "note_malformed", id="ascii-dash"),
        pytest.param(lambda: GOOD.note + b"\xff", "note_malformed", id="not-utf-8"),
        pytest.param(body, "note_malformed", id="no-signature"),
        pytest.param(lambda: b"", "note_malformed", id="empty"),
        pytest.param(lambda: LINE, "note_malformed", id="signature-alone"),
        pytest.param(lambda: GOOD.note[:-1] + b"=\n", "note_malformed", id="extra-padding"),
        pytest.param(lambda: body() + LINE.replace(b" ", b"  "), "note_malformed", id="two-spaces"),
        pytest.param(lambda: body() + LINE * (NOTE_SIGNATURES_MAX + 1), "note_signatures_too_many", id="many"),
        pytest.param(lambda: b"x" * NOTE_SIZE_MAX_BYTES + GOOD.note, "note_too_large", id="oversized"),
    ],
)
def test_a_hostile_note_is_refused(make: Callable[[], bytes], reason: str) -> None:
    assert reason_of(make()) == reason


def test_a_checkpoint_cut_short_anywhere_is_refused() -> None:
    assert {reason_of(GOOD.note[:cut]) for cut in range(len(GOOD.note))} == {"note_malformed"}


def test_a_flipped_bit_anywhere_in_a_checkpoint_is_refused() -> None:
    for at in range(len(GOOD.note)):
        reason_of(GOOD.note[:at] + bytes([GOOD.note[at] ^ 1]) + GOOD.note[at + 1 :])


def test_a_second_signature_by_a_witness_is_accepted() -> None:
    note = body() + signature_of("witness.example", STRANGER) + LINE
    assert open_text(note) == GOOD.checkpoint


def test_after_a_key_change_either_key_is_accepted() -> None:
    newer = NoteKey(ORIGIN, STRANGER.public.der)
    note = sign_checkpoint(GOOD.checkpoint, STRANGER).note
    assert open_checkpoint(note, origin=ORIGIN, keys=[KEY, newer]).checkpoint == GOOD.checkpoint


def test_a_genuine_note_of_another_log_under_the_same_key_is_refused() -> None:
    other = sign_checkpoint(Checkpoint("log.example/other", 1, ROOT), SIGNER)
    with pytest.raises(VerificationError) as caught:
        open_checkpoint(other.note, origin=ORIGIN, keys=[NoteKey("log.example/other", SIGNER.public.der)])
    assert caught.value.reason == "checkpoint_origin"


@for_each("origin", ["", "two words", "a+b", "line\nbreak", "x" * 256])
def test_signing_a_checkpoint_with_an_invalid_origin_is_refused(origin: str) -> None:
    with pytest.raises((InputError, VerificationError)):
        sign_checkpoint(Checkpoint(origin, 1, ROOT), SIGNER)


class BrokenSigner(MemorySigner):
    """A key home that signs with a key other than the one it names."""

    def sign(self, message: bytes, /) -> bytes:
        return STRANGER.sign(message)


def test_a_signature_by_another_key_than_the_signers_is_refused_at_signing() -> None:
    with pytest.raises(VerificationError) as caught:
        sign_note("text\n", name=ORIGIN, signer=BrokenSigner(0))
    assert caught.value.reason == "note_signature_invalid"


@pytest.mark.parametrize(
    "key", [ec.generate_private_key(ec.SECP384R1()), rsa.generate_private_key(65_537, 2_048)], ids=["p-384", "rsa"]
)
def test_a_key_of_another_kind_is_refused(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> None:
    with pytest.raises(InputError) as caught:
        NoteKey(ORIGIN, key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))
    assert caught.value.reason == "note_key_malformed"


@pytest.mark.parametrize("home", [MemorySigner(3), EcdsaSigner(3)], ids=["ed25519", "ecdsa-p256"])
def test_the_key_service_s_signer_signs_checkpoints_in_either_algorithm(home: MemorySigner | EcdsaSigner) -> None:
    signer = Signer(KeyRole.LOG, 1, PublicKey.from_der(home.public.der), home.sign)
    note_of_service = sign_checkpoint(GOOD.checkpoint, signer)
    key = NoteKey(ORIGIN, signer.public.der)
    assert open_checkpoint(note_of_service.note, origin=ORIGIN, keys=[key]).checkpoint == GOOD.checkpoint


def test_the_empty_log_has_a_checkpoint() -> None:
    empty = SignedCheckpoint(Checkpoint(ORIGIN, 0, EMPTY_ROOT), b"")
    assert open_text(sign_checkpoint(empty.checkpoint, SIGNER).note) == empty.checkpoint
