CREATE TABLE catalog_requests (
	identity TEXT NOT NULL,
	idempotency_key TEXT NOT NULL,
	request_sha256 TEXT NOT NULL,
	status INTEGER NOT NULL,
	answer TEXT NOT NULL,
	at_micros INTEGER NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (identity, idempotency_key)
)
 STRICT
--;
CREATE INDEX catalog_requests_at_micros ON catalog_requests (at_micros)
--;
CREATE TABLE claims (
	workload_id TEXT NOT NULL,
	target TEXT NOT NULL,
	claim_column TEXT,
	column_kind TEXT,
	lower_bound BLOB NOT NULL,
	upper_bound BLOB,
	extent TEXT NOT NULL,
	at_micros INTEGER NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (workload_id, target),
	CONSTRAINT extent_not_empty CHECK (upper_bound IS NULL OR lower_bound < upper_bound),
	CONSTRAINT column_typed CHECK ((claim_column IS NULL) = (column_kind IS NULL))
)
 STRICT
--;
CREATE INDEX claims_target ON claims (target)
--;
CREATE TABLE common_settings (
	settings_id INTEGER NOT NULL CONSTRAINT one_row CHECK (settings_id = 1),
	notary TEXT NOT NULL,
	origin TEXT NOT NULL,
	catalog TEXT,
	warehouse TEXT,
	metadata TEXT,
	vault TEXT,
	at_micros INTEGER NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (settings_id)
)
 STRICT
--;
CREATE TABLE doomed_files (
	name TEXT NOT NULL,
	table_uuid TEXT NOT NULL,
	at_micros INTEGER NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (name)
)
 STRICT
--;
CREATE TABLE epoch_books (
	revision INTEGER NOT NULL,
	book BLOB NOT NULL,
	at_micros INTEGER NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (revision)
)
 STRICT
--;
CREATE TABLE events (
	event_id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	at_micros INTEGER NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	kind TEXT NOT NULL,
	subject TEXT NOT NULL,
	row_key TEXT NOT NULL,
	old TEXT,
	new TEXT
)
 STRICT
--;
CREATE INDEX events_at_micros ON events (at_micros)
--;
CREATE INDEX events_subject ON events (subject, row_key)
--;
CREATE TABLE handles (
	handle_sha256 TEXT NOT NULL,
	job_id TEXT NOT NULL,
	redemptions INTEGER NOT NULL,
	state TEXT NOT NULL,
	context TEXT,
	at_micros INTEGER NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (handle_sha256),
	CONSTRAINT handle_sha256_hex CHECK (length(handle_sha256) = 64 AND handle_sha256 NOT GLOB '*[^0-9a-f]*'),
	CONSTRAINT state_known CHECK (state IN ('ISSUED', 'FROZEN', 'ENDED')),
	CONSTRAINT handles_job_once UNIQUE (job_id)
)
 STRICT
--;
CREATE TABLE log_checkpoints (
	size INTEGER NOT NULL,
	note BLOB NOT NULL,
	PRIMARY KEY (size)
)
 STRICT
--;
CREATE TABLE log_entries (
	entry_index INTEGER NOT NULL,
	entry BLOB NOT NULL,
	PRIMARY KEY (entry_index)
)
 STRICT
--;
CREATE TABLE log_hashes (
	level INTEGER NOT NULL,
	position INTEGER NOT NULL,
	hash BLOB NOT NULL,
	PRIMARY KEY (level, position),
	CONSTRAINT hash_length CHECK (length(hash) = 32)
)
 STRICT
--;
CREATE TABLE namespaces (
	namespace_id TEXT NOT NULL,
	levels TEXT NOT NULL,
	parent TEXT NOT NULL,
	domain TEXT NOT NULL,
	properties TEXT NOT NULL,
	protected_by TEXT,
	dropped_micros INTEGER,
	at_micros INTEGER NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (namespace_id),
	CONSTRAINT namespace_id_hex CHECK (length(namespace_id) = 32 AND namespace_id NOT GLOB '*[^0-9a-f]*')
)
 STRICT
--;
CREATE UNIQUE INDEX namespaces_levels_once ON namespaces (levels) WHERE dropped_micros IS NULL
--;
CREATE INDEX namespaces_parent ON namespaces (parent)
--;
CREATE TABLE restores (
	restore_id INTEGER NOT NULL,
	operator TEXT NOT NULL,
	reason TEXT NOT NULL,
	backup_size INTEGER NOT NULL,
	outside_note BLOB NOT NULL,
	epoch_before INTEGER NOT NULL,
	log_keys TEXT NOT NULL,
	outcome TEXT NOT NULL,
	finished_micros INTEGER,
	at_micros INTEGER NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (restore_id)
)
 STRICT
--;
CREATE TABLE target_sources (
	target TEXT NOT NULL,
	source_name TEXT NOT NULL,
	source TEXT NOT NULL,
	workload_id TEXT NOT NULL,
	at_micros INTEGER NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (target, source_name)
)
 STRICT
--;
CREATE TABLE vouched (
	table_uuid TEXT NOT NULL,
	snapshot_id TEXT NOT NULL,
	facts_sha256 TEXT NOT NULL,
	structure_sha256 TEXT NOT NULL,
	at_micros INTEGER NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (table_uuid, snapshot_id, facts_sha256),
	CONSTRAINT facts_sha256_hex CHECK (length(facts_sha256) = 64 AND facts_sha256 NOT GLOB '*[^0-9a-f]*'),
	CONSTRAINT structure_sha256_hex CHECK (length(structure_sha256) = 64 AND structure_sha256 NOT GLOB '*[^0-9a-f]*')
)
 STRICT
--;
CREATE TABLE workloads (
	workload_id TEXT NOT NULL,
	contract_hash TEXT NOT NULL,
	table_uuid TEXT NOT NULL,
	source TEXT NOT NULL,
	source_snapshot_id TEXT,
	parameters TEXT NOT NULL,
	atomicity TEXT NOT NULL,
	domain TEXT NOT NULL,
	plan_hash TEXT NOT NULL,
	epoch INTEGER NOT NULL,
	newer_columns TEXT NOT NULL,
	state TEXT NOT NULL,
	reason TEXT NOT NULL,
	at_micros INTEGER NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (workload_id),
	CONSTRAINT state_known CHECK (state IN ('OPEN', 'COMPLETE', 'ABANDONED')),
	CONSTRAINT atomicity_known CHECK (atomicity IN ('chunk', 'workload')),
	CONSTRAINT workload_id_length CHECK (length(workload_id) BETWEEN 1 AND 128),
	CONSTRAINT contract_hash_hex CHECK (length(contract_hash) = 64 AND contract_hash NOT GLOB '*[^0-9a-f]*'),
	CONSTRAINT plan_hash_hex CHECK (length(plan_hash) = 64 AND plan_hash NOT GLOB '*[^0-9a-f]*')
)
 STRICT
--;
CREATE INDEX workloads_domain ON workloads (domain)
--;
CREATE INDEX workloads_table_uuid ON workloads (table_uuid)
--;
CREATE TABLE announced (
	announced_id TEXT NOT NULL,
	table_uuid TEXT NOT NULL,
	workload_id TEXT NOT NULL,
	snapshot_id TEXT NOT NULL,
	override_nonce TEXT,
	holder TEXT NOT NULL,
	order_text TEXT NOT NULL,
	state TEXT NOT NULL,
	reason TEXT NOT NULL,
	at_micros INTEGER NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (announced_id),
	CONSTRAINT state_known CHECK (state IN ('OPEN', 'DONE', 'RELEASED')),
	CONSTRAINT announced_id_hex CHECK (length(announced_id) = 32 AND announced_id NOT GLOB '*[^0-9a-f]*'),
	FOREIGN KEY(workload_id) REFERENCES workloads (workload_id)
)
 STRICT
--;
CREATE INDEX announced_open ON announced (state) WHERE state = 'OPEN'
--;
CREATE UNIQUE INDEX announced_open_once ON announced (table_uuid) WHERE state = 'OPEN'
--;
CREATE UNIQUE INDEX announced_snapshot_once ON announced (table_uuid, snapshot_id)
--;
CREATE TABLE chunks (
	workload_id TEXT NOT NULL,
	chunk_id TEXT NOT NULL,
	ordinal INTEGER NOT NULL,
	definition TEXT NOT NULL,
	at_micros INTEGER NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (workload_id, chunk_id),
	CONSTRAINT chunks_ordinal_once UNIQUE (workload_id, ordinal),
	FOREIGN KEY(workload_id) REFERENCES workloads (workload_id)
)
 STRICT
--;
CREATE TABLE handle_workers (
	handle_sha256 TEXT NOT NULL,
	worker TEXT NOT NULL,
	at_micros INTEGER NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (handle_sha256, worker),
	FOREIGN KEY(handle_sha256) REFERENCES handles (handle_sha256)
)
 STRICT
--;
CREATE TABLE statements (
	statement_id TEXT NOT NULL,
	kind TEXT NOT NULL,
	envelope BLOB NOT NULL,
	log_index INTEGER NOT NULL,
	at_micros INTEGER NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (statement_id),
	CONSTRAINT statement_id_hex CHECK (length(statement_id) = 64 AND statement_id NOT GLOB '*[^0-9a-f]*'),
	CONSTRAINT kind_known CHECK (kind IN ('proof', 'receipt', 'workload', 'break-glass', 'epoch', 'trust-root', 'protection', 'migration', 'source-attestation', 'restore')),
	CONSTRAINT statements_log_index_once UNIQUE (log_index),
	FOREIGN KEY(log_index) REFERENCES log_entries (entry_index)
)
 STRICT
