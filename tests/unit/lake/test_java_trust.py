"""The trust store for Spark's Java: its certificate authorities, and the Java options that name it."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, pkcs12

from pvdm.errors import InputError
from pvdm.lake import spark
from pvdm.lake.spark import make_trust_store, with_trust_store
from tests.support.servers.certificates import Authority


@pytest.mark.filterwarnings("ignore::cryptography.utils.CryptographyDeprecationWarning")
def test_the_store_has_the_given_authority_and_those_of_the_system(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path)
    found = pkcs12.load_pkcs12(make_trust_store(authority.certificate), b"changeit").additional_certs
    stored = {each.certificate.public_bytes(Encoding.DER) for each in found}
    own = ssl.PEM_cert_to_DER_cert(authority.certificate.read_text())
    assert own in stored
    system = set(ssl.create_default_context().get_ca_certs(binary_form=True))
    assert stored == {own, *system}


def test_driver_and_executors_get_the_store_before_options_of_the_caller(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path)
    own = {"spark.driver.defaultJavaOptions": "-Dmine=1", "spark.files": "/a/file"}
    found = with_trust_store(own, authority.certificate)
    driver = found["spark.driver.defaultJavaOptions"].split()
    assert driver[-1] == "-Dmine=1"
    (store,) = [each.partition("=")[2] for each in driver if each.startswith("-Djavax.net.ssl.trustStore=")]
    assert Path(store).read_bytes()
    assert Path(store).parent.stat().st_mode & 0o777 == 0o700
    assert found["spark.files"] == f"/a/file,{store}"
    assert f"-Djavax.net.ssl.trustStore={Path(store).name} " in found["spark.executor.defaultJavaOptions"]


@pytest.mark.parametrize("text", ["", "no certificate"])
def test_a_file_without_a_certificate_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "ca.pem").write_text(text)
    with pytest.raises(InputError) as caught:
        make_trust_store(tmp_path / "ca.pem")
    assert caught.value.reason == "ca_file_invalid"


def test_a_file_over_its_limit_is_refused_and_not_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pem = Authority.create(tmp_path).certificate.read_bytes()
    (tmp_path / "two.pem").write_bytes(pem + pem)
    monkeypatch.setattr(spark, "CA_FILE_MAX_BYTES", len(pem))
    with pytest.raises(InputError) as caught:
        make_trust_store(tmp_path / "two.pem")
    assert caught.value.reason == "ca_file_invalid"
