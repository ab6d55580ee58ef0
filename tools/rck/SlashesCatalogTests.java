package org.apache.iceberg.rest;

import org.apache.iceberg.catalog.Namespace;
import org.junit.jupiter.api.AfterEach;

/**
 * The kit's tests, with names that contain slashes and with nested namespaces, for which the kit has no settings. One
 * test leaves nested namespaces behind, which another does not expect. The kit's own cleanup does not drop them, so
 * dropNested does.
 */
public class SlashesCatalogTests extends RESTCompatibilityKitCatalogTests {
  @Override
  protected boolean supportsNamesWithSlashes() {
    return true;
  }

  @Override
  protected boolean supportsNestedNamespaces() {
    return true;
  }

  @AfterEach
  void dropNested() {
    catalog().listNamespaces().stream()
        .filter(top -> !RCKUtils.TEST_NAMESPACES.contains(top))
        .forEach(this::drop);
  }

  private void drop(Namespace namespace) {
    catalog().listNamespaces(namespace).forEach(this::drop);
    catalog().listTables(namespace).forEach(catalog()::dropTable);
    catalog().dropNamespace(namespace);
  }
}