--;
CREATE INDEX statements_kind ON statements (kind)
--;
CREATE TABLE tables (
	table_id TEXT NOT NULL,
	namespace_id TEXT NOT NULL,
	name TEXT NOT NULL,
	domain TEXT NOT NULL,
	table_uuid TEXT NOT NULL,
	location TEXT NOT NULL,
	place TEXT NOT NULL,
	metadata_location TEXT NOT NULL,
	metadata_sha256 TEXT NOT NULL,
	previous_location TEXT,
	revision INTEGER NOT NULL,
	upstream TEXT,
	contract_hash TEXT,
	protected_micros INTEGER,
	dropped_micros INTEGER,
	at_micros INTEGER NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (table_id),
	CONSTRAINT table_id_hex CHECK (length(table_id) = 32 AND table_id NOT GLOB '*[^0-9a-f]*'),
	CONSTRAINT metadata_sha256_hex CHECK (length(metadata_sha256) = 64 AND metadata_sha256 NOT GLOB '*[^0-9a-f]*'),
	FOREIGN KEY(namespace_id) REFERENCES namespaces (namespace_id)
)
 STRICT
--;
CREATE UNIQUE INDEX tables_name_once ON tables (namespace_id, name) WHERE dropped_micros IS NULL
--;
CREATE INDEX tables_place ON tables (place) WHERE dropped_micros IS NULL
--;
CREATE INDEX tables_place_dropped ON tables (place) WHERE dropped_micros IS NOT NULL
--;
CREATE UNIQUE INDEX tables_protected_uuid_once ON tables (table_uuid) WHERE protected_micros IS NOT NULL
--;
CREATE INDEX tables_uuid ON tables (table_uuid)
--;
CREATE UNIQUE INDEX tables_uuid_once ON tables (table_uuid) WHERE dropped_micros IS NULL
--;
CREATE TABLE views (
	view_id TEXT NOT NULL,
	namespace_id TEXT NOT NULL,
	name TEXT NOT NULL,
	domain TEXT NOT NULL,
	view_uuid TEXT NOT NULL,
	location TEXT NOT NULL,
	metadata_location TEXT NOT NULL,
	metadata_sha256 TEXT NOT NULL,
	revision INTEGER NOT NULL,
	dropped_micros INTEGER,
	at_micros INTEGER NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (view_id),
	CONSTRAINT view_id_hex CHECK (length(view_id) = 32 AND view_id NOT GLOB '*[^0-9a-f]*'),
	CONSTRAINT metadata_sha256_hex CHECK (length(metadata_sha256) = 64 AND metadata_sha256 NOT GLOB '*[^0-9a-f]*'),
	FOREIGN KEY(namespace_id) REFERENCES namespaces (namespace_id)
)
 STRICT
--;
CREATE UNIQUE INDEX views_name_once ON views (namespace_id, name) WHERE dropped_micros IS NULL
--;
CREATE UNIQUE INDEX views_uuid_once ON views (view_uuid) WHERE dropped_micros IS NULL
--;
CREATE TABLE attempts (
	attempt_id TEXT NOT NULL,
	workload_id TEXT NOT NULL,
	chunk_id TEXT NOT NULL,
	number INTEGER NOT NULL CONSTRAINT number_positive CHECK (number >= 1),
	branch TEXT NOT NULL,
	prefix TEXT NOT NULL,
	state TEXT NOT NULL,
	staged_snapshot_id TEXT,
	reason TEXT NOT NULL,
	at_micros INTEGER NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (attempt_id),
	CONSTRAINT state_known CHECK (state IN ('STAGING', 'VERIFYING', 'COMMITTING', 'COMMITTED', 'VERIFICATION_FAILED', 'ROLLED_BACK')),
	CONSTRAINT attempt_id_hex CHECK (length(attempt_id) = 32 AND attempt_id NOT GLOB '*[^0-9a-f]*'),
	FOREIGN KEY(workload_id, chunk_id) REFERENCES chunks (workload_id, chunk_id),
	CONSTRAINT attempts_number_once UNIQUE (workload_id, chunk_id, number),
	CONSTRAINT attempts_of_chunk UNIQUE (workload_id, chunk_id, attempt_id),
	CONSTRAINT attempts_prefix_once UNIQUE (prefix)
)
 STRICT
--;
CREATE INDEX attempts_at_micros ON attempts (at_micros)
--;
CREATE UNIQUE INDEX attempts_one_live ON attempts (workload_id, chunk_id) WHERE state IN ('STAGING', 'VERIFYING', 'COMMITTING')
--;
CREATE TABLE contracts (
	contract_sha256 TEXT NOT NULL,
	body BLOB NOT NULL,
	statement_id TEXT NOT NULL,
	at_micros INTEGER NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (contract_sha256),
	CONSTRAINT contract_sha256_hex CHECK (length(contract_sha256) = 64 AND contract_sha256 NOT GLOB '*[^0-9a-f]*'),
	FOREIGN KEY(statement_id) REFERENCES statements (statement_id)
)
 STRICT
--;
CREATE TABLE lost_claims (
	receipt_id TEXT NOT NULL,
	workload_id TEXT NOT NULL,
	target TEXT NOT NULL,
	released_by TEXT,
	reason TEXT NOT NULL,
	at_micros INTEGER NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (receipt_id),
	FOREIGN KEY(receipt_id) REFERENCES statements (statement_id)
)
 STRICT
--;
CREATE INDEX lost_claims_target ON lost_claims (target)
--;
CREATE TABLE receipts (
	receipt_id TEXT NOT NULL,
	workload_id TEXT NOT NULL,
	table_uuid TEXT NOT NULL,
	snapshot_id TEXT NOT NULL,
	at_micros INTEGER NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (receipt_id),
	CONSTRAINT receipts_snapshot_once UNIQUE (table_uuid, snapshot_id),
	FOREIGN KEY(receipt_id) REFERENCES statements (statement_id)
)
 STRICT
--;
CREATE INDEX receipts_workload_id ON receipts (workload_id)
--;
CREATE TABLE spent (
	workload_id TEXT NOT NULL,
	chunk_id TEXT NOT NULL,
	snapshot_id TEXT NOT NULL,
	receipt_id TEXT NOT NULL,
	at_micros INTEGER NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (workload_id, chunk_id),
	FOREIGN KEY(receipt_id) REFERENCES statements (statement_id)
)
 STRICT
--;
CREATE TABLE staging_makers (
	table_id TEXT NOT NULL,
	kind TEXT NOT NULL,
	name TEXT NOT NULL,
	maker TEXT NOT NULL,
	at_micros INTEGER NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (table_id, kind, name),
	CONSTRAINT kind_known CHECK (kind IN ('branch', 'snapshot')),
	FOREIGN KEY(table_id) REFERENCES tables (table_id)
)
 STRICT
--;
CREATE TABLE disposals (
	attempt_id TEXT NOT NULL,
	outcome TEXT NOT NULL,
	removed INTEGER NOT NULL,
	kept INTEGER NOT NULL,
	note TEXT NOT NULL,
	at_micros INTEGER NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (attempt_id),
	CONSTRAINT outcome_known CHECK (outcome IN ('published', 'quarantined', 'deleted', 'left')),
	FOREIGN KEY(attempt_id) REFERENCES attempts (attempt_id)
)
 STRICT
--;
CREATE TABLE nonces (
	nonce TEXT NOT NULL,
	purpose TEXT NOT NULL,
	holder TEXT NOT NULL,
	attempt_id TEXT,
	state TEXT NOT NULL,
	snapshot_id TEXT,
	reason TEXT NOT NULL,
	at_micros INTEGER NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (nonce),
	CONSTRAINT state_known CHECK (state IN ('RESERVED', 'COMMITTED', 'ABORTED')),
	CONSTRAINT nonce_hex CHECK (length(nonce) = 32 AND nonce NOT GLOB '*[^0-9a-f]*'),
	CONSTRAINT purpose_known CHECK (purpose IN ('attempt', 'break-glass', 'source-attestation', 'protection', 'migration')),
	CONSTRAINT attempt_has_nonce CHECK ((purpose = 'attempt') = (attempt_id IS NOT NULL)),
	CONSTRAINT committed_as CHECK (state <> 'COMMITTED' OR attempt_id IS NULL OR snapshot_id IS NOT NULL),
	CONSTRAINT nonces_of_attempt UNIQUE (attempt_id, nonce),
	FOREIGN KEY(attempt_id) REFERENCES attempts (attempt_id)
)
 STRICT
--;
CREATE UNIQUE INDEX nonces_one_held ON nonces (attempt_id) WHERE state <> 'ABORTED'
--;
CREATE TABLE tokens (
	token_id TEXT NOT NULL,
	secret_sha256 TEXT NOT NULL,
	role TEXT NOT NULL,
	domain TEXT NOT NULL,
	name TEXT NOT NULL,
	attempt_id TEXT,
	parent_id TEXT,
	issued_micros INTEGER NOT NULL,
	expires_micros INTEGER NOT NULL,
	replaced_micros INTEGER,
	successor_id TEXT,
	revoked_micros INTEGER,
	at_micros INTEGER NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (token_id),
	CONSTRAINT token_id_hex CHECK (length(token_id) = 32 AND token_id NOT GLOB '*[^0-9a-f]*'),
	CONSTRAINT secret_sha256_hex CHECK (length(secret_sha256) = 64 AND secret_sha256 NOT GLOB '*[^0-9a-f]*'),
	CONSTRAINT role_known CHECK (role IN ('producer', 'publisher', 'consumer', 'attestor', 'operator', 'auditor', 'worker', 'steward')),
	CONSTRAINT tokens_secret_once UNIQUE (secret_sha256),
	CONSTRAINT tokens_replaced_by CHECK ((replaced_micros IS NULL) = (successor_id IS NULL)),
	FOREIGN KEY(attempt_id) REFERENCES attempts (attempt_id),
	FOREIGN KEY(parent_id) REFERENCES tokens (token_id),
	FOREIGN KEY(successor_id) REFERENCES tokens (token_id)
)
 STRICT
--;
CREATE TABLE announced_attempts (
	announced_id TEXT NOT NULL,
	attempt_id TEXT NOT NULL,
	nonce TEXT NOT NULL,
	at_micros INTEGER NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (announced_id, attempt_id),
	FOREIGN KEY(attempt_id, nonce) REFERENCES nonces (attempt_id, nonce),
	FOREIGN KEY(announced_id) REFERENCES announced (announced_id)
)
 STRICT
