package org.apache.iceberg.rest;

import org.apache.iceberg.catalog.Namespace;
import org.junit.jupiter.api.AfterEach;

/**
 * The kit as it is, with names that hold slashes and with nested namespaces, for which it has no switch. One of its
 * tests leaves nested namespaces behind that another one does not expect, and its own cleaning passes them over.
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
