package org.apache.iceberg;

import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.iceberg.encryption.PlaintextEncryptionManager;
import org.apache.iceberg.io.FileIO;
import org.apache.iceberg.types.Conversions;
import org.apache.iceberg.types.Types;

/** Writes manifests and lists with Iceberg's own classes, and prints what those classes read in given ones. */
public class ManifestExchange {
  private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);

  public static void main(String[] args) throws Exception {
    FileIO io = new LocalFiles();
    if (args[0].equals("write")) {
      write(io, args[1]);
    } else {
      read(io, args[1], Integer.parseInt(args[2]));
    }
  }

  private static final Schema SCHEMA =
      new Schema(
          0,
          Types.NestedField.required(1, "id", Types.LongType.get()),
          Types.NestedField.optional(2, "day", Types.DateType.get()),
          Types.NestedField.optional(3, "price", Types.DecimalType.of(9, 2)),
          Types.NestedField.optional(4, "name", Types.StringType.get()),
          Types.NestedField.optional(5, "key", Types.UUIDType.get()),
          Types.NestedField.optional(6, "at", Types.TimestampType.withZone()));

  private static PartitionSpec spec() {
    return PartitionSpec.builderFor(SCHEMA)
        .withSpecId(3)
        .identity("day")
        .identity("price")
        .bucket("name", 16, "name-bucket")
        .identity("key")
        .hour("at")
        .build();
  }

  private static DataFile file(PartitionSpec spec, String path, boolean nulls) {
    PartitionData partition = new PartitionData(spec.partitionType());
    if (!nulls) {
      partition.set(0, 20000);
      partition.set(1, new java.math.BigDecimal("12.50"));
      partition.set(2, 7);
      partition.set(3, java.util.UUID.fromString("f79c3e09-677c-4bbd-a479-3f349cb785e7"));
      partition.set(4, 480000);
    }
    Map<Integer, ByteBuffer> lower =
        Map.of(1, Conversions.toByteBuffer(Types.LongType.get(), -5L));
    Map<Integer, ByteBuffer> upper =
        Map.of(1, Conversions.toByteBuffer(Types.LongType.get(), 300L));
    Metrics metrics =
        new Metrics(10L, Map.of(1, 80L), Map.of(1, 10L), Map.of(1, 0L), Map.of(), lower, upper);
    return DataFiles.builder(spec)
        .withPath(path)
        .withFormat(FileFormat.PARQUET)
        .withFileSizeInBytes(1234)
        .withPartition(partition)
        .withMetrics(metrics)
        .withSplitOffsets(List.of(4L, 100L))
        .build();
  }

  private static void write(FileIO io, String folder) throws Exception {
    PartitionSpec spec = spec();
    for (int version = 1; version <= 3; version += 1) {
      long seq = version == 1 ? 0 : 4;
      String path = folder + "/java-v" + version + "-m0.avro";
      ManifestWriter<DataFile> writer =
          ManifestFiles.write(version, spec, io.newOutputFile(path), 55L);
      writer.add(file(spec, "s3://lake/a.parquet", false));
      writer.existing(file(spec, "s3://lake/b.parquet", true), 44L, version == 1 ? 0 : 2, version == 1 ? 0L : 2L);
      writer.delete(file(spec, "s3://lake/c.parquet", false), version == 1 ? 0 : 1, version == 1 ? 0L : 1L);
      writer.close();
      ManifestListWriter list =
          ManifestLists.write(
              version,
              io.newOutputFile(folder + "/java-v" + version + "-list.avro"),
              PlaintextEncryptionManager.instance(),
              55L,
              version == 1 ? null : 44L,
              seq,
              version == 3 ? 1000L : null);
      list.add(writer.toManifestFile());
      if (version == 3) {
        list.add(deletes(io, spec, folder));
      }
      list.close();
    }
  }

  private static ManifestFile deletes(FileIO io, PartitionSpec spec, String folder) throws Exception {
    ManifestWriter<DeleteFile> writer =
        ManifestFiles.writeDeleteManifest(3, spec, io.newOutputFile(folder + "/java-v3-d0.avro"), 55L);
    DeleteFile vector =
        FileMetadata.deleteFileBuilder(spec)
            .ofPositionDeletes()
            .withPath("s3://lake/dv.puffin")
            .withFormat(FileFormat.PUFFIN)
            .withFileSizeInBytes(99)
            .withPartition(file(spec, "x", true).partition())
            .withRecordCount(2)
            .withReferencedDataFile("s3://lake/a.parquet")
            .withContentOffset(4)
            .withContentSizeInBytes(40)
            .build();
    writer.add(vector);
    writer.close();
    return writer.toManifestFile();
  }

  private static void read(FileIO io, String path, int version) {
    for (ManifestFile manifest : ManifestLists.read(io.newInputFile(path))) {
      OUT.println(
          String.join(
              "|",
              "manifest",
              manifest.content().name(),
              String.valueOf(manifest.partitionSpecId()),
              String.valueOf(manifest.sequenceNumber()),
              String.valueOf(manifest.minSequenceNumber()),
              String.valueOf(manifest.snapshotId()),
              String.valueOf(manifest.addedFilesCount()),
              String.valueOf(manifest.existingRowsCount()),
              String.valueOf(manifest.firstRowId()),
              String.valueOf(manifest.partitions().size())));
      Map<Integer, PartitionSpec> specs = Map.of(3, spec());
      if (manifest.content() == ManifestContent.DATA) {
        for (ManifestEntry<DataFile> entry : ManifestFiles.read(manifest, io, specs).entries()) {
          print(entry, entry.file().firstRowId(), null, null);
        }
      } else {
        for (ManifestEntry<DeleteFile> entry :
            ManifestFiles.readDeleteManifest(manifest, io, specs).entries()) {
          DeleteFile file = entry.file();
          print(entry, file.firstRowId(), file.contentOffset(), file.contentSizeInBytes());
        }
      }
    }
  }

  private static void print(ManifestEntry<?> entry, Long row, Long offset, Long size) {
    ContentFile<?> file = entry.file();
    OUT.println(
        String.join(
            "|",
            "entry",
            entry.status().name(),
            String.valueOf(entry.snapshotId()),
            String.valueOf(entry.dataSequenceNumber()),
            String.valueOf(entry.fileSequenceNumber()),
            file.location(),
            file.format().name(),
            String.valueOf(file.recordCount()),
            String.valueOf(file.fileSizeInBytes()),
            String.valueOf(file.partition()),
            String.valueOf(file.columnSizes() == null ? null : new TreeMap<>(file.columnSizes())),
            hex(file.lowerBounds()),
            hex(file.upperBounds()),
            String.valueOf(file.splitOffsets()),
            String.valueOf(row),
            String.valueOf(offset),
            String.valueOf(size)));
  }

  private static String hex(Map<Integer, ByteBuffer> bounds) {
    if (bounds == null) {
      return "null";
    }
    StringBuilder found = new StringBuilder();
    for (Map.Entry<Integer, ByteBuffer> each : new TreeMap<>(bounds).entrySet()) {
      byte[] bytes = new byte[each.getValue().remaining()];
      each.getValue().duplicate().get(bytes);
      found.append(each.getKey()).append('=').append(java.util.HexFormat.of().formatHex(bytes)).append(' ');
    }
    return found.toString().trim();
  }

  /** Local files, without Hadoop. */
  private static class LocalFiles implements FileIO {
    @Override
    public org.apache.iceberg.io.InputFile newInputFile(String path) {
      return Files.localInput(path);
    }

    @Override
    public org.apache.iceberg.io.OutputFile newOutputFile(String path) {
      return Files.localOutput(path);
    }

    @Override
    public void deleteFile(String path) {
      throw new UnsupportedOperationException(path);
    }
  }
}