--;
CREATE INDEX announced_attempts_attempt_id ON announced_attempts (attempt_id)
--;
CREATE TABLE challenges (
	nonce TEXT NOT NULL,
	attestor TEXT NOT NULL,
	epoch INTEGER NOT NULL,
	request TEXT NOT NULL,
	expires_micros INTEGER NOT NULL,
	at_micros INTEGER NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (nonce),
	FOREIGN KEY(nonce) REFERENCES nonces (nonce)
)
 STRICT
--;
CREATE TABLE proofs (
	proof_id TEXT NOT NULL,
	workload_id TEXT NOT NULL,
	domain TEXT NOT NULL,
	attempt_id TEXT NOT NULL,
	nonce TEXT NOT NULL,
	held_nonce TEXT,
	verdict TEXT NOT NULL,
	notary TEXT NOT NULL,
	expires_micros INTEGER NOT NULL,
	summary TEXT NOT NULL,
	context TEXT,
	at_micros INTEGER NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (proof_id),
	CONSTRAINT verdict_known CHECK (verdict IN ('PASS', 'FAIL')),
	FOREIGN KEY(attempt_id, held_nonce) REFERENCES nonces (attempt_id, nonce),
	CONSTRAINT one_nonce CHECK (held_nonce IS NULL OR held_nonce = nonce),
	CONSTRAINT proofs_notary_once UNIQUE (nonce, notary),
	FOREIGN KEY(proof_id) REFERENCES statements (statement_id)
)
 STRICT
--;
CREATE INDEX proofs_attempt_id ON proofs (attempt_id)
--;
CREATE INDEX proofs_workload_id ON proofs (workload_id)
--;
CREATE TABLE protections (
	protection_id TEXT NOT NULL,
	action TEXT NOT NULL,
	table_uuid TEXT,
	namespace_id TEXT,
	name TEXT NOT NULL,
	domain TEXT NOT NULL,
	contract_sha256 TEXT NOT NULL,
	operator TEXT NOT NULL,
	nonce TEXT NOT NULL,
	found_sha256 TEXT,
	at_micros INTEGER NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (protection_id),
	CONSTRAINT action_known CHECK (action IN ('protect', 'unprotect')),
	CONSTRAINT contract_sha256_hex CHECK (length(contract_sha256) = 64 AND contract_sha256 NOT GLOB '*[^0-9a-f]*'),
	CONSTRAINT found_sha256_hex CHECK (length(found_sha256) = 64 AND found_sha256 NOT GLOB '*[^0-9a-f]*'),
	CONSTRAINT one_target CHECK ((table_uuid IS NULL) <> (namespace_id IS NULL)),
	CONSTRAINT protections_nonce_once UNIQUE (nonce),
	FOREIGN KEY(protection_id) REFERENCES statements (statement_id),
	FOREIGN KEY(nonce) REFERENCES nonces (nonce)
)
 STRICT
--;
CREATE INDEX protections_domain ON protections (domain)
--;
CREATE INDEX protections_table_uuid ON protections (table_uuid)
--;
CREATE TABLE published (
	workload_id TEXT NOT NULL,
	chunk_id TEXT NOT NULL,
	attempt_id TEXT NOT NULL,
	nonce TEXT NOT NULL,
	snapshot_id TEXT NOT NULL,
	rows_added INTEGER,
	files_added INTEGER,
	rows_removed INTEGER,
	files_removed INTEGER,
	at_micros INTEGER NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (workload_id, chunk_id),
	FOREIGN KEY(workload_id, chunk_id, attempt_id) REFERENCES attempts (workload_id, chunk_id, attempt_id),
	FOREIGN KEY(attempt_id, nonce) REFERENCES nonces (attempt_id, nonce),
	CONSTRAINT published_nonce_once UNIQUE (nonce)
)
 STRICT
--;
CREATE INDEX published_at_micros ON published (at_micros)
--;
CREATE TABLE quarantine_removals (
	attempt_id TEXT NOT NULL,
	token_id TEXT NOT NULL,
	name TEXT NOT NULL,
	reason TEXT NOT NULL,
	files INTEGER NOT NULL,
	bytes INTEGER NOT NULL,
	done INTEGER NOT NULL,
	at_micros INTEGER NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (attempt_id),
	CONSTRAINT done_known CHECK (done IN (0, 1)),
	CONSTRAINT counts_not_negative CHECK (files >= 0 AND bytes >= 0),
	FOREIGN KEY(attempt_id) REFERENCES disposals (attempt_id)
)
 STRICT
--;
CREATE TABLE table_migrations (
	migration_id TEXT NOT NULL,
	table_uuid TEXT NOT NULL,
	name TEXT NOT NULL,
	domain TEXT NOT NULL,
	contract_sha256 TEXT NOT NULL,
	metadata_sha256 TEXT,
	operator TEXT NOT NULL,
	nonce TEXT NOT NULL,
	at_micros INTEGER NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (migration_id),
	CONSTRAINT contract_sha256_hex CHECK (length(contract_sha256) = 64 AND contract_sha256 NOT GLOB '*[^0-9a-f]*'),
	CONSTRAINT table_migrations_nonce_once UNIQUE (nonce),
	FOREIGN KEY(migration_id) REFERENCES statements (statement_id),
	FOREIGN KEY(nonce) REFERENCES nonces (nonce)
)
 STRICT
--;
CREATE INDEX table_migrations_domain ON table_migrations (domain)
--;
CREATE INDEX table_migrations_table_uuid ON table_migrations (table_uuid)
--;
CREATE TABLE verified (
	nonce TEXT NOT NULL,
	attempt_id TEXT NOT NULL,
	core_sha256 TEXT NOT NULL,
	location TEXT,
	sha256 TEXT,
	files INTEGER NOT NULL,
	rows INTEGER,
	findings TEXT NOT NULL,
	findings_more INTEGER NOT NULL,
	located TEXT,
	at_micros INTEGER NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (nonce),
	CONSTRAINT core_sha256_hex CHECK (length(core_sha256) = 64 AND core_sha256 NOT GLOB '*[^0-9a-f]*'),
	CONSTRAINT sha256_hex CHECK (length(sha256) = 64 AND sha256 NOT GLOB '*[^0-9a-f]*'),
	CONSTRAINT manifest_hashed CHECK ((location IS NULL) = (sha256 IS NULL)),
	FOREIGN KEY(attempt_id, nonce) REFERENCES nonces (attempt_id, nonce)
)
 STRICT
--;
CREATE INDEX verified_attempt_id ON verified (attempt_id)
--;
CREATE TABLE attestations (
	attestation_id TEXT NOT NULL,
	nonce TEXT NOT NULL,
	attestor TEXT NOT NULL,
	catalog TEXT NOT NULL,
	table_uuid TEXT NOT NULL,
	snapshot_id TEXT NOT NULL,
	at_micros INTEGER NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (attestation_id),
	CONSTRAINT attestations_nonce_once UNIQUE (nonce),
	FOREIGN KEY(attestation_id) REFERENCES statements (statement_id),
	FOREIGN KEY(nonce) REFERENCES challenges (nonce)
)
 STRICT
--;
CREATE INDEX attestations_source ON attestations (table_uuid, snapshot_id)
--;
CREATE TABLE overrides (
	override_id TEXT NOT NULL,
	fail_proof_id TEXT NOT NULL,
	nonce TEXT NOT NULL,
	operator TEXT NOT NULL,
	expires_micros INTEGER NOT NULL,
	at_micros INTEGER NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (override_id),
	CONSTRAINT overrides_nonce_once UNIQUE (nonce),
	FOREIGN KEY(override_id) REFERENCES statements (statement_id),
	FOREIGN KEY(fail_proof_id) REFERENCES proofs (proof_id),
	FOREIGN KEY(nonce) REFERENCES nonces (nonce)
)
 STRICT
--;
CREATE INDEX overrides_fail_proof_id ON overrides (fail_proof_id)
--;
CREATE TRIGGER catalog_requests_no_update BEFORE UPDATE ON catalog_requests
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of catalog_requests never change');
END
--;
CREATE TRIGGER catalog_requests_event_insert AFTER INSERT ON catalog_requests
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, 'insert', 'catalog_requests', CAST(NEW.identity AS TEXT) || '/' || CAST(NEW.idempotency_key AS TEXT),
        NULL,
        json_object('identity', NEW.identity, 'idempotency_key', NEW.idempotency_key, 'request_sha256', NEW.request_sha256, 'status', NEW.status, 'at_micros', NEW.at_micros));
END
--;
CREATE TRIGGER claims_no_delete BEFORE DELETE ON claims
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of claims are never deleted');
END
--;
CREATE TRIGGER claims_no_update BEFORE UPDATE ON claims
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of claims never change');
END
--;
CREATE TRIGGER claims_event_insert AFTER INSERT ON claims
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, 'insert', 'claims', CAST(NEW.workload_id AS TEXT) || '/' || CAST(NEW.target AS TEXT),
        NULL,
        json_object('workload_id', NEW.workload_id, 'target', NEW.target, 'claim_column', NEW.claim_column, 'column_kind', NEW.column_kind, 'lower_bound', CASE WHEN NEW.lower_bound IS NOT NULL THEN lower(hex(NEW.lower_bound)) END, 'upper_bound', CASE WHEN NEW.upper_bound IS NOT NULL THEN lower(hex(NEW.upper_bound)) END, 'extent', NEW.extent, 'at_micros', NEW.at_micros));
END
--;
CREATE TRIGGER common_settings_no_delete BEFORE DELETE ON common_settings
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of common_settings are never deleted');
END
--;
CREATE TRIGGER common_settings_fixed BEFORE UPDATE ON common_settings
WHEN NEW.settings_id IS NOT OLD.settings_id
    OR NEW.notary IS NOT OLD.notary
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: only origin, catalog, warehouse, metadata, vault, at_micros of common_settings change');
END
--;
CREATE TRIGGER common_settings_event_insert AFTER INSERT ON common_settings
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, 'insert', 'common_settings', CAST(NEW.settings_id AS TEXT),
        NULL,
        json_object('settings_id', NEW.settings_id, 'notary', NEW.notary, 'origin', NEW.origin, 'catalog', NEW.catalog, 'warehouse', NEW.warehouse, 'metadata', NEW.metadata, 'vault', NEW.vault, 'at_micros', NEW.at_micros));
