"""Iceberg's Java library as an independent writer and reader, formats 1 to 3, where its jars are at hand."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from pvdm.lake.format.manifest.manifest import Manifest, check_listed, inherit, read_manifest
from pvdm.lake.format.manifest.manifest_list import ManifestFile, ManifestList, read_manifest_list
from pvdm.lake.format.manifest.write import write_manifest, write_manifest_list
from tests.support.services import require

SOURCE = Path(__file__).parent / "ManifestExchange.java"
MAIN = "org.apache.iceberg.ManifestExchange"
SNAPSHOT_ID = 55  # of every manifest that the Java program writes
FIRST_ROW_ID = 14  # the position in a line `entry|…` of the Java program
HINT = "PVDM_ICEBERG_CLASSPATH names no jars of iceberg-core and what it needs"


class Java:
    """The compiled exchange program."""

    def __init__(self, classpath: str) -> None:
        self.classpath = classpath

    def run(self, *words: str) -> str:
        command = ["java", "-cp", self.classpath, MAIN, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Java:
    jars = os.environ.get("PVDM_ICEBERG_CLASSPATH", "")
    require(jars, HINT)
    require(shutil.which("javac"), "javac is not installed")
    classes = tmp_path_factory.mktemp("classes")
    subprocess.run(
        ["javac", "-cp", jars, "-d", str(classes), str(SOURCE)], check=True, capture_output=True, timeout=120
    )
    return Java(f"{classes}{os.pathsep}{jars}")


@pytest.fixture(scope="module")
def written(java: Java, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("java")
    java.run("write", str(folder))
    return folder


def read_all(listing: Path) -> tuple[ManifestList, list[tuple[ManifestFile, Manifest]]]:
    found = read_manifest_list(listing.read_bytes())
    pairs = []
    for each in found.manifests:
        data = Path(each.manifest_path).read_bytes()
        manifest = read_manifest(data)
        check_listed(manifest, each, size=len(data))
        pairs.append((each, manifest))
    return found, pairs


@pytest.mark.parametrize("version", [1, 2, 3])
def test_what_java_writes_we_write_again_value_by_value(written: Path, version: int) -> None:
    _, pairs = read_all(written / f"java-v{version}-list.avro")
    for _, manifest in pairs:
        again = read_manifest(write_manifest(manifest.header, manifest.entries).data)
        assert again.file.schema_text == manifest.file.schema_text
        assert again.header == manifest.header
        assert again.file.records == manifest.file.records


@pytest.mark.parametrize("version", [1, 2, 3])
def test_what_we_write_java_reads_as_its_own(java: Java, written: Path, tmp_path: Path, version: int) -> None:
    listing = written / f"java-v{version}-list.avro"
    found, pairs = read_all(listing)
    written_manifests = []
    for at, (_, manifest) in enumerate(pairs):
        ours = write_manifest(manifest.header, manifest.entries)
        path = tmp_path / f"m{at}.avro"
        path.write_bytes(ours.data)
        written_manifests.append(ours.list_entry(str(path), SNAPSHOT_ID))
    target = tmp_path / "list.avro"
    target.write_bytes(write_manifest_list(found.header, written_manifests).data)
    expected = java.run("read", str(listing), str(version))
    assert expected.count("entry|") == sum(len(manifest.entries) for _, manifest in pairs)
    assert java.run("read", str(target), str(version)) == expected


def test_row_ids_are_inherited_as_java_inherits_them(java: Java, written: Path) -> None:
    listing = written / "java-v3-list.avro"
    _, pairs = read_all(listing)
    ours = [entry.data_file.first_row_id for each, manifest in pairs for entry in inherit(manifest, each)]
    lines = java.run("read", str(listing), "3").splitlines()
    theirs = [line.split("|")[FIRST_ROW_ID] for line in lines if line.startswith("entry|")]
    assert [str(each) if each is not None else "null" for each in ours] == theirs