END
--;
CREATE TRIGGER common_settings_event_update AFTER UPDATE ON common_settings
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, 'update', 'common_settings', CAST(NEW.settings_id AS TEXT),
        json_object('settings_id', OLD.settings_id, 'notary', OLD.notary, 'origin', OLD.origin, 'catalog', OLD.catalog, 'warehouse', OLD.warehouse, 'metadata', OLD.metadata, 'vault', OLD.vault, 'at_micros', OLD.at_micros),
        json_object('settings_id', NEW.settings_id, 'notary', NEW.notary, 'origin', NEW.origin, 'catalog', NEW.catalog, 'warehouse', NEW.warehouse, 'metadata', NEW.metadata, 'vault', NEW.vault, 'at_micros', NEW.at_micros));
END
--;
CREATE TRIGGER doomed_files_no_delete BEFORE DELETE ON doomed_files
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of doomed_files are never deleted');
END
--;
CREATE TRIGGER doomed_files_no_update BEFORE UPDATE ON doomed_files
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of doomed_files never change');
END
--;
CREATE TRIGGER epoch_books_no_delete BEFORE DELETE ON epoch_books
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of epoch_books are never deleted');
END
--;
CREATE TRIGGER epoch_books_no_update BEFORE UPDATE ON epoch_books
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of epoch_books never change');
END
--;
CREATE TRIGGER epoch_books_event_insert AFTER INSERT ON epoch_books
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, 'insert', 'epoch_books', CAST(NEW.revision AS TEXT),
        NULL,
        json_object('revision', NEW.revision, 'at_micros', NEW.at_micros));
END
--;
CREATE TRIGGER events_no_delete BEFORE DELETE ON events
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of events are never deleted');
END
--;
CREATE TRIGGER events_no_update BEFORE UPDATE ON events
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of events never change');
END
--;
CREATE TRIGGER handles_no_delete BEFORE DELETE ON handles
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of handles are never deleted');
END
--;
CREATE TRIGGER handles_fixed BEFORE UPDATE ON handles
WHEN NEW.handle_sha256 IS NOT OLD.handle_sha256
    OR NEW.job_id IS NOT OLD.job_id
    OR NEW.redemptions IS NOT OLD.redemptions
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: only state, context, at_micros of handles change');
END
--;
CREATE TRIGGER handles_event_insert AFTER INSERT ON handles
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, 'insert', 'handles', CAST(NEW.handle_sha256 AS TEXT),
        NULL,
        json_object('handle_sha256', NEW.handle_sha256, 'job_id', NEW.job_id, 'redemptions', NEW.redemptions, 'state', NEW.state, 'context', NEW.context, 'at_micros', NEW.at_micros));
END
--;
CREATE TRIGGER handles_event_update AFTER UPDATE ON handles
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, 'update', 'handles', CAST(NEW.handle_sha256 AS TEXT),
        json_object('handle_sha256', OLD.handle_sha256, 'job_id', OLD.job_id, 'redemptions', OLD.redemptions, 'state', OLD.state, 'context', OLD.context, 'at_micros', OLD.at_micros),
        json_object('handle_sha256', NEW.handle_sha256, 'job_id', NEW.job_id, 'redemptions', NEW.redemptions, 'state', NEW.state, 'context', NEW.context, 'at_micros', NEW.at_micros));
END
--;
CREATE TRIGGER log_checkpoints_no_delete BEFORE DELETE ON log_checkpoints
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of log_checkpoints are never deleted');
END
--;
CREATE TRIGGER log_checkpoints_no_update BEFORE UPDATE ON log_checkpoints
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of log_checkpoints never change');
END
--;
CREATE TRIGGER log_entries_no_delete BEFORE DELETE ON log_entries
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of log_entries are never deleted');
END
--;
CREATE TRIGGER log_entries_no_update BEFORE UPDATE ON log_entries
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of log_entries never change');
END
--;
CREATE TRIGGER log_hashes_no_delete BEFORE DELETE ON log_hashes
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of log_hashes are never deleted');
END
--;
CREATE TRIGGER log_hashes_no_update BEFORE UPDATE ON log_hashes
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of log_hashes never change');
END
--;
CREATE TRIGGER namespaces_no_delete BEFORE DELETE ON namespaces
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of namespaces are never deleted');
END
--;
CREATE TRIGGER namespaces_fixed BEFORE UPDATE ON namespaces
WHEN NEW.namespace_id IS NOT OLD.namespace_id
    OR NEW.levels IS NOT OLD.levels
    OR NEW.parent IS NOT OLD.parent
    OR NEW.domain IS NOT OLD.domain
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: only properties, protected_by, dropped_micros, at_micros of namespaces change');
END
--;
CREATE TRIGGER namespaces_event_insert AFTER INSERT ON namespaces
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, 'insert', 'namespaces', CAST(NEW.namespace_id AS TEXT),
        NULL,
        json_object('namespace_id', NEW.namespace_id, 'levels', NEW.levels, 'parent', NEW.parent, 'domain', NEW.domain, 'properties', NEW.properties, 'protected_by', NEW.protected_by, 'dropped_micros', NEW.dropped_micros, 'at_micros', NEW.at_micros));
END
--;
CREATE TRIGGER namespaces_event_update AFTER UPDATE ON namespaces
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, 'update', 'namespaces', CAST(NEW.namespace_id AS TEXT),
        json_object('namespace_id', OLD.namespace_id, 'levels', OLD.levels, 'parent', OLD.parent, 'domain', OLD.domain, 'properties', OLD.properties, 'protected_by', OLD.protected_by, 'dropped_micros', OLD.dropped_micros, 'at_micros', OLD.at_micros),
        json_object('namespace_id', NEW.namespace_id, 'levels', NEW.levels, 'parent', NEW.parent, 'domain', NEW.domain, 'properties', NEW.properties, 'protected_by', NEW.protected_by, 'dropped_micros', NEW.dropped_micros, 'at_micros', NEW.at_micros));
END
--;
CREATE TRIGGER restores_no_delete BEFORE DELETE ON restores
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of restores are never deleted');
END
--;
CREATE TRIGGER restores_fixed BEFORE UPDATE ON restores
WHEN NEW.restore_id IS NOT OLD.restore_id
    OR NEW.operator IS NOT OLD.operator
    OR NEW.reason IS NOT OLD.reason
    OR NEW.backup_size IS NOT OLD.backup_size
    OR NEW.outside_note IS NOT OLD.outside_note
    OR NEW.epoch_before IS NOT OLD.epoch_before
    OR NEW.log_keys IS NOT OLD.log_keys
    OR NEW.outcome IS NOT OLD.outcome
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: only finished_micros, at_micros of restores change');
END
--;
CREATE TRIGGER restores_event_insert AFTER INSERT ON restores
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, 'insert', 'restores', CAST(NEW.restore_id AS TEXT),
        NULL,
        json_object('restore_id', NEW.restore_id, 'operator', NEW.operator, 'reason', NEW.reason, 'backup_size', NEW.backup_size, 'outside_note', CASE WHEN NEW.outside_note IS NOT NULL THEN lower(hex(NEW.outside_note)) END, 'epoch_before', NEW.epoch_before, 'log_keys', NEW.log_keys, 'outcome', NEW.outcome, 'finished_micros', NEW.finished_micros, 'at_micros', NEW.at_micros));
END
--;
CREATE TRIGGER restores_event_update AFTER UPDATE ON restores
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, 'update', 'restores', CAST(NEW.restore_id AS TEXT),
        json_object('restore_id', OLD.restore_id, 'operator', OLD.operator, 'reason', OLD.reason, 'backup_size', OLD.backup_size, 'outside_note', CASE WHEN OLD.outside_note IS NOT NULL THEN lower(hex(OLD.outside_note)) END, 'epoch_before', OLD.epoch_before, 'log_keys', OLD.log_keys, 'outcome', OLD.outcome, 'finished_micros', OLD.finished_micros, 'at_micros', OLD.at_micros),
        json_object('restore_id', NEW.restore_id, 'operator', NEW.operator, 'reason', NEW.reason, 'backup_size', NEW.backup_size, 'outside_note', CASE WHEN NEW.outside_note IS NOT NULL THEN lower(hex(NEW.outside_note)) END, 'epoch_before', NEW.epoch_before, 'log_keys', NEW.log_keys, 'outcome', NEW.outcome, 'finished_micros', NEW.finished_micros, 'at_micros', NEW.at_micros));
END
--;
CREATE TRIGGER target_sources_no_delete BEFORE DELETE ON target_sources
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of target_sources are never deleted');
END
--;
CREATE TRIGGER target_sources_fixed BEFORE UPDATE ON target_sources
WHEN NEW.target IS NOT OLD.target
    OR NEW.source_name IS NOT OLD.source_name
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: only source, workload_id, at_micros of target_sources change');
END
--;
CREATE TRIGGER target_sources_event_insert AFTER INSERT ON target_sources
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, 'insert', 'target_sources', CAST(NEW.target AS TEXT) || '/' || CAST(NEW.source_name AS TEXT),
        NULL,
        json_object('target', NEW.target, 'source_name', NEW.source_name, 'source', NEW.source, 'workload_id', NEW.workload_id, 'at_micros', NEW.at_micros));
END
--;
CREATE TRIGGER target_sources_event_update AFTER UPDATE ON target_sources
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, 'update', 'target_sources', CAST(NEW.target AS TEXT) || '/' || CAST(NEW.source_name AS TEXT),
        json_object('target', OLD.target, 'source_name', OLD.source_name, 'source', OLD.source, 'workload_id', OLD.workload_id, 'at_micros', OLD.at_micros),
        json_object('target', NEW.target, 'source_name', NEW.source_name, 'source', NEW.source, 'workload_id', NEW.workload_id, 'at_micros', NEW.at_micros));
END
--;
CREATE TRIGGER vouched_no_delete BEFORE DELETE ON vouched
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of vouched are never deleted');
END
--;
CREATE TRIGGER vouched_no_update BEFORE UPDATE ON vouched
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of vouched never change');
END
--;
CREATE TRIGGER workloads_no_delete BEFORE DELETE ON workloads
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of workloads are never deleted');
END
--;
CREATE TRIGGER workloads_fixed BEFORE UPDATE ON workloads
WHEN NEW.workload_id IS NOT OLD.workload_id
    OR NEW.contract_hash IS NOT OLD.contract_hash
    OR NEW.table_uuid IS NOT OLD.table_uuid
    OR NEW.source IS NOT OLD.source
    OR NEW.source_snapshot_id IS NOT OLD.source_snapshot_id
    OR NEW.parameters IS NOT OLD.parameters
    OR NEW.atomicity IS NOT OLD.atomicity
    OR NEW.domain IS NOT OLD.domain
    OR NEW.plan_hash IS NOT OLD.plan_hash
    OR NEW.epoch IS NOT OLD.epoch
    OR NEW.newer_columns IS NOT OLD.newer_columns
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: only state, reason, at_micros of workloads change');
END
--;
CREATE TRIGGER workloads_first_state BEFORE INSERT ON workloads
WHEN NEW.state <> 'OPEN'
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: workloads begin in OPEN');
END
--;
CREATE TRIGGER workloads_step BEFORE UPDATE ON workloads
WHEN NOT ((OLD.state = 'OPEN' AND NEW.state = 'COMPLETE')
    OR (OLD.state = 'OPEN' AND NEW.state = 'ABANDONED'))
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: no such step of the workload');
END
--;
CREATE TRIGGER workloads_event_insert AFTER INSERT ON workloads
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, 'insert', 'workloads', CAST(NEW.workload_id AS TEXT),
        NULL,
        json_object('workload_id', NEW.workload_id, 'contract_hash', NEW.contract_hash, 'table_uuid', NEW.table_uuid, 'source', NEW.source, 'source_snapshot_id', NEW.source_snapshot_id, 'parameters', NEW.parameters, 'atomicity', NEW.atomicity, 'domain', NEW.domain, 'plan_hash', NEW.plan_hash, 'epoch', NEW.epoch, 'newer_columns', NEW.newer_columns, 'state', NEW.state, 'reason', NEW.reason, 'at_micros', NEW.at_micros));
END
--;
CREATE TRIGGER workloads_event_update AFTER UPDATE ON workloads
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, 'update', 'workloads', CAST(NEW.workload_id AS TEXT),
        json_object('workload_id', OLD.workload_id, 'contract_hash', OLD.contract_hash, 'table_uuid', OLD.table_uuid, 'source', OLD.source, 'source_snapshot_id', OLD.source_snapshot_id, 'parameters', OLD.parameters, 'atomicity', OLD.atomicity, 'domain', OLD.domain, 'plan_hash', OLD.plan_hash, 'epoch', OLD.epoch, 'newer_columns', OLD.newer_columns, 'state', OLD.state, 'reason', OLD.reason, 'at_micros', OLD.at_micros),
        json_object('workload_id', NEW.workload_id, 'contract_hash', NEW.contract_hash, 'table_uuid', NEW.table_uuid, 'source', NEW.source, 'source_snapshot_id', NEW.source_snapshot_id, 'parameters', NEW.parameters, 'atomicity', NEW.atomicity, 'domain', NEW.domain, 'plan_hash', NEW.plan_hash, 'epoch', NEW.epoch, 'newer_columns', NEW.newer_columns, 'state', NEW.state, 'reason', NEW.reason, 'at_micros', NEW.at_micros));
END
--;
CREATE TRIGGER announced_no_delete BEFORE DELETE ON announced
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of announced are never deleted');
END
--;
CREATE TRIGGER announced_fixed BEFORE UPDATE ON announced
WHEN NEW.announced_id IS NOT OLD.announced_id
    OR NEW.table_uuid IS NOT OLD.table_uuid
    OR NEW.workload_id IS NOT OLD.workload_id
    OR NEW.snapshot_id IS NOT OLD.snapshot_id
    OR NEW.override_nonce IS NOT OLD.override_nonce
    OR NEW.holder IS NOT OLD.holder
    OR NEW.order_text IS NOT OLD.order_text
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: only state, reason, at_micros of announced change');
END
--;
CREATE TRIGGER announced_first_state BEFORE INSERT ON announced
WHEN NEW.state <> 'OPEN'
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: announced begin in OPEN');
END
--;
CREATE TRIGGER announced_step BEFORE UPDATE ON announced
WHEN NOT ((OLD.state = 'OPEN' AND NEW.state = 'DONE')
    OR (OLD.state = 'OPEN' AND NEW.state = 'RELEASED'))
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: no such step of the announced publication');
END
--;
CREATE TRIGGER announced_event_insert AFTER INSERT ON announced
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, 'insert', 'announced', CAST(NEW.announced_id AS TEXT),
        NULL,
        json_object('announced_id', NEW.announced_id, 'table_uuid', NEW.table_uuid, 'workload_id', NEW.workload_id, 'snapshot_id', NEW.snapshot_id, 'override_nonce', NEW.override_nonce, 'holder', NEW.holder, 'state', NEW.state, 'reason', NEW.reason, 'at_micros', NEW.at_micros));
END
--;
CREATE TRIGGER announced_event_update AFTER UPDATE ON announced
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, 'update', 'announced', CAST(NEW.announced_id AS TEXT),
        json_object('announced_id', OLD.announced_id, 'table_uuid', OLD.table_uuid, 'workload_id', OLD.workload_id, 'snapshot_id', OLD.snapshot_id, 'override_nonce', OLD.override_nonce, 'holder', OLD.holder, 'state', OLD.state, 'reason', OLD.reason, 'at_micros', OLD.at_micros),
        json_object('announced_id', NEW.announced_id, 'table_uuid', NEW.table_uuid, 'workload_id', NEW.workload_id, 'snapshot_id', NEW.snapshot_id, 'override_nonce', NEW.override_nonce, 'holder', NEW.holder, 'state', NEW.state, 'reason', NEW.reason, 'at_micros', NEW.at_micros));
END
--;
CREATE TRIGGER chunks_no_delete BEFORE DELETE ON chunks
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of chunks are never deleted');
END
--;
CREATE TRIGGER chunks_no_update BEFORE UPDATE ON chunks
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of chunks never change');
END
--;
CREATE TRIGGER chunks_event_insert AFTER INSERT ON chunks
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, 'insert', 'chunks', CAST(NEW.workload_id AS TEXT) || '/' || CAST(NEW.chunk_id AS TEXT),
        NULL,
        json_object('workload_id', NEW.workload_id, 'chunk_id', NEW.chunk_id, 'ordinal', NEW.ordinal, 'definition', NEW.definition, 'at_micros', NEW.at_micros));
END
--;
CREATE TRIGGER handle_workers_no_delete BEFORE DELETE ON handle_workers
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of handle_workers are never deleted');
END
--;
CREATE TRIGGER handle_workers_no_update BEFORE UPDATE ON handle_workers
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of handle_workers never change');
END
--;
CREATE TRIGGER handle_workers_event_insert AFTER INSERT ON handle_workers
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, 'insert', 'handle_workers', CAST(NEW.handle_sha256 AS TEXT) || '/' || CAST(NEW.worker AS TEXT),
        NULL,
        json_object('handle_sha256', NEW.handle_sha256, 'worker', NEW.worker, 'at_micros', NEW.at_micros));
END
--;
CREATE TRIGGER statements_no_delete BEFORE DELETE ON statements
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of statements are never deleted');
END
--;
CREATE TRIGGER statements_no_update BEFORE UPDATE ON statements
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of statements never change');
END
--;
CREATE TRIGGER statements_event_insert AFTER INSERT ON statements
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, 'insert', 'statements', CAST(NEW.statement_id AS TEXT),
        NULL,
        json_object('statement_id', NEW.statement_id, 'kind', NEW.kind, 'log_index', NEW.log_index, 'at_micros', NEW.at_micros));
END
--;
CREATE TRIGGER tables_no_delete BEFORE DELETE ON tables
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of tables are never deleted');
END
--;
CREATE TRIGGER tables_fixed BEFORE UPDATE ON tables
WHEN NEW.table_id IS NOT OLD.table_id
    OR NEW.domain IS NOT OLD.domain
    OR NEW.table_uuid IS NOT OLD.table_uuid
    OR NEW.upstream IS NOT OLD.upstream
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: only namespace_id, name, location, place, metadata_location, metadata_sha256, previous_location, revision, contract_hash, protected_micros, dropped_micros, at_micros of tables change');
END
--;
CREATE TRIGGER tables_protected_once BEFORE UPDATE ON tables
WHEN OLD.protected_micros IS NOT NULL AND NEW.protected_micros IS NOT OLD.protected_micros
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: when a table was first protected stays known');
END
--;
CREATE TRIGGER tables_event_insert AFTER INSERT ON tables
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, 'insert', 'tables', CAST(NEW.table_id AS TEXT),
        NULL,
        json_object('table_id', NEW.table_id, 'namespace_id', NEW.namespace_id, 'name', NEW.name, 'domain', NEW.domain, 'table_uuid', NEW.table_uuid, 'location', NEW.location, 'place', NEW.place, 'metadata_location', NEW.metadata_location, 'metadata_sha256', NEW.metadata_sha256, 'previous_location', NEW.previous_location, 'revision', NEW.revision, 'upstream', NEW.upstream, 'contract_hash', NEW.contract_hash, 'protected_micros', NEW.protected_micros, 'dropped_micros', NEW.dropped_micros, 'at_micros', NEW.at_micros));
END
--;
CREATE TRIGGER tables_event_update AFTER UPDATE ON tables
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, 'update', 'tables', CAST(NEW.table_id AS TEXT),
        json_object('table_id', OLD.table_id, 'namespace_id', OLD.namespace_id, 'name', OLD.name, 'domain', OLD.domain, 'table_uuid', OLD.table_uuid, 'location', OLD.location, 'place', OLD.place, 'metadata_location', OLD.metadata_location, 'metadata_sha256', OLD.metadata_sha256, 'previous_location', OLD.previous_location, 'revision', OLD.revision, 'upstream', OLD.upstream, 'contract_hash', OLD.contract_hash, 'protected_micros', OLD.protected_micros, 'dropped_micros', OLD.dropped_micros, 'at_micros', OLD.at_micros),
        json_object('table_id', NEW.table_id, 'namespace_id', NEW.namespace_id, 'name', NEW.name, 'domain', NEW.domain, 'table_uuid', NEW.table_uuid, 'location', NEW.location, 'place', NEW.place, 'metadata_location', NEW.metadata_location, 'metadata_sha256', NEW.metadata_sha256, 'previous_location', NEW.previous_location, 'revision', NEW.revision, 'upstream', NEW.upstream, 'contract_hash', NEW.contract_hash, 'protected_micros', NEW.protected_micros, 'dropped_micros', NEW.dropped_micros, 'at_micros', NEW.at_micros));
END
--;
CREATE TRIGGER views_no_delete BEFORE DELETE ON views
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of views are never deleted');
END
--;
CREATE TRIGGER views_fixed BEFORE UPDATE ON views
WHEN NEW.view_id IS NOT OLD.view_id
    OR NEW.domain IS NOT OLD.domain
    OR NEW.view_uuid IS NOT OLD.view_uuid
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: only namespace_id, name, location, metadata_location, metadata_sha256, revision, dropped_micros, at_micros of views change');
END
--;
CREATE TRIGGER views_event_insert AFTER INSERT ON views
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, 'insert', 'views', CAST(NEW.view_id AS TEXT),
        NULL,
        json_object('view_id', NEW.view_id, 'namespace_id', NEW.namespace_id, 'name', NEW.name, 'domain', NEW.domain, 'view_uuid', NEW.view_uuid, 'location', NEW.location, 'metadata_location', NEW.metadata_location, 'metadata_sha256', NEW.metadata_sha256, 'revision', NEW.revision, 'dropped_micros', NEW.dropped_micros, 'at_micros', NEW.at_micros));
END
--;
CREATE TRIGGER views_event_update AFTER UPDATE ON views
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, 'update', 'views', CAST(NEW.view_id AS TEXT),
        json_object('view_id', OLD.view_id, 'namespace_id', OLD.namespace_id, 'name', OLD.name, 'domain', OLD.domain, 'view_uuid', OLD.view_uuid, 'location', OLD.location, 'metadata_location', OLD.metadata_location, 'metadata_sha256', OLD.metadata_sha256, 'revision', OLD.revision, 'dropped_micros', OLD.dropped_micros, 'at_micros', OLD.at_micros),
        json_object('view_id', NEW.view_id, 'namespace_id', NEW.namespace_id, 'name', NEW.name, 'domain', NEW.domain, 'view_uuid', NEW.view_uuid, 'location', NEW.location, 'metadata_location', NEW.metadata_location, 'metadata_sha256', NEW.metadata_sha256, 'revision', NEW.revision, 'dropped_micros', NEW.dropped_micros, 'at_micros', NEW.at_micros));
END
--;
CREATE TRIGGER attempts_no_delete BEFORE DELETE ON attempts
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of attempts are never deleted');
END
--;
CREATE TRIGGER attempts_fixed BEFORE UPDATE ON attempts
WHEN NEW.attempt_id IS NOT OLD.attempt_id
    OR NEW.workload_id IS NOT OLD.workload_id
    OR NEW.chunk_id IS NOT OLD.chunk_id
    OR NEW.number IS NOT OLD.number
    OR NEW.branch IS NOT OLD.branch
    OR NEW.prefix IS NOT OLD.prefix
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: only state, staged_snapshot_id, reason, at_micros of attempts change');
END
--;
CREATE TRIGGER attempts_first_state BEFORE INSERT ON attempts
WHEN NEW.state <> 'STAGING'
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: attempts begin in STAGING');
END
--;
CREATE TRIGGER attempts_step BEFORE UPDATE ON attempts
WHEN NOT ((OLD.state = 'STAGING' AND NEW.state = 'VERIFYING')
    OR (OLD.state = 'STAGING' AND NEW.state = 'ROLLED_BACK')
    OR (OLD.state = 'VERIFYING' AND NEW.state = 'COMMITTING')
    OR (OLD.state = 'VERIFYING' AND NEW.state = 'VERIFICATION_FAILED')
    OR (OLD.state = 'VERIFYING' AND NEW.state = 'ROLLED_BACK')
    OR (OLD.state = 'COMMITTING' AND NEW.state = 'COMMITTED')
    OR (OLD.state = 'COMMITTING' AND NEW.state = 'VERIFICATION_FAILED')
    OR (OLD.state = 'COMMITTING' AND NEW.state = 'VERIFYING')
    OR (OLD.state = 'COMMITTING' AND NEW.state = 'ROLLED_BACK'))
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: no such step of the attempt');
END
--;
CREATE TRIGGER attempts_event_insert AFTER INSERT ON attempts
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, 'insert', 'attempts', CAST(NEW.attempt_id AS TEXT),
        NULL,
        json_object('attempt_id', NEW.attempt_id, 'workload_id', NEW.workload_id, 'chunk_id', NEW.chunk_id, 'number', NEW.number, 'branch', NEW.branch, 'prefix', NEW.prefix, 'state', NEW.state, 'staged_snapshot_id', NEW.staged_snapshot_id, 'reason', NEW.reason, 'at_micros', NEW.at_micros));
END
--;
CREATE TRIGGER attempts_event_update AFTER UPDATE ON attempts
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, 'update', 'attempts', CAST(NEW.attempt_id AS TEXT),
        json_object('attempt_id', OLD.attempt_id, 'workload_id', OLD.workload_id, 'chunk_id', OLD.chunk_id, 'number', OLD.number, 'branch', OLD.branch, 'prefix', OLD.prefix, 'state', OLD.state, 'staged_snapshot_id', OLD.staged_snapshot_id, 'reason', OLD.reason, 'at_micros', OLD.at_micros),
        json_object('attempt_id', NEW.attempt_id, 'workload_id', NEW.workload_id, 'chunk_id', NEW.chunk_id, 'number', NEW.number, 'branch', NEW.branch, 'prefix', NEW.prefix, 'state', NEW.state, 'staged_snapshot_id', NEW.staged_snapshot_id, 'reason', NEW.reason, 'at_micros', NEW.at_micros));
END
--;
CREATE TRIGGER contracts_no_delete BEFORE DELETE ON contracts
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of contracts are never deleted');
END
--;
CREATE TRIGGER contracts_no_update BEFORE UPDATE ON contracts
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of contracts never change');
END
--;
CREATE TRIGGER contracts_event_insert AFTER INSERT ON contracts
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, 'insert', 'contracts', CAST(NEW.contract_sha256 AS TEXT),
        NULL,
        json_object('contract_sha256', NEW.contract_sha256, 'statement_id', NEW.statement_id, 'at_micros', NEW.at_micros));
END
--;
CREATE TRIGGER lost_claims_no_delete BEFORE DELETE ON lost_claims
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of lost_claims are never deleted');
END
--;
CREATE TRIGGER lost_claims_fixed BEFORE UPDATE ON lost_claims
WHEN NEW.receipt_id IS NOT OLD.receipt_id
    OR NEW.workload_id IS NOT OLD.workload_id
    OR NEW.target IS NOT OLD.target
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: only released_by, reason, at_micros of lost_claims change');
END
--;
CREATE TRIGGER lost_claims_event_insert AFTER INSERT ON lost_claims
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, 'insert', 'lost_claims', CAST(NEW.receipt_id AS TEXT),
        NULL,
        json_object('receipt_id', NEW.receipt_id, 'workload_id', NEW.workload_id, 'target', NEW.target, 'released_by', NEW.released_by, 'reason', NEW.reason, 'at_micros', NEW.at_micros));
END
--;
CREATE TRIGGER lost_claims_event_update AFTER UPDATE ON lost_claims
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, 'update', 'lost_claims', CAST(NEW.receipt_id AS TEXT),
        json_object('receipt_id', OLD.receipt_id, 'workload_id', OLD.workload_id, 'target', OLD.target, 'released_by', OLD.released_by, 'reason', OLD.reason, 'at_micros', OLD.at_micros),
        json_object('receipt_id', NEW.receipt_id, 'workload_id', NEW.workload_id, 'target', NEW.target, 'released_by', NEW.released_by, 'reason', NEW.reason, 'at_micros', NEW.at_micros));
END
--;
CREATE TRIGGER receipts_no_delete BEFORE DELETE ON receipts
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of receipts are never deleted');
END
--;
CREATE TRIGGER receipts_no_update BEFORE UPDATE ON receipts
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of receipts never change');
END
--;
CREATE TRIGGER receipts_event_insert AFTER INSERT ON receipts
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, 'insert', 'receipts', CAST(NEW.receipt_id AS TEXT),
        NULL,
        json_object('receipt_id', NEW.receipt_id, 'workload_id', NEW.workload_id, 'table_uuid', NEW.table_uuid, 'snapshot_id', NEW.snapshot_id, 'at_micros', NEW.at_micros));
END
--;
CREATE TRIGGER spent_no_delete BEFORE DELETE ON spent
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of spent are never deleted');
END
--;
CREATE TRIGGER spent_no_update BEFORE UPDATE ON spent
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of spent never change');
END
--;
CREATE TRIGGER spent_event_insert AFTER INSERT ON spent
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, 'insert', 'spent', CAST(NEW.workload_id AS TEXT) || '/' || CAST(NEW.chunk_id AS TEXT),
        NULL,
        json_object('workload_id', NEW.workload_id, 'chunk_id', NEW.chunk_id, 'snapshot_id', NEW.snapshot_id, 'receipt_id', NEW.receipt_id, 'at_micros', NEW.at_micros));
END
--;
CREATE TRIGGER staging_makers_no_delete BEFORE DELETE ON staging_makers
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of staging_makers are never deleted');
END
--;
CREATE TRIGGER staging_makers_fixed BEFORE UPDATE ON staging_makers
WHEN NEW.table_id IS NOT OLD.table_id
    OR NEW.kind IS NOT OLD.kind
    OR NEW.name IS NOT OLD.name
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: only maker, at_micros of staging_makers change');
END
--;
CREATE TRIGGER disposals_no_delete BEFORE DELETE ON disposals
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of disposals are never deleted');
END
--;
CREATE TRIGGER disposals_no_update BEFORE UPDATE ON disposals
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of disposals never change');
END
--;
CREATE TRIGGER disposals_event_insert AFTER INSERT ON disposals
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, 'insert', 'disposals', CAST(NEW.attempt_id AS TEXT),
        NULL,
        json_object('attempt_id', NEW.attempt_id, 'outcome', NEW.outcome, 'removed', NEW.removed, 'kept', NEW.kept, 'note', NEW.note, 'at_micros', NEW.at_micros));
END
--;
CREATE TRIGGER nonces_no_delete BEFORE DELETE ON nonces
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of nonces are never deleted');
END
--;
CREATE TRIGGER nonces_fixed BEFORE UPDATE ON nonces
WHEN NEW.nonce IS NOT OLD.nonce
    OR NEW.purpose IS NOT OLD.purpose
    OR NEW.holder IS NOT OLD.holder
    OR NEW.attempt_id IS NOT OLD.attempt_id
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: only state, snapshot_id, reason, at_micros of nonces change');
END
--;
CREATE TRIGGER nonces_first_state BEFORE INSERT ON nonces
WHEN NEW.state <> 'RESERVED'
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: nonces begin in RESERVED');
END
--;
CREATE TRIGGER nonces_step BEFORE UPDATE ON nonces
WHEN NOT ((OLD.state = 'RESERVED' AND NEW.state = 'COMMITTED')
    OR (OLD.state = 'RESERVED' AND NEW.state = 'ABORTED'))
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: no such step of the nonce');
END
--;
CREATE TRIGGER nonces_event_insert AFTER INSERT ON nonces
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, 'insert', 'nonces', CAST(NEW.nonce AS TEXT),
        NULL,
        json_object('nonce', NEW.nonce, 'purpose', NEW.purpose, 'holder', NEW.holder, 'attempt_id', NEW.attempt_id, 'state', NEW.state, 'snapshot_id', NEW.snapshot_id, 'reason', NEW.reason, 'at_micros', NEW.at_micros));
END
--;
CREATE TRIGGER nonces_event_update AFTER UPDATE ON nonces
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, 'update', 'nonces', CAST(NEW.nonce AS TEXT),
        json_object('nonce', OLD.nonce, 'purpose', OLD.purpose, 'holder', OLD.holder, 'attempt_id', OLD.attempt_id, 'state', OLD.state, 'snapshot_id', OLD.snapshot_id, 'reason', OLD.reason, 'at_micros', OLD.at_micros),
        json_object('nonce', NEW.nonce, 'purpose', NEW.purpose, 'holder', NEW.holder, 'attempt_id', NEW.attempt_id, 'state', NEW.state, 'snapshot_id', NEW.snapshot_id, 'reason', NEW.reason, 'at_micros', NEW.at_micros));
END
--;
CREATE TRIGGER tokens_no_delete BEFORE DELETE ON tokens
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of tokens are never deleted');
END
--;
CREATE TRIGGER tokens_fixed BEFORE UPDATE ON tokens
WHEN NEW.token_id IS NOT OLD.token_id
    OR NEW.secret_sha256 IS NOT OLD.secret_sha256
    OR NEW.role IS NOT OLD.role
    OR NEW.domain IS NOT OLD.domain
    OR NEW.name IS NOT OLD.name
    OR NEW.attempt_id IS NOT OLD.attempt_id
    OR NEW.parent_id IS NOT OLD.parent_id
    OR NEW.issued_micros IS NOT OLD.issued_micros
    OR NEW.expires_micros IS NOT OLD.expires_micros
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: only replaced_micros, successor_id, revoked_micros, at_micros of tokens change');
END
--;
CREATE TRIGGER tokens_revoked_once BEFORE UPDATE ON tokens
WHEN OLD.revoked_micros IS NOT NULL AND (NEW.revoked_micros IS NULL OR NEW.revoked_micros > OLD.revoked_micros)
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: a revoked token stays revoked');
END
--;
CREATE TRIGGER tokens_replaced_once BEFORE UPDATE ON tokens
WHEN OLD.replaced_micros IS NOT NULL AND (NEW.replaced_micros IS NULL OR NEW.replaced_micros > OLD.replaced_micros)
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: a replaced token stays replaced');
END
--;
CREATE TRIGGER tokens_event_insert AFTER INSERT ON tokens
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, 'insert', 'tokens', CAST(NEW.token_id AS TEXT),
        NULL,
        json_object('token_id', NEW.token_id, 'role', NEW.role, 'domain', NEW.domain, 'name', NEW.name, 'attempt_id', NEW.attempt_id, 'parent_id', NEW.parent_id, 'issued_micros', NEW.issued_micros, 'expires_micros', NEW.expires_micros, 'replaced_micros', NEW.replaced_micros, 'successor_id', NEW.successor_id, 'revoked_micros', NEW.revoked_micros, 'at_micros', NEW.at_micros));
END
--;
CREATE TRIGGER tokens_event_update AFTER UPDATE ON tokens
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, 'update', 'tokens', CAST(NEW.token_id AS TEXT),
        json_object('token_id', OLD.token_id, 'role', OLD.role, 'domain', OLD.domain, 'name', OLD.name, 'attempt_id', OLD.attempt_id, 'parent_id', OLD.parent_id, 'issued_micros', OLD.issued_micros, 'expires_micros', OLD.expires_micros, 'replaced_micros', OLD.replaced_micros, 'successor_id', OLD.successor_id, 'revoked_micros', OLD.revoked_micros, 'at_micros', OLD.at_micros),
        json_object('token_id', NEW.token_id, 'role', NEW.role, 'domain', NEW.domain, 'name', NEW.name, 'attempt_id', NEW.attempt_id, 'parent_id', NEW.parent_id, 'issued_micros', NEW.issued_micros, 'expires_micros', NEW.expires_micros, 'replaced_micros', NEW.replaced_micros, 'successor_id', NEW.successor_id, 'revoked_micros', NEW.revoked_micros, 'at_micros', NEW.at_micros));
END
--;
CREATE TRIGGER announced_attempts_no_delete BEFORE DELETE ON announced_attempts
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of announced_attempts are never deleted');
END
--;
CREATE TRIGGER announced_attempts_no_update BEFORE UPDATE ON announced_attempts
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of announced_attempts never change');
END
--;
CREATE TRIGGER announced_attempts_event_insert AFTER INSERT ON announced_attempts
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, 'insert', 'announced_attempts', CAST(NEW.announced_id AS TEXT) || '/' || CAST(NEW.attempt_id AS TEXT),
        NULL,
        json_object('announced_id', NEW.announced_id, 'attempt_id', NEW.attempt_id, 'nonce', NEW.nonce, 'at_micros', NEW.at_micros));
END
--;
CREATE TRIGGER challenges_no_delete BEFORE DELETE ON challenges
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of challenges are never deleted');
END
--;
CREATE TRIGGER challenges_no_update BEFORE UPDATE ON challenges
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of challenges never change');
END
--;
CREATE TRIGGER challenges_event_insert AFTER INSERT ON challenges
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, 'insert', 'challenges', CAST(NEW.nonce AS TEXT),
        NULL,
        json_object('nonce', NEW.nonce, 'attestor', NEW.attestor, 'epoch', NEW.epoch, 'request', NEW.request, 'expires_micros', NEW.expires_micros, 'at_micros', NEW.at_micros));
END
--;
CREATE TRIGGER proofs_no_delete BEFORE DELETE ON proofs
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of proofs are never deleted');
END
--;
CREATE TRIGGER proofs_no_update BEFORE UPDATE ON proofs
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of proofs never change');
END
--;
CREATE TRIGGER proofs_event_insert AFTER INSERT ON proofs
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, 'insert', 'proofs', CAST(NEW.proof_id AS TEXT),
        NULL,
        json_object('proof_id', NEW.proof_id, 'workload_id', NEW.workload_id, 'domain', NEW.domain, 'attempt_id', NEW.attempt_id, 'nonce', NEW.nonce, 'held_nonce', NEW.held_nonce, 'verdict', NEW.verdict, 'notary', NEW.notary, 'expires_micros', NEW.expires_micros, 'summary', NEW.summary, 'context', NEW.context, 'at_micros', NEW.at_micros));
END
--;
CREATE TRIGGER protections_no_delete BEFORE DELETE ON protections
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of protections are never deleted');
END
--;
CREATE TRIGGER protections_no_update BEFORE UPDATE ON protections
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of protections never change');
END
--;
CREATE TRIGGER protections_event_insert AFTER INSERT ON protections
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, 'insert', 'protections', CAST(NEW.protection_id AS TEXT),
        NULL,
        json_object('protection_id', NEW.protection_id, 'action', NEW.action, 'table_uuid', NEW.table_uuid, 'namespace_id', NEW.namespace_id, 'name', NEW.name, 'domain', NEW.domain, 'contract_sha256', NEW.contract_sha256, 'operator', NEW.operator, 'nonce', NEW.nonce, 'found_sha256', NEW.found_sha256, 'at_micros', NEW.at_micros));
END
--;
CREATE TRIGGER published_no_delete BEFORE DELETE ON published
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of published are never deleted');
END
--;
CREATE TRIGGER published_no_update BEFORE UPDATE ON published
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of published never change');
END
--;
CREATE TRIGGER published_event_insert AFTER INSERT ON published
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, 'insert', 'published', CAST(NEW.workload_id AS TEXT) || '/' || CAST(NEW.chunk_id AS TEXT),
        NULL,
        json_object('workload_id', NEW.workload_id, 'chunk_id', NEW.chunk_id, 'attempt_id', NEW.attempt_id, 'nonce', NEW.nonce, 'snapshot_id', NEW.snapshot_id, 'rows_added', NEW.rows_added, 'files_added', NEW.files_added, 'rows_removed', NEW.rows_removed, 'files_removed', NEW.files_removed, 'at_micros', NEW.at_micros));
END
--;
CREATE TRIGGER quarantine_removals_no_delete BEFORE DELETE ON quarantine_removals
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of quarantine_removals are never deleted');
END
--;
CREATE TRIGGER quarantine_removals_fixed BEFORE UPDATE ON quarantine_removals
WHEN NEW.attempt_id IS NOT OLD.attempt_id
    OR NEW.token_id IS NOT OLD.token_id
    OR NEW.name IS NOT OLD.name
    OR NEW.reason IS NOT OLD.reason
    OR NEW.files IS NOT OLD.files
    OR NEW.bytes IS NOT OLD.bytes
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: only done, at_micros of quarantine_removals change');
END
--;
CREATE TRIGGER quarantine_removals_event_insert AFTER INSERT ON quarantine_removals
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, 'insert', 'quarantine_removals', CAST(NEW.attempt_id AS TEXT),
        NULL,
        json_object('attempt_id', NEW.attempt_id, 'token_id', NEW.token_id, 'name', NEW.name, 'reason', NEW.reason, 'files', NEW.files, 'bytes', NEW.bytes, 'done', NEW.done, 'at_micros', NEW.at_micros));
END
--;
CREATE TRIGGER quarantine_removals_event_update AFTER UPDATE ON quarantine_removals
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, 'update', 'quarantine_removals', CAST(NEW.attempt_id AS TEXT),
        json_object('attempt_id', OLD.attempt_id, 'token_id', OLD.token_id, 'name', OLD.name, 'reason', OLD.reason, 'files', OLD.files, 'bytes', OLD.bytes, 'done', OLD.done, 'at_micros', OLD.at_micros),
        json_object('attempt_id', NEW.attempt_id, 'token_id', NEW.token_id, 'name', NEW.name, 'reason', NEW.reason, 'files', NEW.files, 'bytes', NEW.bytes, 'done', NEW.done, 'at_micros', NEW.at_micros));
END
--;
CREATE TRIGGER table_migrations_no_delete BEFORE DELETE ON table_migrations
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of table_migrations are never deleted');
END
--;
CREATE TRIGGER table_migrations_no_update BEFORE UPDATE ON table_migrations
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of table_migrations never change');
END
--;
CREATE TRIGGER table_migrations_event_insert AFTER INSERT ON table_migrations
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, 'insert', 'table_migrations', CAST(NEW.migration_id AS TEXT),
        NULL,
        json_object('migration_id', NEW.migration_id, 'table_uuid', NEW.table_uuid, 'name', NEW.name, 'domain', NEW.domain, 'contract_sha256', NEW.contract_sha256, 'metadata_sha256', NEW.metadata_sha256, 'operator', NEW.operator, 'nonce', NEW.nonce, 'at_micros', NEW.at_micros));
END
--;
CREATE TRIGGER verified_no_delete BEFORE DELETE ON verified
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of verified are never deleted');
END
--;
CREATE TRIGGER verified_fixed BEFORE UPDATE ON verified
WHEN NEW.nonce IS NOT OLD.nonce
    OR NEW.attempt_id IS NOT OLD.attempt_id
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: only core_sha256, location, sha256, files, rows, findings, findings_more, located, at_micros of verified change');
END
--;
CREATE TRIGGER verified_event_insert AFTER INSERT ON verified
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, 'insert', 'verified', CAST(NEW.nonce AS TEXT),
        NULL,
        json_object('nonce', NEW.nonce, 'attempt_id', NEW.attempt_id, 'core_sha256', NEW.core_sha256, 'location', NEW.location, 'sha256', NEW.sha256, 'files', NEW.files, 'rows', NEW.rows, 'findings_more', NEW.findings_more, 'at_micros', NEW.at_micros));
END
--;
CREATE TRIGGER verified_event_update AFTER UPDATE ON verified
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, 'update', 'verified', CAST(NEW.nonce AS TEXT),
        json_object('nonce', OLD.nonce, 'attempt_id', OLD.attempt_id, 'core_sha256', OLD.core_sha256, 'location', OLD.location, 'sha256', OLD.sha256, 'files', OLD.files, 'rows', OLD.rows, 'findings_more', OLD.findings_more, 'at_micros', OLD.at_micros),
        json_object('nonce', NEW.nonce, 'attempt_id', NEW.attempt_id, 'core_sha256', NEW.core_sha256, 'location', NEW.location, 'sha256', NEW.sha256, 'files', NEW.files, 'rows', NEW.rows, 'findings_more', NEW.findings_more, 'at_micros', NEW.at_micros));
END
--;
CREATE TRIGGER attestations_no_delete BEFORE DELETE ON attestations
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of attestations are never deleted');
END
--;
CREATE TRIGGER attestations_no_update BEFORE UPDATE ON attestations
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of attestations never change');
END
--;
CREATE TRIGGER attestations_event_insert AFTER INSERT ON attestations
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, 'insert', 'attestations', CAST(NEW.attestation_id AS TEXT),
        NULL,
        json_object('attestation_id', NEW.attestation_id, 'nonce', NEW.nonce, 'attestor', NEW.attestor, 'catalog', NEW.catalog, 'table_uuid', NEW.table_uuid, 'snapshot_id', NEW.snapshot_id, 'at_micros', NEW.at_micros));
END
--;
CREATE TRIGGER overrides_no_delete BEFORE DELETE ON overrides
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of overrides are never deleted');
END
--;
CREATE TRIGGER overrides_no_update BEFORE UPDATE ON overrides
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: rows of overrides never change');
END
--;
CREATE TRIGGER overrides_event_insert AFTER INSERT ON overrides
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, 'insert', 'overrides', CAST(NEW.override_id AS TEXT),
        NULL,
        json_object('override_id', NEW.override_id, 'fail_proof_id', NEW.fail_proof_id, 'nonce', NEW.nonce, 'operator', NEW.operator, 'expires_micros', NEW.expires_micros, 'at_micros', NEW.at_micros));
END
--;
CREATE TRIGGER claims_overlap BEFORE INSERT ON claims
WHEN EXISTS (SELECT 1 FROM claims c
    WHERE c.target = NEW.target AND c.workload_id <> NEW.workload_id
      AND (c.claim_column IS NULL OR NEW.claim_column IS NULL
           OR c.claim_column <> NEW.claim_column OR c.column_kind <> NEW.column_kind
           OR ((c.upper_bound IS NULL OR NEW.lower_bound < c.upper_bound)
               AND (NEW.upper_bound IS NULL OR c.lower_bound < NEW.upper_bound))))
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: claims overlap');
END
--;
CREATE TRIGGER attempts_published BEFORE UPDATE ON attempts
WHEN NEW.state = 'COMMITTED' AND NOT EXISTS (SELECT 1 FROM published p JOIN nonces n ON n.nonce = p.nonce
    WHERE p.workload_id = NEW.workload_id AND p.chunk_id = NEW.chunk_id AND p.attempt_id = NEW.attempt_id
      AND n.state = 'COMMITTED')
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: a committed attempt is published');
END
--;
CREATE TRIGGER log_entries_next BEFORE INSERT ON log_entries
WHEN NEW.entry_index <> (SELECT coalesce(max(entry_index) + 1, 0) FROM log_entries)
BEGIN
    SELECT RAISE(ABORT, 'pvdm rule: log entries have no gap');
END
--;
CREATE VIEW iceberg_tables AS
SELECT 'pvdm' AS catalog_name,
    (SELECT group_concat(value, '.') FROM (SELECT value FROM json_each(n.levels) ORDER BY key)) AS table_namespace,
    t.name AS table_name,
    t.metadata_location AS metadata_location,
    t.previous_location AS previous_metadata_location,
    'TABLE' AS iceberg_type
FROM tables t JOIN namespaces n ON n.namespace_id = t.namespace_id
WHERE t.dropped_micros IS NULL AND t.upstream IS NULL AND NOT EXISTS (SELECT 1 FROM json_each(n.levels) WHERE instr(value, '.') > 0)
UNION ALL
SELECT 'pvdm', (SELECT group_concat(value, '.') FROM (SELECT value FROM json_each(n.levels) ORDER BY key)), v.name, v.metadata_location, NULL, 'VIEW'
FROM views v JOIN namespaces n ON n.namespace_id = v.namespace_id
WHERE v.dropped_micros IS NULL AND NOT EXISTS (SELECT 1 FROM json_each(n.levels) WHERE instr(value, '.') > 0)
--;
CREATE VIEW iceberg_namespace_properties AS
SELECT 'pvdm' AS catalog_name,
    (SELECT group_concat(value, '.') FROM (SELECT value FROM json_each(n.levels) ORDER BY key)) AS namespace,
    key AS property_key,
    value AS property_value
FROM namespaces n, json_each(n.properties)
WHERE n.dropped_micros IS NULL AND NOT EXISTS (SELECT 1 FROM json_each(n.levels) WHERE instr(value, '.') > 0)
UNION ALL
SELECT 'pvdm', (SELECT group_concat(value, '.') FROM (SELECT value FROM json_each(n.levels) ORDER BY key)), 'exists', 'true'
FROM namespaces n
WHERE n.dropped_micros IS NULL AND n.properties = '{}' AND NOT EXISTS (SELECT 1 FROM json_each(n.levels) WHERE instr(value, '.') > 0)
--;
CREATE VIEW iceberg_left_out AS
SELECT DISTINCT 'pvdm' AS catalog_name,
    n.levels AS levels,
    (SELECT count(*) FROM tables t WHERE t.namespace_id = n.namespace_id AND t.dropped_micros IS NULL
        AND t.upstream IS NULL) AS table_count,
    (SELECT count(*) FROM views v WHERE v.namespace_id = n.namespace_id AND v.dropped_micros IS NULL) AS view_count
FROM namespaces n
WHERE n.dropped_micros IS NULL AND EXISTS (SELECT 1 FROM json_each(n.levels) WHERE instr(value, '.') > 0)
