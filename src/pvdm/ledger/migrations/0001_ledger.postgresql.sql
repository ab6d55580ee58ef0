CREATE TABLE catalog_requests (
	identity TEXT NOT NULL,
	idempotency_key TEXT NOT NULL,
	request_sha256 TEXT NOT NULL,
	status BIGINT NOT NULL,
	answer TEXT NOT NULL,
	at_micros BIGINT NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (identity, idempotency_key)
)
--;
CREATE INDEX catalog_requests_at_micros ON catalog_requests (at_micros)
--;
CREATE TABLE claims (
	workload_id TEXT NOT NULL,
	target TEXT NOT NULL,
	claim_column TEXT,
	column_kind TEXT,
	lower_bound BYTEA NOT NULL,
	upper_bound BYTEA,
	extent TEXT NOT NULL,
	at_micros BIGINT NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (workload_id, target),
	CONSTRAINT extent_not_empty CHECK (upper_bound IS NULL OR lower_bound < upper_bound),
	CONSTRAINT column_typed CHECK ((claim_column IS NULL) = (column_kind IS NULL))
)
--;
CREATE INDEX claims_target ON claims (target)
--;
CREATE TABLE common_settings (
	settings_id BIGINT NOT NULL CONSTRAINT one_row CHECK (settings_id = 1),
	notary TEXT NOT NULL,
	origin TEXT NOT NULL,
	catalog TEXT,
	warehouse TEXT,
	metadata TEXT,
	vault TEXT,
	at_micros BIGINT NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (settings_id)
)
--;
CREATE TABLE doomed_files (
	name TEXT NOT NULL,
	table_uuid TEXT NOT NULL,
	at_micros BIGINT NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (name)
)
--;
CREATE TABLE epoch_books (
	revision BIGINT NOT NULL,
	book BYTEA NOT NULL,
	at_micros BIGINT NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (revision)
)
--;
CREATE TABLE events (
	event_id BIGINT GENERATED ALWAYS AS IDENTITY,
	at_micros BIGINT NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	kind TEXT NOT NULL,
	subject TEXT NOT NULL,
	row_key TEXT NOT NULL,
	"old" TEXT,
	"new" TEXT,
	PRIMARY KEY (event_id)
)
--;
CREATE INDEX events_at_micros ON events (at_micros)
--;
CREATE INDEX events_subject ON events (subject, row_key)
--;
CREATE TABLE handles (
	handle_sha256 TEXT NOT NULL,
	job_id TEXT NOT NULL,
	redemptions BIGINT NOT NULL,
	state TEXT NOT NULL,
	context TEXT,
	at_micros BIGINT NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (handle_sha256),
	CONSTRAINT handle_sha256_hex CHECK (handle_sha256 ~ '^[0-9a-f]{64}$'),
	CONSTRAINT state_known CHECK (state IN ('ISSUED', 'FROZEN', 'ENDED')),
	CONSTRAINT handles_job_once UNIQUE (job_id)
)
--;
CREATE TABLE log_checkpoints (
	size BIGINT NOT NULL,
	note BYTEA NOT NULL,
	PRIMARY KEY (size)
)
--;
CREATE TABLE log_entries (
	entry_index BIGINT NOT NULL,
	entry BYTEA NOT NULL,
	PRIMARY KEY (entry_index)
)
--;
CREATE TABLE log_hashes (
	level BIGINT NOT NULL,
	position BIGINT NOT NULL,
	hash BYTEA NOT NULL,
	PRIMARY KEY (level, position),
	CONSTRAINT hash_length CHECK (length(hash) = 32)
)
--;
CREATE TABLE namespaces (
	namespace_id TEXT NOT NULL,
	levels TEXT NOT NULL,
	parent TEXT NOT NULL,
	domain TEXT NOT NULL,
	properties TEXT NOT NULL,
	protected_by TEXT,
	dropped_micros BIGINT,
	at_micros BIGINT NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (namespace_id),
	CONSTRAINT namespace_id_hex CHECK (namespace_id ~ '^[0-9a-f]{32}$')
)
--;
CREATE UNIQUE INDEX namespaces_levels_once ON namespaces (levels) WHERE dropped_micros IS NULL
--;
CREATE INDEX namespaces_parent ON namespaces (parent)
--;
CREATE TABLE restores (
	restore_id BIGINT NOT NULL,
	operator TEXT NOT NULL,
	reason TEXT NOT NULL,
	backup_size BIGINT NOT NULL,
	outside_note BYTEA NOT NULL,
	epoch_before BIGINT NOT NULL,
	log_keys TEXT NOT NULL,
	outcome TEXT NOT NULL,
	finished_micros BIGINT,
	at_micros BIGINT NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (restore_id)
)
--;
CREATE TABLE target_sources (
	target TEXT NOT NULL,
	source_name TEXT NOT NULL,
	source TEXT NOT NULL,
	workload_id TEXT NOT NULL,
	at_micros BIGINT NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (target, source_name)
)
--;
CREATE TABLE vouched (
	table_uuid TEXT NOT NULL,
	snapshot_id TEXT NOT NULL,
	facts_sha256 TEXT NOT NULL,
	structure_sha256 TEXT NOT NULL,
	at_micros BIGINT NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (table_uuid, snapshot_id, facts_sha256),
	CONSTRAINT facts_sha256_hex CHECK (facts_sha256 ~ '^[0-9a-f]{64}$'),
	CONSTRAINT structure_sha256_hex CHECK (structure_sha256 ~ '^[0-9a-f]{64}$')
)
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
	epoch BIGINT NOT NULL,
	newer_columns TEXT NOT NULL,
	state TEXT NOT NULL,
	reason TEXT NOT NULL,
	at_micros BIGINT NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (workload_id),
	CONSTRAINT state_known CHECK (state IN ('OPEN', 'COMPLETE', 'ABANDONED')),
	CONSTRAINT atomicity_known CHECK (atomicity IN ('chunk', 'workload')),
	CONSTRAINT workload_id_length CHECK (length(workload_id) BETWEEN 1 AND 128),
	CONSTRAINT contract_hash_hex CHECK (contract_hash ~ '^[0-9a-f]{64}$'),
	CONSTRAINT plan_hash_hex CHECK (plan_hash ~ '^[0-9a-f]{64}$')
)
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
	at_micros BIGINT NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (announced_id),
	CONSTRAINT state_known CHECK (state IN ('OPEN', 'DONE', 'RELEASED')),
	CONSTRAINT announced_id_hex CHECK (announced_id ~ '^[0-9a-f]{32}$'),
	FOREIGN KEY(workload_id) REFERENCES workloads (workload_id)
)
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
	ordinal BIGINT NOT NULL,
	definition TEXT NOT NULL,
	at_micros BIGINT NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (workload_id, chunk_id),
	CONSTRAINT chunks_ordinal_once UNIQUE (workload_id, ordinal),
	FOREIGN KEY(workload_id) REFERENCES workloads (workload_id)
)
--;
CREATE TABLE handle_workers (
	handle_sha256 TEXT NOT NULL,
	worker TEXT NOT NULL,
	at_micros BIGINT NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (handle_sha256, worker),
	FOREIGN KEY(handle_sha256) REFERENCES handles (handle_sha256)
)
--;
CREATE TABLE statements (
	statement_id TEXT NOT NULL,
	kind TEXT NOT NULL,
	envelope BYTEA NOT NULL,
	log_index BIGINT NOT NULL,
	at_micros BIGINT NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (statement_id),
	CONSTRAINT statement_id_hex CHECK (statement_id ~ '^[0-9a-f]{64}$'),
	CONSTRAINT kind_known CHECK (kind IN ('proof', 'receipt', 'workload', 'break-glass', 'epoch', 'trust-root', 'protection', 'migration', 'source-attestation', 'restore')),
	CONSTRAINT statements_log_index_once UNIQUE (log_index),
	FOREIGN KEY(log_index) REFERENCES log_entries (entry_index)
)
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
	place TEXT COLLATE "C" NOT NULL,
	metadata_location TEXT NOT NULL,
	metadata_sha256 TEXT NOT NULL,
	previous_location TEXT,
	revision BIGINT NOT NULL,
	upstream TEXT,
	contract_hash TEXT,
	protected_micros BIGINT,
	dropped_micros BIGINT,
	at_micros BIGINT NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (table_id),
	CONSTRAINT table_id_hex CHECK (table_id ~ '^[0-9a-f]{32}$'),
	CONSTRAINT metadata_sha256_hex CHECK (metadata_sha256 ~ '^[0-9a-f]{64}$'),
	FOREIGN KEY(namespace_id) REFERENCES namespaces (namespace_id)
)
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
	revision BIGINT NOT NULL,
	dropped_micros BIGINT,
	at_micros BIGINT NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (view_id),
	CONSTRAINT view_id_hex CHECK (view_id ~ '^[0-9a-f]{32}$'),
	CONSTRAINT metadata_sha256_hex CHECK (metadata_sha256 ~ '^[0-9a-f]{64}$'),
	FOREIGN KEY(namespace_id) REFERENCES namespaces (namespace_id)
)
--;
CREATE UNIQUE INDEX views_name_once ON views (namespace_id, name) WHERE dropped_micros IS NULL
--;
CREATE UNIQUE INDEX views_uuid_once ON views (view_uuid) WHERE dropped_micros IS NULL
--;
CREATE TABLE attempts (
	attempt_id TEXT NOT NULL,
	workload_id TEXT NOT NULL,
	chunk_id TEXT NOT NULL,
	number BIGINT NOT NULL CONSTRAINT number_positive CHECK (number >= 1),
	branch TEXT NOT NULL,
	prefix TEXT NOT NULL,
	state TEXT NOT NULL,
	staged_snapshot_id TEXT,
	reason TEXT NOT NULL,
	at_micros BIGINT NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (attempt_id),
	CONSTRAINT state_known CHECK (state IN ('STAGING', 'VERIFYING', 'COMMITTING', 'COMMITTED', 'VERIFICATION_FAILED', 'ROLLED_BACK')),
	CONSTRAINT attempt_id_hex CHECK (attempt_id ~ '^[0-9a-f]{32}$'),
	FOREIGN KEY(workload_id, chunk_id) REFERENCES chunks (workload_id, chunk_id),
	CONSTRAINT attempts_number_once UNIQUE (workload_id, chunk_id, number),
	CONSTRAINT attempts_of_chunk UNIQUE (workload_id, chunk_id, attempt_id),
	CONSTRAINT attempts_prefix_once UNIQUE (prefix)
)
--;
CREATE INDEX attempts_at_micros ON attempts (at_micros)
--;
CREATE UNIQUE INDEX attempts_one_live ON attempts (workload_id, chunk_id) WHERE state IN ('STAGING', 'VERIFYING', 'COMMITTING')
--;
CREATE TABLE contracts (
	contract_sha256 TEXT NOT NULL,
	body BYTEA NOT NULL,
	statement_id TEXT NOT NULL,
	at_micros BIGINT NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (contract_sha256),
	CONSTRAINT contract_sha256_hex CHECK (contract_sha256 ~ '^[0-9a-f]{64}$'),
	FOREIGN KEY(statement_id) REFERENCES statements (statement_id)
)
--;
CREATE TABLE lost_claims (
	receipt_id TEXT NOT NULL,
	workload_id TEXT NOT NULL,
	target TEXT NOT NULL,
	released_by TEXT,
	reason TEXT NOT NULL,
	at_micros BIGINT NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (receipt_id),
	FOREIGN KEY(receipt_id) REFERENCES statements (statement_id)
)
--;
CREATE INDEX lost_claims_target ON lost_claims (target)
--;
CREATE TABLE receipts (
	receipt_id TEXT NOT NULL,
	workload_id TEXT NOT NULL,
	table_uuid TEXT NOT NULL,
	snapshot_id TEXT NOT NULL,
	at_micros BIGINT NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (receipt_id),
	CONSTRAINT receipts_snapshot_once UNIQUE (table_uuid, snapshot_id),
	FOREIGN KEY(receipt_id) REFERENCES statements (statement_id)
)
--;
CREATE INDEX receipts_workload_id ON receipts (workload_id)
--;
CREATE TABLE spent (
	workload_id TEXT NOT NULL,
	chunk_id TEXT NOT NULL,
	snapshot_id TEXT NOT NULL,
	receipt_id TEXT NOT NULL,
	at_micros BIGINT NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (workload_id, chunk_id),
	FOREIGN KEY(receipt_id) REFERENCES statements (statement_id)
)
--;
CREATE TABLE staging_makers (
	table_id TEXT NOT NULL,
	kind TEXT NOT NULL,
	name TEXT NOT NULL,
	maker TEXT NOT NULL,
	at_micros BIGINT NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (table_id, kind, name),
	CONSTRAINT kind_known CHECK (kind IN ('branch', 'snapshot')),
	FOREIGN KEY(table_id) REFERENCES tables (table_id)
)
--;
CREATE TABLE disposals (
	attempt_id TEXT NOT NULL,
	outcome TEXT NOT NULL,
	removed BIGINT NOT NULL,
	kept BIGINT NOT NULL,
	note TEXT NOT NULL,
	at_micros BIGINT NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (attempt_id),
	CONSTRAINT outcome_known CHECK (outcome IN ('published', 'quarantined', 'deleted', 'left')),
	FOREIGN KEY(attempt_id) REFERENCES attempts (attempt_id)
)
--;
CREATE TABLE nonces (
	nonce TEXT NOT NULL,
	purpose TEXT NOT NULL,
	holder TEXT NOT NULL,
	attempt_id TEXT,
	state TEXT NOT NULL,
	snapshot_id TEXT,
	reason TEXT NOT NULL,
	at_micros BIGINT NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (nonce),
	CONSTRAINT state_known CHECK (state IN ('RESERVED', 'COMMITTED', 'ABORTED')),
	CONSTRAINT nonce_hex CHECK (nonce ~ '^[0-9a-f]{32}$'),
	CONSTRAINT purpose_known CHECK (purpose IN ('attempt', 'break-glass', 'source-attestation', 'protection', 'migration')),
	CONSTRAINT attempt_has_nonce CHECK ((purpose = 'attempt') = (attempt_id IS NOT NULL)),
	CONSTRAINT committed_as CHECK (state <> 'COMMITTED' OR attempt_id IS NULL OR snapshot_id IS NOT NULL),
	CONSTRAINT nonces_of_attempt UNIQUE (attempt_id, nonce),
	FOREIGN KEY(attempt_id) REFERENCES attempts (attempt_id)
)
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
	issued_micros BIGINT NOT NULL,
	expires_micros BIGINT NOT NULL,
	replaced_micros BIGINT,
	successor_id TEXT,
	revoked_micros BIGINT,
	at_micros BIGINT NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (token_id),
	CONSTRAINT token_id_hex CHECK (token_id ~ '^[0-9a-f]{32}$'),
	CONSTRAINT secret_sha256_hex CHECK (secret_sha256 ~ '^[0-9a-f]{64}$'),
	CONSTRAINT role_known CHECK (role IN ('producer', 'publisher', 'consumer', 'attestor', 'operator', 'auditor', 'worker', 'steward')),
	CONSTRAINT tokens_secret_once UNIQUE (secret_sha256),
	CONSTRAINT tokens_replaced_by CHECK ((replaced_micros IS NULL) = (successor_id IS NULL)),
	FOREIGN KEY(attempt_id) REFERENCES attempts (attempt_id),
	FOREIGN KEY(parent_id) REFERENCES tokens (token_id),
	FOREIGN KEY(successor_id) REFERENCES tokens (token_id)
)
--;
CREATE TABLE announced_attempts (
	announced_id TEXT NOT NULL,
	attempt_id TEXT NOT NULL,
	nonce TEXT NOT NULL,
	at_micros BIGINT NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (announced_id, attempt_id),
	FOREIGN KEY(attempt_id, nonce) REFERENCES nonces (attempt_id, nonce),
	FOREIGN KEY(announced_id) REFERENCES announced (announced_id)
)
--;
CREATE INDEX announced_attempts_attempt_id ON announced_attempts (attempt_id)
--;
CREATE TABLE challenges (
	nonce TEXT NOT NULL,
	attestor TEXT NOT NULL,
	epoch BIGINT NOT NULL,
	request TEXT NOT NULL,
	expires_micros BIGINT NOT NULL,
	at_micros BIGINT NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (nonce),
	FOREIGN KEY(nonce) REFERENCES nonces (nonce)
)
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
	expires_micros BIGINT NOT NULL,
	summary TEXT NOT NULL,
	context TEXT,
	at_micros BIGINT NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (proof_id),
	CONSTRAINT verdict_known CHECK (verdict IN ('PASS', 'FAIL')),
	FOREIGN KEY(attempt_id, held_nonce) REFERENCES nonces (attempt_id, nonce),
	CONSTRAINT one_nonce CHECK (held_nonce IS NULL OR held_nonce = nonce),
	CONSTRAINT proofs_notary_once UNIQUE (nonce, notary),
	FOREIGN KEY(proof_id) REFERENCES statements (statement_id)
)
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
	at_micros BIGINT NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (protection_id),
	CONSTRAINT action_known CHECK (action IN ('protect', 'unprotect')),
	CONSTRAINT contract_sha256_hex CHECK (contract_sha256 ~ '^[0-9a-f]{64}$'),
	CONSTRAINT found_sha256_hex CHECK (found_sha256 ~ '^[0-9a-f]{64}$'),
	CONSTRAINT one_target CHECK ((table_uuid IS NULL) <> (namespace_id IS NULL)),
	CONSTRAINT protections_nonce_once UNIQUE (nonce),
	FOREIGN KEY(protection_id) REFERENCES statements (statement_id),
	FOREIGN KEY(nonce) REFERENCES nonces (nonce)
)
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
	rows_added BIGINT,
	files_added BIGINT,
	rows_removed BIGINT,
	files_removed BIGINT,
	at_micros BIGINT NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (workload_id, chunk_id),
	FOREIGN KEY(workload_id, chunk_id, attempt_id) REFERENCES attempts (workload_id, chunk_id, attempt_id),
	FOREIGN KEY(attempt_id, nonce) REFERENCES nonces (attempt_id, nonce),
	CONSTRAINT published_nonce_once UNIQUE (nonce)
)
--;
CREATE INDEX published_at_micros ON published (at_micros)
--;
CREATE TABLE quarantine_removals (
	attempt_id TEXT NOT NULL,
	token_id TEXT NOT NULL,
	name TEXT NOT NULL,
	reason TEXT NOT NULL,
	files BIGINT NOT NULL,
	bytes BIGINT NOT NULL,
	done BIGINT NOT NULL,
	at_micros BIGINT NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (attempt_id),
	CONSTRAINT done_known CHECK (done IN (0, 1)),
	CONSTRAINT counts_not_negative CHECK (files >= 0 AND bytes >= 0),
	FOREIGN KEY(attempt_id) REFERENCES disposals (attempt_id)
)
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
	at_micros BIGINT NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (migration_id),
	CONSTRAINT contract_sha256_hex CHECK (contract_sha256 ~ '^[0-9a-f]{64}$'),
	CONSTRAINT table_migrations_nonce_once UNIQUE (nonce),
	FOREIGN KEY(migration_id) REFERENCES statements (statement_id),
	FOREIGN KEY(nonce) REFERENCES nonces (nonce)
)
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
	files BIGINT NOT NULL,
	rows BIGINT,
	findings TEXT NOT NULL,
	findings_more BIGINT NOT NULL,
	located TEXT,
	at_micros BIGINT NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (nonce),
	CONSTRAINT core_sha256_hex CHECK (core_sha256 ~ '^[0-9a-f]{64}$'),
	CONSTRAINT sha256_hex CHECK (sha256 ~ '^[0-9a-f]{64}$'),
	CONSTRAINT manifest_hashed CHECK ((location IS NULL) = (sha256 IS NULL)),
	FOREIGN KEY(attempt_id, nonce) REFERENCES nonces (attempt_id, nonce)
)
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
	at_micros BIGINT NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (attestation_id),
	CONSTRAINT attestations_nonce_once UNIQUE (nonce),
	FOREIGN KEY(attestation_id) REFERENCES statements (statement_id),
	FOREIGN KEY(nonce) REFERENCES challenges (nonce)
)
--;
CREATE INDEX attestations_source ON attestations (table_uuid, snapshot_id)
--;
CREATE TABLE overrides (
	override_id TEXT NOT NULL,
	fail_proof_id TEXT NOT NULL,
	nonce TEXT NOT NULL,
	operator TEXT NOT NULL,
	expires_micros BIGINT NOT NULL,
	at_micros BIGINT NOT NULL CONSTRAINT at_micros_not_negative CHECK (at_micros >= 0),
	PRIMARY KEY (override_id),
	CONSTRAINT overrides_nonce_once UNIQUE (nonce),
	FOREIGN KEY(override_id) REFERENCES statements (statement_id),
	FOREIGN KEY(fail_proof_id) REFERENCES proofs (proof_id),
	FOREIGN KEY(nonce) REFERENCES nonces (nonce)
)
--;
CREATE INDEX overrides_fail_proof_id ON overrides (fail_proof_id)
--;
CREATE FUNCTION pvdm_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'pvdm rule: %', TG_ARGV[0] USING ERRCODE = 'PV001';
END $$
--;
CREATE TRIGGER catalog_requests_no_update BEFORE UPDATE ON catalog_requests
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of catalog_requests never change')
--;
CREATE TRIGGER catalog_requests_no_truncate BEFORE TRUNCATE ON catalog_requests
FOR EACH STATEMENT
EXECUTE FUNCTION pvdm_refuse('rows of catalog_requests are never deleted')
--;
CREATE FUNCTION pvdm_catalog_requests_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, lower(TG_OP), 'catalog_requests', CAST(NEW.identity AS TEXT) || '/' || CAST(NEW.idempotency_key AS TEXT),
        CASE WHEN TG_OP = 'UPDATE' THEN json_build_object('identity', OLD.identity, 'idempotency_key', OLD.idempotency_key, 'request_sha256', OLD.request_sha256, 'status', OLD.status, 'at_micros', OLD.at_micros)::text END,
        json_build_object('identity', NEW.identity, 'idempotency_key', NEW.idempotency_key, 'request_sha256', NEW.request_sha256, 'status', NEW.status, 'at_micros', NEW.at_micros)::text);
    RETURN NULL;
END $$
--;
CREATE TRIGGER catalog_requests_event AFTER INSERT ON catalog_requests
FOR EACH ROW
EXECUTE FUNCTION pvdm_catalog_requests_event()
--;
CREATE TRIGGER claims_no_delete BEFORE DELETE ON claims
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of claims are never deleted')
--;
CREATE TRIGGER claims_no_update BEFORE UPDATE ON claims
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of claims never change')
--;
CREATE TRIGGER claims_no_truncate BEFORE TRUNCATE ON claims
FOR EACH STATEMENT
EXECUTE FUNCTION pvdm_refuse('rows of claims are never deleted')
--;
CREATE FUNCTION pvdm_claims_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, lower(TG_OP), 'claims', CAST(NEW.workload_id AS TEXT) || '/' || CAST(NEW.target AS TEXT),
        CASE WHEN TG_OP = 'UPDATE' THEN json_build_object('workload_id', OLD.workload_id, 'target', OLD.target, 'claim_column', OLD.claim_column, 'column_kind', OLD.column_kind, 'lower_bound', encode(OLD.lower_bound, 'hex'), 'upper_bound', encode(OLD.upper_bound, 'hex'), 'extent', OLD.extent, 'at_micros', OLD.at_micros)::text END,
        json_build_object('workload_id', NEW.workload_id, 'target', NEW.target, 'claim_column', NEW.claim_column, 'column_kind', NEW.column_kind, 'lower_bound', encode(NEW.lower_bound, 'hex'), 'upper_bound', encode(NEW.upper_bound, 'hex'), 'extent', NEW.extent, 'at_micros', NEW.at_micros)::text);
    RETURN NULL;
END $$
--;
CREATE TRIGGER claims_event AFTER INSERT ON claims
FOR EACH ROW
EXECUTE FUNCTION pvdm_claims_event()
--;
CREATE TRIGGER common_settings_no_delete BEFORE DELETE ON common_settings
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of common_settings are never deleted')
--;
CREATE TRIGGER common_settings_fixed BEFORE UPDATE ON common_settings
FOR EACH ROW
WHEN (NEW.settings_id IS DISTINCT FROM OLD.settings_id
    OR NEW.notary IS DISTINCT FROM OLD.notary)
EXECUTE FUNCTION pvdm_refuse('only origin, catalog, warehouse, metadata, vault, at_micros of common_settings change')
--;
CREATE TRIGGER common_settings_no_truncate BEFORE TRUNCATE ON common_settings
FOR EACH STATEMENT
EXECUTE FUNCTION pvdm_refuse('rows of common_settings are never deleted')
--;
CREATE FUNCTION pvdm_common_settings_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, lower(TG_OP), 'common_settings', CAST(NEW.settings_id AS TEXT),
        CASE WHEN TG_OP = 'UPDATE' THEN json_build_object('settings_id', OLD.settings_id, 'notary', OLD.notary, 'origin', OLD.origin, 'catalog', OLD.catalog, 'warehouse', OLD.warehouse, 'metadata', OLD.metadata, 'vault', OLD.vault, 'at_micros', OLD.at_micros)::text END,
        json_build_object('settings_id', NEW.settings_id, 'notary', NEW.notary, 'origin', NEW.origin, 'catalog', NEW.catalog, 'warehouse', NEW.warehouse, 'metadata', NEW.metadata, 'vault', NEW.vault, 'at_micros', NEW.at_micros)::text);
    RETURN NULL;
END $$
--;
CREATE TRIGGER common_settings_event AFTER INSERT OR UPDATE ON common_settings
FOR EACH ROW
EXECUTE FUNCTION pvdm_common_settings_event()
--;
CREATE TRIGGER doomed_files_no_delete BEFORE DELETE ON doomed_files
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of doomed_files are never deleted')
--;
CREATE TRIGGER doomed_files_no_update BEFORE UPDATE ON doomed_files
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of doomed_files never change')
--;
CREATE TRIGGER doomed_files_no_truncate BEFORE TRUNCATE ON doomed_files
FOR EACH STATEMENT
EXECUTE FUNCTION pvdm_refuse('rows of doomed_files are never deleted')
--;
CREATE TRIGGER epoch_books_no_delete BEFORE DELETE ON epoch_books
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of epoch_books are never deleted')
--;
CREATE TRIGGER epoch_books_no_update BEFORE UPDATE ON epoch_books
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of epoch_books never change')
--;
CREATE TRIGGER epoch_books_no_truncate BEFORE TRUNCATE ON epoch_books
FOR EACH STATEMENT
EXECUTE FUNCTION pvdm_refuse('rows of epoch_books are never deleted')
--;
CREATE FUNCTION pvdm_epoch_books_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, lower(TG_OP), 'epoch_books', CAST(NEW.revision AS TEXT),
        CASE WHEN TG_OP = 'UPDATE' THEN json_build_object('revision', OLD.revision, 'at_micros', OLD.at_micros)::text END,
        json_build_object('revision', NEW.revision, 'at_micros', NEW.at_micros)::text);
    RETURN NULL;
END $$
--;
CREATE TRIGGER epoch_books_event AFTER INSERT ON epoch_books
FOR EACH ROW
EXECUTE FUNCTION pvdm_epoch_books_event()
--;
CREATE TRIGGER events_no_delete BEFORE DELETE ON events
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of events are never deleted')
--;
CREATE TRIGGER events_no_update BEFORE UPDATE ON events
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of events never change')
--;
CREATE TRIGGER events_no_truncate BEFORE TRUNCATE ON events
FOR EACH STATEMENT
EXECUTE FUNCTION pvdm_refuse('rows of events are never deleted')
--;
CREATE TRIGGER handles_no_delete BEFORE DELETE ON handles
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of handles are never deleted')
--;
CREATE TRIGGER handles_fixed BEFORE UPDATE ON handles
FOR EACH ROW
WHEN (NEW.handle_sha256 IS DISTINCT FROM OLD.handle_sha256
    OR NEW.job_id IS DISTINCT FROM OLD.job_id
    OR NEW.redemptions IS DISTINCT FROM OLD.redemptions)
EXECUTE FUNCTION pvdm_refuse('only state, context, at_micros of handles change')
--;
CREATE TRIGGER handles_no_truncate BEFORE TRUNCATE ON handles
FOR EACH STATEMENT
EXECUTE FUNCTION pvdm_refuse('rows of handles are never deleted')
--;
CREATE FUNCTION pvdm_handles_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, lower(TG_OP), 'handles', CAST(NEW.handle_sha256 AS TEXT),
        CASE WHEN TG_OP = 'UPDATE' THEN json_build_object('handle_sha256', OLD.handle_sha256, 'job_id', OLD.job_id, 'redemptions', OLD.redemptions, 'state', OLD.state, 'context', OLD.context, 'at_micros', OLD.at_micros)::text END,
        json_build_object('handle_sha256', NEW.handle_sha256, 'job_id', NEW.job_id, 'redemptions', NEW.redemptions, 'state', NEW.state, 'context', NEW.context, 'at_micros', NEW.at_micros)::text);
    RETURN NULL;
END $$
--;
CREATE TRIGGER handles_event AFTER INSERT OR UPDATE ON handles
FOR EACH ROW
EXECUTE FUNCTION pvdm_handles_event()
--;
CREATE TRIGGER log_checkpoints_no_delete BEFORE DELETE ON log_checkpoints
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of log_checkpoints are never deleted')
--;
CREATE TRIGGER log_checkpoints_no_update BEFORE UPDATE ON log_checkpoints
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of log_checkpoints never change')
--;
CREATE TRIGGER log_checkpoints_no_truncate BEFORE TRUNCATE ON log_checkpoints
FOR EACH STATEMENT
EXECUTE FUNCTION pvdm_refuse('rows of log_checkpoints are never deleted')
--;
CREATE TRIGGER log_entries_no_delete BEFORE DELETE ON log_entries
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of log_entries are never deleted')
--;
CREATE TRIGGER log_entries_no_update BEFORE UPDATE ON log_entries
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of log_entries never change')
--;
CREATE TRIGGER log_entries_no_truncate BEFORE TRUNCATE ON log_entries
FOR EACH STATEMENT
EXECUTE FUNCTION pvdm_refuse('rows of log_entries are never deleted')
--;
CREATE TRIGGER log_hashes_no_delete BEFORE DELETE ON log_hashes
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of log_hashes are never deleted')
--;
CREATE TRIGGER log_hashes_no_update BEFORE UPDATE ON log_hashes
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of log_hashes never change')
--;
CREATE TRIGGER log_hashes_no_truncate BEFORE TRUNCATE ON log_hashes
FOR EACH STATEMENT
EXECUTE FUNCTION pvdm_refuse('rows of log_hashes are never deleted')
--;
CREATE TRIGGER namespaces_no_delete BEFORE DELETE ON namespaces
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of namespaces are never deleted')
--;
CREATE TRIGGER namespaces_fixed BEFORE UPDATE ON namespaces
FOR EACH ROW
WHEN (NEW.namespace_id IS DISTINCT FROM OLD.namespace_id
    OR NEW.levels IS DISTINCT FROM OLD.levels
    OR NEW.parent IS DISTINCT FROM OLD.parent
    OR NEW.domain IS DISTINCT FROM OLD.domain)
EXECUTE FUNCTION pvdm_refuse('only properties, protected_by, dropped_micros, at_micros of namespaces change')
--;
CREATE TRIGGER namespaces_no_truncate BEFORE TRUNCATE ON namespaces
FOR EACH STATEMENT
EXECUTE FUNCTION pvdm_refuse('rows of namespaces are never deleted')
--;
CREATE FUNCTION pvdm_namespaces_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, lower(TG_OP), 'namespaces', CAST(NEW.namespace_id AS TEXT),
        CASE WHEN TG_OP = 'UPDATE' THEN json_build_object('namespace_id', OLD.namespace_id, 'levels', OLD.levels, 'parent', OLD.parent, 'domain', OLD.domain, 'properties', OLD.properties, 'protected_by', OLD.protected_by, 'dropped_micros', OLD.dropped_micros, 'at_micros', OLD.at_micros)::text END,
        json_build_object('namespace_id', NEW.namespace_id, 'levels', NEW.levels, 'parent', NEW.parent, 'domain', NEW.domain, 'properties', NEW.properties, 'protected_by', NEW.protected_by, 'dropped_micros', NEW.dropped_micros, 'at_micros', NEW.at_micros)::text);
    RETURN NULL;
END $$
--;
CREATE TRIGGER namespaces_event AFTER INSERT OR UPDATE ON namespaces
FOR EACH ROW
EXECUTE FUNCTION pvdm_namespaces_event()
--;
CREATE TRIGGER restores_no_delete BEFORE DELETE ON restores
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of restores are never deleted')
--;
CREATE TRIGGER restores_fixed BEFORE UPDATE ON restores
FOR EACH ROW
WHEN (NEW.restore_id IS DISTINCT FROM OLD.restore_id
    OR NEW.operator IS DISTINCT FROM OLD.operator
    OR NEW.reason IS DISTINCT FROM OLD.reason
    OR NEW.backup_size IS DISTINCT FROM OLD.backup_size
    OR NEW.outside_note IS DISTINCT FROM OLD.outside_note
    OR NEW.epoch_before IS DISTINCT FROM OLD.epoch_before
    OR NEW.log_keys IS DISTINCT FROM OLD.log_keys
    OR NEW.outcome IS DISTINCT FROM OLD.outcome)
EXECUTE FUNCTION pvdm_refuse('only finished_micros, at_micros of restores change')
--;
CREATE TRIGGER restores_no_truncate BEFORE TRUNCATE ON restores
FOR EACH STATEMENT
EXECUTE FUNCTION pvdm_refuse('rows of restores are never deleted')
--;
CREATE FUNCTION pvdm_restores_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, lower(TG_OP), 'restores', CAST(NEW.restore_id AS TEXT),
        CASE WHEN TG_OP = 'UPDATE' THEN json_build_object('restore_id', OLD.restore_id, 'operator', OLD.operator, 'reason', OLD.reason, 'backup_size', OLD.backup_size, 'outside_note', encode(OLD.outside_note, 'hex'), 'epoch_before', OLD.epoch_before, 'log_keys', OLD.log_keys, 'outcome', OLD.outcome, 'finished_micros', OLD.finished_micros, 'at_micros', OLD.at_micros)::text END,
        json_build_object('restore_id', NEW.restore_id, 'operator', NEW.operator, 'reason', NEW.reason, 'backup_size', NEW.backup_size, 'outside_note', encode(NEW.outside_note, 'hex'), 'epoch_before', NEW.epoch_before, 'log_keys', NEW.log_keys, 'outcome', NEW.outcome, 'finished_micros', NEW.finished_micros, 'at_micros', NEW.at_micros)::text);
    RETURN NULL;
END $$
--;
CREATE TRIGGER restores_event AFTER INSERT OR UPDATE ON restores
FOR EACH ROW
EXECUTE FUNCTION pvdm_restores_event()
--;
CREATE TRIGGER target_sources_no_delete BEFORE DELETE ON target_sources
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of target_sources are never deleted')
--;
CREATE TRIGGER target_sources_fixed BEFORE UPDATE ON target_sources
FOR EACH ROW
WHEN (NEW.target IS DISTINCT FROM OLD.target
    OR NEW.source_name IS DISTINCT FROM OLD.source_name)
EXECUTE FUNCTION pvdm_refuse('only source, workload_id, at_micros of target_sources change')
--;
CREATE TRIGGER target_sources_no_truncate BEFORE TRUNCATE ON target_sources
FOR EACH STATEMENT
EXECUTE FUNCTION pvdm_refuse('rows of target_sources are never deleted')
--;
CREATE FUNCTION pvdm_target_sources_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, lower(TG_OP), 'target_sources', CAST(NEW.target AS TEXT) || '/' || CAST(NEW.source_name AS TEXT),
        CASE WHEN TG_OP = 'UPDATE' THEN json_build_object('target', OLD.target, 'source_name', OLD.source_name, 'source', OLD.source, 'workload_id', OLD.workload_id, 'at_micros', OLD.at_micros)::text END,
        json_build_object('target', NEW.target, 'source_name', NEW.source_name, 'source', NEW.source, 'workload_id', NEW.workload_id, 'at_micros', NEW.at_micros)::text);
    RETURN NULL;
END $$
--;
CREATE TRIGGER target_sources_event AFTER INSERT OR UPDATE ON target_sources
FOR EACH ROW
EXECUTE FUNCTION pvdm_target_sources_event()
--;
CREATE TRIGGER vouched_no_delete BEFORE DELETE ON vouched
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of vouched are never deleted')
--;
CREATE TRIGGER vouched_no_update BEFORE UPDATE ON vouched
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of vouched never change')
--;
CREATE TRIGGER vouched_no_truncate BEFORE TRUNCATE ON vouched
FOR EACH STATEMENT
EXECUTE FUNCTION pvdm_refuse('rows of vouched are never deleted')
--;
CREATE TRIGGER workloads_no_delete BEFORE DELETE ON workloads
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of workloads are never deleted')
--;
CREATE TRIGGER workloads_fixed BEFORE UPDATE ON workloads
FOR EACH ROW
WHEN (NEW.workload_id IS DISTINCT FROM OLD.workload_id
    OR NEW.contract_hash IS DISTINCT FROM OLD.contract_hash
    OR NEW.table_uuid IS DISTINCT FROM OLD.table_uuid
    OR NEW.source IS DISTINCT FROM OLD.source
    OR NEW.source_snapshot_id IS DISTINCT FROM OLD.source_snapshot_id
    OR NEW.parameters IS DISTINCT FROM OLD.parameters
    OR NEW.atomicity IS DISTINCT FROM OLD.atomicity
    OR NEW.domain IS DISTINCT FROM OLD.domain
    OR NEW.plan_hash IS DISTINCT FROM OLD.plan_hash
    OR NEW.epoch IS DISTINCT FROM OLD.epoch
    OR NEW.newer_columns IS DISTINCT FROM OLD.newer_columns)
EXECUTE FUNCTION pvdm_refuse('only state, reason, at_micros of workloads change')
--;
CREATE TRIGGER workloads_first_state BEFORE INSERT ON workloads
FOR EACH ROW
WHEN (NEW.state <> 'OPEN')
EXECUTE FUNCTION pvdm_refuse('workloads begin in OPEN')
--;
CREATE TRIGGER workloads_step BEFORE UPDATE ON workloads
FOR EACH ROW
WHEN (NOT ((OLD.state = 'OPEN' AND NEW.state = 'COMPLETE')
    OR (OLD.state = 'OPEN' AND NEW.state = 'ABANDONED')))
EXECUTE FUNCTION pvdm_refuse('no such step of the workload')
--;
CREATE TRIGGER workloads_no_truncate BEFORE TRUNCATE ON workloads
FOR EACH STATEMENT
EXECUTE FUNCTION pvdm_refuse('rows of workloads are never deleted')
--;
CREATE FUNCTION pvdm_workloads_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, lower(TG_OP), 'workloads', CAST(NEW.workload_id AS TEXT),
        CASE WHEN TG_OP = 'UPDATE' THEN json_build_object('workload_id', OLD.workload_id, 'contract_hash', OLD.contract_hash, 'table_uuid', OLD.table_uuid, 'source', OLD.source, 'source_snapshot_id', OLD.source_snapshot_id, 'parameters', OLD.parameters, 'atomicity', OLD.atomicity, 'domain', OLD.domain, 'plan_hash', OLD.plan_hash, 'epoch', OLD.epoch, 'newer_columns', OLD.newer_columns, 'state', OLD.state, 'reason', OLD.reason, 'at_micros', OLD.at_micros)::text END,
        json_build_object('workload_id', NEW.workload_id, 'contract_hash', NEW.contract_hash, 'table_uuid', NEW.table_uuid, 'source', NEW.source, 'source_snapshot_id', NEW.source_snapshot_id, 'parameters', NEW.parameters, 'atomicity', NEW.atomicity, 'domain', NEW.domain, 'plan_hash', NEW.plan_hash, 'epoch', NEW.epoch, 'newer_columns', NEW.newer_columns, 'state', NEW.state, 'reason', NEW.reason, 'at_micros', NEW.at_micros)::text);
    RETURN NULL;
END $$
--;
CREATE TRIGGER workloads_event AFTER INSERT OR UPDATE ON workloads
FOR EACH ROW
EXECUTE FUNCTION pvdm_workloads_event()
--;
CREATE TRIGGER announced_no_delete BEFORE DELETE ON announced
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of announced are never deleted')
--;
CREATE TRIGGER announced_fixed BEFORE UPDATE ON announced
FOR EACH ROW
WHEN (NEW.announced_id IS DISTINCT FROM OLD.announced_id
    OR NEW.table_uuid IS DISTINCT FROM OLD.table_uuid
    OR NEW.workload_id IS DISTINCT FROM OLD.workload_id
    OR NEW.snapshot_id IS DISTINCT FROM OLD.snapshot_id
    OR NEW.override_nonce IS DISTINCT FROM OLD.override_nonce
    OR NEW.holder IS DISTINCT FROM OLD.holder
    OR NEW.order_text IS DISTINCT FROM OLD.order_text)
EXECUTE FUNCTION pvdm_refuse('only state, reason, at_micros of announced change')
--;
CREATE TRIGGER announced_first_state BEFORE INSERT ON announced
FOR EACH ROW
WHEN (NEW.state <> 'OPEN')
EXECUTE FUNCTION pvdm_refuse('announced begin in OPEN')
--;
CREATE TRIGGER announced_step BEFORE UPDATE ON announced
FOR EACH ROW
WHEN (NOT ((OLD.state = 'OPEN' AND NEW.state = 'DONE')
    OR (OLD.state = 'OPEN' AND NEW.state = 'RELEASED')))
EXECUTE FUNCTION pvdm_refuse('no such step of the announced publication')
--;
CREATE TRIGGER announced_no_truncate BEFORE TRUNCATE ON announced
FOR EACH STATEMENT
EXECUTE FUNCTION pvdm_refuse('rows of announced are never deleted')
--;
CREATE FUNCTION pvdm_announced_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, lower(TG_OP), 'announced', CAST(NEW.announced_id AS TEXT),
        CASE WHEN TG_OP = 'UPDATE' THEN json_build_object('announced_id', OLD.announced_id, 'table_uuid', OLD.table_uuid, 'workload_id', OLD.workload_id, 'snapshot_id', OLD.snapshot_id, 'override_nonce', OLD.override_nonce, 'holder', OLD.holder, 'state', OLD.state, 'reason', OLD.reason, 'at_micros', OLD.at_micros)::text END,
        json_build_object('announced_id', NEW.announced_id, 'table_uuid', NEW.table_uuid, 'workload_id', NEW.workload_id, 'snapshot_id', NEW.snapshot_id, 'override_nonce', NEW.override_nonce, 'holder', NEW.holder, 'state', NEW.state, 'reason', NEW.reason, 'at_micros', NEW.at_micros)::text);
    RETURN NULL;
END $$
--;
CREATE TRIGGER announced_event AFTER INSERT OR UPDATE ON announced
FOR EACH ROW
EXECUTE FUNCTION pvdm_announced_event()
--;
CREATE TRIGGER chunks_no_delete BEFORE DELETE ON chunks
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of chunks are never deleted')
--;
CREATE TRIGGER chunks_no_update BEFORE UPDATE ON chunks
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of chunks never change')
--;
CREATE TRIGGER chunks_no_truncate BEFORE TRUNCATE ON chunks
FOR EACH STATEMENT
EXECUTE FUNCTION pvdm_refuse('rows of chunks are never deleted')
--;
CREATE FUNCTION pvdm_chunks_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, lower(TG_OP), 'chunks', CAST(NEW.workload_id AS TEXT) || '/' || CAST(NEW.chunk_id AS TEXT),
        CASE WHEN TG_OP = 'UPDATE' THEN json_build_object('workload_id', OLD.workload_id, 'chunk_id', OLD.chunk_id, 'ordinal', OLD.ordinal, 'definition', OLD.definition, 'at_micros', OLD.at_micros)::text END,
        json_build_object('workload_id', NEW.workload_id, 'chunk_id', NEW.chunk_id, 'ordinal', NEW.ordinal, 'definition', NEW.definition, 'at_micros', NEW.at_micros)::text);
    RETURN NULL;
END $$
--;
CREATE TRIGGER chunks_event AFTER INSERT ON chunks
FOR EACH ROW
EXECUTE FUNCTION pvdm_chunks_event()
--;
CREATE TRIGGER handle_workers_no_delete BEFORE DELETE ON handle_workers
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of handle_workers are never deleted')
--;
CREATE TRIGGER handle_workers_no_update BEFORE UPDATE ON handle_workers
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of handle_workers never change')
--;
CREATE TRIGGER handle_workers_no_truncate BEFORE TRUNCATE ON handle_workers
FOR EACH STATEMENT
EXECUTE FUNCTION pvdm_refuse('rows of handle_workers are never deleted')
--;
CREATE FUNCTION pvdm_handle_workers_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, lower(TG_OP), 'handle_workers', CAST(NEW.handle_sha256 AS TEXT) || '/' || CAST(NEW.worker AS TEXT),
        CASE WHEN TG_OP = 'UPDATE' THEN json_build_object('handle_sha256', OLD.handle_sha256, 'worker', OLD.worker, 'at_micros', OLD.at_micros)::text END,
        json_build_object('handle_sha256', NEW.handle_sha256, 'worker', NEW.worker, 'at_micros', NEW.at_micros)::text);
    RETURN NULL;
END $$
--;
CREATE TRIGGER handle_workers_event AFTER INSERT ON handle_workers
FOR EACH ROW
EXECUTE FUNCTION pvdm_handle_workers_event()
--;
CREATE TRIGGER statements_no_delete BEFORE DELETE ON statements
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of statements are never deleted')
--;
CREATE TRIGGER statements_no_update BEFORE UPDATE ON statements
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of statements never change')
--;
CREATE TRIGGER statements_no_truncate BEFORE TRUNCATE ON statements
FOR EACH STATEMENT
EXECUTE FUNCTION pvdm_refuse('rows of statements are never deleted')
--;
CREATE FUNCTION pvdm_statements_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, lower(TG_OP), 'statements', CAST(NEW.statement_id AS TEXT),
        CASE WHEN TG_OP = 'UPDATE' THEN json_build_object('statement_id', OLD.statement_id, 'kind', OLD.kind, 'log_index', OLD.log_index, 'at_micros', OLD.at_micros)::text END,
        json_build_object('statement_id', NEW.statement_id, 'kind', NEW.kind, 'log_index', NEW.log_index, 'at_micros', NEW.at_micros)::text);
    RETURN NULL;
END $$
--;
CREATE TRIGGER statements_event AFTER INSERT ON statements
FOR EACH ROW
EXECUTE FUNCTION pvdm_statements_event()
--;
CREATE TRIGGER tables_no_delete BEFORE DELETE ON tables
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of tables are never deleted')
--;
CREATE TRIGGER tables_fixed BEFORE UPDATE ON tables
FOR EACH ROW
WHEN (NEW.table_id IS DISTINCT FROM OLD.table_id
    OR NEW.domain IS DISTINCT FROM OLD.domain
    OR NEW.table_uuid IS DISTINCT FROM OLD.table_uuid
    OR NEW.upstream IS DISTINCT FROM OLD.upstream)
EXECUTE FUNCTION pvdm_refuse('only namespace_id, name, location, place, metadata_location, metadata_sha256, previous_location, revision, contract_hash, protected_micros, dropped_micros, at_micros of tables change')
--;
CREATE TRIGGER tables_protected_once BEFORE UPDATE ON tables
FOR EACH ROW
WHEN (OLD.protected_micros IS NOT NULL AND NEW.protected_micros IS DISTINCT FROM OLD.protected_micros)
EXECUTE FUNCTION pvdm_refuse('when a table was first protected stays known')
--;
CREATE TRIGGER tables_no_truncate BEFORE TRUNCATE ON tables
FOR EACH STATEMENT
EXECUTE FUNCTION pvdm_refuse('rows of tables are never deleted')
--;
CREATE FUNCTION pvdm_tables_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, lower(TG_OP), 'tables', CAST(NEW.table_id AS TEXT),
        CASE WHEN TG_OP = 'UPDATE' THEN json_build_object('table_id', OLD.table_id, 'namespace_id', OLD.namespace_id, 'name', OLD.name, 'domain', OLD.domain, 'table_uuid', OLD.table_uuid, 'location', OLD.location, 'place', OLD.place, 'metadata_location', OLD.metadata_location, 'metadata_sha256', OLD.metadata_sha256, 'previous_location', OLD.previous_location, 'revision', OLD.revision, 'upstream', OLD.upstream, 'contract_hash', OLD.contract_hash, 'protected_micros', OLD.protected_micros, 'dropped_micros', OLD.dropped_micros, 'at_micros', OLD.at_micros)::text END,
        json_build_object('table_id', NEW.table_id, 'namespace_id', NEW.namespace_id, 'name', NEW.name, 'domain', NEW.domain, 'table_uuid', NEW.table_uuid, 'location', NEW.location, 'place', NEW.place, 'metadata_location', NEW.metadata_location, 'metadata_sha256', NEW.metadata_sha256, 'previous_location', NEW.previous_location, 'revision', NEW.revision, 'upstream', NEW.upstream, 'contract_hash', NEW.contract_hash, 'protected_micros', NEW.protected_micros, 'dropped_micros', NEW.dropped_micros, 'at_micros', NEW.at_micros)::text);
    RETURN NULL;
END $$
--;
CREATE TRIGGER tables_event AFTER INSERT OR UPDATE ON tables
FOR EACH ROW
EXECUTE FUNCTION pvdm_tables_event()
--;
CREATE TRIGGER views_no_delete BEFORE DELETE ON views
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of views are never deleted')
--;
CREATE TRIGGER views_fixed BEFORE UPDATE ON views
FOR EACH ROW
WHEN (NEW.view_id IS DISTINCT FROM OLD.view_id
    OR NEW.domain IS DISTINCT FROM OLD.domain
    OR NEW.view_uuid IS DISTINCT FROM OLD.view_uuid)
EXECUTE FUNCTION pvdm_refuse('only namespace_id, name, location, metadata_location, metadata_sha256, revision, dropped_micros, at_micros of views change')
--;
CREATE TRIGGER views_no_truncate BEFORE TRUNCATE ON views
FOR EACH STATEMENT
EXECUTE FUNCTION pvdm_refuse('rows of views are never deleted')
--;
CREATE FUNCTION pvdm_views_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, lower(TG_OP), 'views', CAST(NEW.view_id AS TEXT),
        CASE WHEN TG_OP = 'UPDATE' THEN json_build_object('view_id', OLD.view_id, 'namespace_id', OLD.namespace_id, 'name', OLD.name, 'domain', OLD.domain, 'view_uuid', OLD.view_uuid, 'location', OLD.location, 'metadata_location', OLD.metadata_location, 'metadata_sha256', OLD.metadata_sha256, 'revision', OLD.revision, 'dropped_micros', OLD.dropped_micros, 'at_micros', OLD.at_micros)::text END,
        json_build_object('view_id', NEW.view_id, 'namespace_id', NEW.namespace_id, 'name', NEW.name, 'domain', NEW.domain, 'view_uuid', NEW.view_uuid, 'location', NEW.location, 'metadata_location', NEW.metadata_location, 'metadata_sha256', NEW.metadata_sha256, 'revision', NEW.revision, 'dropped_micros', NEW.dropped_micros, 'at_micros', NEW.at_micros)::text);
    RETURN NULL;
END $$
--;
CREATE TRIGGER views_event AFTER INSERT OR UPDATE ON views
FOR EACH ROW
EXECUTE FUNCTION pvdm_views_event()
--;
CREATE TRIGGER attempts_no_delete BEFORE DELETE ON attempts
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of attempts are never deleted')
--;
CREATE TRIGGER attempts_fixed BEFORE UPDATE ON attempts
FOR EACH ROW
WHEN (NEW.attempt_id IS DISTINCT FROM OLD.attempt_id
    OR NEW.workload_id IS DISTINCT FROM OLD.workload_id
    OR NEW.chunk_id IS DISTINCT FROM OLD.chunk_id
    OR NEW.number IS DISTINCT FROM OLD.number
    OR NEW.branch IS DISTINCT FROM OLD.branch
    OR NEW.prefix IS DISTINCT FROM OLD.prefix)
EXECUTE FUNCTION pvdm_refuse('only state, staged_snapshot_id, reason, at_micros of attempts change')
--;
CREATE TRIGGER attempts_first_state BEFORE INSERT ON attempts
FOR EACH ROW
WHEN (NEW.state <> 'STAGING')
EXECUTE FUNCTION pvdm_refuse('attempts begin in STAGING')
--;
CREATE TRIGGER attempts_step BEFORE UPDATE ON attempts
FOR EACH ROW
WHEN (NOT ((OLD.state = 'STAGING' AND NEW.state = 'VERIFYING')
    OR (OLD.state = 'STAGING' AND NEW.state = 'ROLLED_BACK')
    OR (OLD.state = 'VERIFYING' AND NEW.state = 'COMMITTING')
    OR (OLD.state = 'VERIFYING' AND NEW.state = 'VERIFICATION_FAILED')
    OR (OLD.state = 'VERIFYING' AND NEW.state = 'ROLLED_BACK')
    OR (OLD.state = 'COMMITTING' AND NEW.state = 'COMMITTED')
    OR (OLD.state = 'COMMITTING' AND NEW.state = 'VERIFICATION_FAILED')
    OR (OLD.state = 'COMMITTING' AND NEW.state = 'VERIFYING')
    OR (OLD.state = 'COMMITTING' AND NEW.state = 'ROLLED_BACK')))
EXECUTE FUNCTION pvdm_refuse('no such step of the attempt')
--;
CREATE TRIGGER attempts_no_truncate BEFORE TRUNCATE ON attempts
FOR EACH STATEMENT
EXECUTE FUNCTION pvdm_refuse('rows of attempts are never deleted')
--;
CREATE FUNCTION pvdm_attempts_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, lower(TG_OP), 'attempts', CAST(NEW.attempt_id AS TEXT),
        CASE WHEN TG_OP = 'UPDATE' THEN json_build_object('attempt_id', OLD.attempt_id, 'workload_id', OLD.workload_id, 'chunk_id', OLD.chunk_id, 'number', OLD.number, 'branch', OLD.branch, 'prefix', OLD.prefix, 'state', OLD.state, 'staged_snapshot_id', OLD.staged_snapshot_id, 'reason', OLD.reason, 'at_micros', OLD.at_micros)::text END,
        json_build_object('attempt_id', NEW.attempt_id, 'workload_id', NEW.workload_id, 'chunk_id', NEW.chunk_id, 'number', NEW.number, 'branch', NEW.branch, 'prefix', NEW.prefix, 'state', NEW.state, 'staged_snapshot_id', NEW.staged_snapshot_id, 'reason', NEW.reason, 'at_micros', NEW.at_micros)::text);
    RETURN NULL;
END $$
--;
CREATE TRIGGER attempts_event AFTER INSERT OR UPDATE ON attempts
FOR EACH ROW
EXECUTE FUNCTION pvdm_attempts_event()
--;
CREATE TRIGGER contracts_no_delete BEFORE DELETE ON contracts
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of contracts are never deleted')
--;
CREATE TRIGGER contracts_no_update BEFORE UPDATE ON contracts
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of contracts never change')
--;
CREATE TRIGGER contracts_no_truncate BEFORE TRUNCATE ON contracts
FOR EACH STATEMENT
EXECUTE FUNCTION pvdm_refuse('rows of contracts are never deleted')
--;
CREATE FUNCTION pvdm_contracts_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, lower(TG_OP), 'contracts', CAST(NEW.contract_sha256 AS TEXT),
        CASE WHEN TG_OP = 'UPDATE' THEN json_build_object('contract_sha256', OLD.contract_sha256, 'statement_id', OLD.statement_id, 'at_micros', OLD.at_micros)::text END,
        json_build_object('contract_sha256', NEW.contract_sha256, 'statement_id', NEW.statement_id, 'at_micros', NEW.at_micros)::text);
    RETURN NULL;
END $$
--;
CREATE TRIGGER contracts_event AFTER INSERT ON contracts
FOR EACH ROW
EXECUTE FUNCTION pvdm_contracts_event()
--;
CREATE TRIGGER lost_claims_no_delete BEFORE DELETE ON lost_claims
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of lost_claims are never deleted')
--;
CREATE TRIGGER lost_claims_fixed BEFORE UPDATE ON lost_claims
FOR EACH ROW
WHEN (NEW.receipt_id IS DISTINCT FROM OLD.receipt_id
    OR NEW.workload_id IS DISTINCT FROM OLD.workload_id
    OR NEW.target IS DISTINCT FROM OLD.target)
EXECUTE FUNCTION pvdm_refuse('only released_by, reason, at_micros of lost_claims change')
--;
CREATE TRIGGER lost_claims_no_truncate BEFORE TRUNCATE ON lost_claims
FOR EACH STATEMENT
EXECUTE FUNCTION pvdm_refuse('rows of lost_claims are never deleted')
--;
CREATE FUNCTION pvdm_lost_claims_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, lower(TG_OP), 'lost_claims', CAST(NEW.receipt_id AS TEXT),
        CASE WHEN TG_OP = 'UPDATE' THEN json_build_object('receipt_id', OLD.receipt_id, 'workload_id', OLD.workload_id, 'target', OLD.target, 'released_by', OLD.released_by, 'reason', OLD.reason, 'at_micros', OLD.at_micros)::text END,
        json_build_object('receipt_id', NEW.receipt_id, 'workload_id', NEW.workload_id, 'target', NEW.target, 'released_by', NEW.released_by, 'reason', NEW.reason, 'at_micros', NEW.at_micros)::text);
    RETURN NULL;
END $$
--;
CREATE TRIGGER lost_claims_event AFTER INSERT OR UPDATE ON lost_claims
FOR EACH ROW
EXECUTE FUNCTION pvdm_lost_claims_event()
--;
CREATE TRIGGER receipts_no_delete BEFORE DELETE ON receipts
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of receipts are never deleted')
--;
CREATE TRIGGER receipts_no_update BEFORE UPDATE ON receipts
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of receipts never change')
--;
CREATE TRIGGER receipts_no_truncate BEFORE TRUNCATE ON receipts
FOR EACH STATEMENT
EXECUTE FUNCTION pvdm_refuse('rows of receipts are never deleted')
--;
CREATE FUNCTION pvdm_receipts_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, lower(TG_OP), 'receipts', CAST(NEW.receipt_id AS TEXT),
        CASE WHEN TG_OP = 'UPDATE' THEN json_build_object('receipt_id', OLD.receipt_id, 'workload_id', OLD.workload_id, 'table_uuid', OLD.table_uuid, 'snapshot_id', OLD.snapshot_id, 'at_micros', OLD.at_micros)::text END,
        json_build_object('receipt_id', NEW.receipt_id, 'workload_id', NEW.workload_id, 'table_uuid', NEW.table_uuid, 'snapshot_id', NEW.snapshot_id, 'at_micros', NEW.at_micros)::text);
    RETURN NULL;
END $$
--;
CREATE TRIGGER receipts_event AFTER INSERT ON receipts
FOR EACH ROW
EXECUTE FUNCTION pvdm_receipts_event()
--;
CREATE TRIGGER spent_no_delete BEFORE DELETE ON spent
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of spent are never deleted')
--;
CREATE TRIGGER spent_no_update BEFORE UPDATE ON spent
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of spent never change')
--;
CREATE TRIGGER spent_no_truncate BEFORE TRUNCATE ON spent
FOR EACH STATEMENT
EXECUTE FUNCTION pvdm_refuse('rows of spent are never deleted')
--;
CREATE FUNCTION pvdm_spent_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, lower(TG_OP), 'spent', CAST(NEW.workload_id AS TEXT) || '/' || CAST(NEW.chunk_id AS TEXT),
        CASE WHEN TG_OP = 'UPDATE' THEN json_build_object('workload_id', OLD.workload_id, 'chunk_id', OLD.chunk_id, 'snapshot_id', OLD.snapshot_id, 'receipt_id', OLD.receipt_id, 'at_micros', OLD.at_micros)::text END,
        json_build_object('workload_id', NEW.workload_id, 'chunk_id', NEW.chunk_id, 'snapshot_id', NEW.snapshot_id, 'receipt_id', NEW.receipt_id, 'at_micros', NEW.at_micros)::text);
    RETURN NULL;
END $$
--;
CREATE TRIGGER spent_event AFTER INSERT ON spent
FOR EACH ROW
EXECUTE FUNCTION pvdm_spent_event()
--;
CREATE TRIGGER staging_makers_no_delete BEFORE DELETE ON staging_makers
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of staging_makers are never deleted')
--;
CREATE TRIGGER staging_makers_fixed BEFORE UPDATE ON staging_makers
FOR EACH ROW
WHEN (NEW.table_id IS DISTINCT FROM OLD.table_id
    OR NEW.kind IS DISTINCT FROM OLD.kind
    OR NEW.name IS DISTINCT FROM OLD.name)
EXECUTE FUNCTION pvdm_refuse('only maker, at_micros of staging_makers change')
--;
CREATE TRIGGER staging_makers_no_truncate BEFORE TRUNCATE ON staging_makers
FOR EACH STATEMENT
EXECUTE FUNCTION pvdm_refuse('rows of staging_makers are never deleted')
--;
CREATE TRIGGER disposals_no_delete BEFORE DELETE ON disposals
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of disposals are never deleted')
--;
CREATE TRIGGER disposals_no_update BEFORE UPDATE ON disposals
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of disposals never change')
--;
CREATE TRIGGER disposals_no_truncate BEFORE TRUNCATE ON disposals
FOR EACH STATEMENT
EXECUTE FUNCTION pvdm_refuse('rows of disposals are never deleted')
--;
CREATE FUNCTION pvdm_disposals_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, lower(TG_OP), 'disposals', CAST(NEW.attempt_id AS TEXT),
        CASE WHEN TG_OP = 'UPDATE' THEN json_build_object('attempt_id', OLD.attempt_id, 'outcome', OLD.outcome, 'removed', OLD.removed, 'kept', OLD.kept, 'note', OLD.note, 'at_micros', OLD.at_micros)::text END,
        json_build_object('attempt_id', NEW.attempt_id, 'outcome', NEW.outcome, 'removed', NEW.removed, 'kept', NEW.kept, 'note', NEW.note, 'at_micros', NEW.at_micros)::text);
    RETURN NULL;
END $$
--;
CREATE TRIGGER disposals_event AFTER INSERT ON disposals
FOR EACH ROW
EXECUTE FUNCTION pvdm_disposals_event()
--;
CREATE TRIGGER nonces_no_delete BEFORE DELETE ON nonces
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of nonces are never deleted')
--;
CREATE TRIGGER nonces_fixed BEFORE UPDATE ON nonces
FOR EACH ROW
WHEN (NEW.nonce IS DISTINCT FROM OLD.nonce
    OR NEW.purpose IS DISTINCT FROM OLD.purpose
    OR NEW.holder IS DISTINCT FROM OLD.holder
    OR NEW.attempt_id IS DISTINCT FROM OLD.attempt_id)
EXECUTE FUNCTION pvdm_refuse('only state, snapshot_id, reason, at_micros of nonces change')
--;
CREATE TRIGGER nonces_first_state BEFORE INSERT ON nonces
FOR EACH ROW
WHEN (NEW.state <> 'RESERVED')
EXECUTE FUNCTION pvdm_refuse('nonces begin in RESERVED')
--;
CREATE TRIGGER nonces_step BEFORE UPDATE ON nonces
FOR EACH ROW
WHEN (NOT ((OLD.state = 'RESERVED' AND NEW.state = 'COMMITTED')
    OR (OLD.state = 'RESERVED' AND NEW.state = 'ABORTED')))
EXECUTE FUNCTION pvdm_refuse('no such step of the nonce')
--;
CREATE TRIGGER nonces_no_truncate BEFORE TRUNCATE ON nonces
FOR EACH STATEMENT
EXECUTE FUNCTION pvdm_refuse('rows of nonces are never deleted')
--;
CREATE FUNCTION pvdm_nonces_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, lower(TG_OP), 'nonces', CAST(NEW.nonce AS TEXT),
        CASE WHEN TG_OP = 'UPDATE' THEN json_build_object('nonce', OLD.nonce, 'purpose', OLD.purpose, 'holder', OLD.holder, 'attempt_id', OLD.attempt_id, 'state', OLD.state, 'snapshot_id', OLD.snapshot_id, 'reason', OLD.reason, 'at_micros', OLD.at_micros)::text END,
        json_build_object('nonce', NEW.nonce, 'purpose', NEW.purpose, 'holder', NEW.holder, 'attempt_id', NEW.attempt_id, 'state', NEW.state, 'snapshot_id', NEW.snapshot_id, 'reason', NEW.reason, 'at_micros', NEW.at_micros)::text);
    RETURN NULL;
END $$
--;
CREATE TRIGGER nonces_event AFTER INSERT OR UPDATE ON nonces
FOR EACH ROW
EXECUTE FUNCTION pvdm_nonces_event()
--;
CREATE TRIGGER tokens_no_delete BEFORE DELETE ON tokens
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of tokens are never deleted')
--;
CREATE TRIGGER tokens_fixed BEFORE UPDATE ON tokens
FOR EACH ROW
WHEN (NEW.token_id IS DISTINCT FROM OLD.token_id
    OR NEW.secret_sha256 IS DISTINCT FROM OLD.secret_sha256
    OR NEW.role IS DISTINCT FROM OLD.role
    OR NEW.domain IS DISTINCT FROM OLD.domain
    OR NEW.name IS DISTINCT FROM OLD.name
    OR NEW.attempt_id IS DISTINCT FROM OLD.attempt_id
    OR NEW.parent_id IS DISTINCT FROM OLD.parent_id
    OR NEW.issued_micros IS DISTINCT FROM OLD.issued_micros
    OR NEW.expires_micros IS DISTINCT FROM OLD.expires_micros)
EXECUTE FUNCTION pvdm_refuse('only replaced_micros, successor_id, revoked_micros, at_micros of tokens change')
--;
CREATE TRIGGER tokens_revoked_once BEFORE UPDATE ON tokens
FOR EACH ROW
WHEN (OLD.revoked_micros IS NOT NULL AND (NEW.revoked_micros IS NULL OR NEW.revoked_micros > OLD.revoked_micros))
EXECUTE FUNCTION pvdm_refuse('a revoked token stays revoked')
--;
CREATE TRIGGER tokens_replaced_once BEFORE UPDATE ON tokens
FOR EACH ROW
WHEN (OLD.replaced_micros IS NOT NULL AND (NEW.replaced_micros IS NULL OR NEW.replaced_micros > OLD.replaced_micros))
EXECUTE FUNCTION pvdm_refuse('a replaced token stays replaced')
--;
CREATE TRIGGER tokens_no_truncate BEFORE TRUNCATE ON tokens
FOR EACH STATEMENT
EXECUTE FUNCTION pvdm_refuse('rows of tokens are never deleted')
--;
CREATE FUNCTION pvdm_tokens_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, lower(TG_OP), 'tokens', CAST(NEW.token_id AS TEXT),
        CASE WHEN TG_OP = 'UPDATE' THEN json_build_object('token_id', OLD.token_id, 'role', OLD.role, 'domain', OLD.domain, 'name', OLD.name, 'attempt_id', OLD.attempt_id, 'parent_id', OLD.parent_id, 'issued_micros', OLD.issued_micros, 'expires_micros', OLD.expires_micros, 'replaced_micros', OLD.replaced_micros, 'successor_id', OLD.successor_id, 'revoked_micros', OLD.revoked_micros, 'at_micros', OLD.at_micros)::text END,
        json_build_object('token_id', NEW.token_id, 'role', NEW.role, 'domain', NEW.domain, 'name', NEW.name, 'attempt_id', NEW.attempt_id, 'parent_id', NEW.parent_id, 'issued_micros', NEW.issued_micros, 'expires_micros', NEW.expires_micros, 'replaced_micros', NEW.replaced_micros, 'successor_id', NEW.successor_id, 'revoked_micros', NEW.revoked_micros, 'at_micros', NEW.at_micros)::text);
    RETURN NULL;
END $$
--;
CREATE TRIGGER tokens_event AFTER INSERT OR UPDATE ON tokens
FOR EACH ROW
EXECUTE FUNCTION pvdm_tokens_event()
--;
CREATE TRIGGER announced_attempts_no_delete BEFORE DELETE ON announced_attempts
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of announced_attempts are never deleted')
--;
CREATE TRIGGER announced_attempts_no_update BEFORE UPDATE ON announced_attempts
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of announced_attempts never change')
--;
CREATE TRIGGER announced_attempts_no_truncate BEFORE TRUNCATE ON announced_attempts
FOR EACH STATEMENT
EXECUTE FUNCTION pvdm_refuse('rows of announced_attempts are never deleted')
--;
CREATE FUNCTION pvdm_announced_attempts_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, lower(TG_OP), 'announced_attempts', CAST(NEW.announced_id AS TEXT) || '/' || CAST(NEW.attempt_id AS TEXT),
        CASE WHEN TG_OP = 'UPDATE' THEN json_build_object('announced_id', OLD.announced_id, 'attempt_id', OLD.attempt_id, 'nonce', OLD.nonce, 'at_micros', OLD.at_micros)::text END,
        json_build_object('announced_id', NEW.announced_id, 'attempt_id', NEW.attempt_id, 'nonce', NEW.nonce, 'at_micros', NEW.at_micros)::text);
    RETURN NULL;
END $$
--;
CREATE TRIGGER announced_attempts_event AFTER INSERT ON announced_attempts
FOR EACH ROW
EXECUTE FUNCTION pvdm_announced_attempts_event()
--;
CREATE TRIGGER challenges_no_delete BEFORE DELETE ON challenges
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of challenges are never deleted')
--;
CREATE TRIGGER challenges_no_update BEFORE UPDATE ON challenges
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of challenges never change')
--;
CREATE TRIGGER challenges_no_truncate BEFORE TRUNCATE ON challenges
FOR EACH STATEMENT
EXECUTE FUNCTION pvdm_refuse('rows of challenges are never deleted')
--;
CREATE FUNCTION pvdm_challenges_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, lower(TG_OP), 'challenges', CAST(NEW.nonce AS TEXT),
        CASE WHEN TG_OP = 'UPDATE' THEN json_build_object('nonce', OLD.nonce, 'attestor', OLD.attestor, 'epoch', OLD.epoch, 'request', OLD.request, 'expires_micros', OLD.expires_micros, 'at_micros', OLD.at_micros)::text END,
        json_build_object('nonce', NEW.nonce, 'attestor', NEW.attestor, 'epoch', NEW.epoch, 'request', NEW.request, 'expires_micros', NEW.expires_micros, 'at_micros', NEW.at_micros)::text);
    RETURN NULL;
END $$
--;
CREATE TRIGGER challenges_event AFTER INSERT ON challenges
FOR EACH ROW
EXECUTE FUNCTION pvdm_challenges_event()
--;
CREATE TRIGGER proofs_no_delete BEFORE DELETE ON proofs
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of proofs are never deleted')
--;
CREATE TRIGGER proofs_no_update BEFORE UPDATE ON proofs
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of proofs never change')
--;
CREATE TRIGGER proofs_no_truncate BEFORE TRUNCATE ON proofs
FOR EACH STATEMENT
EXECUTE FUNCTION pvdm_refuse('rows of proofs are never deleted')
--;
CREATE FUNCTION pvdm_proofs_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, lower(TG_OP), 'proofs', CAST(NEW.proof_id AS TEXT),
        CASE WHEN TG_OP = 'UPDATE' THEN json_build_object('proof_id', OLD.proof_id, 'workload_id', OLD.workload_id, 'domain', OLD.domain, 'attempt_id', OLD.attempt_id, 'nonce', OLD.nonce, 'held_nonce', OLD.held_nonce, 'verdict', OLD.verdict, 'notary', OLD.notary, 'expires_micros', OLD.expires_micros, 'summary', OLD.summary, 'context', OLD.context, 'at_micros', OLD.at_micros)::text END,
        json_build_object('proof_id', NEW.proof_id, 'workload_id', NEW.workload_id, 'domain', NEW.domain, 'attempt_id', NEW.attempt_id, 'nonce', NEW.nonce, 'held_nonce', NEW.held_nonce, 'verdict', NEW.verdict, 'notary', NEW.notary, 'expires_micros', NEW.expires_micros, 'summary', NEW.summary, 'context', NEW.context, 'at_micros', NEW.at_micros)::text);
    RETURN NULL;
END $$
--;
CREATE TRIGGER proofs_event AFTER INSERT ON proofs
FOR EACH ROW
EXECUTE FUNCTION pvdm_proofs_event()
--;
CREATE TRIGGER protections_no_delete BEFORE DELETE ON protections
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of protections are never deleted')
--;
CREATE TRIGGER protections_no_update BEFORE UPDATE ON protections
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of protections never change')
--;
CREATE TRIGGER protections_no_truncate BEFORE TRUNCATE ON protections
FOR EACH STATEMENT
EXECUTE FUNCTION pvdm_refuse('rows of protections are never deleted')
--;
CREATE FUNCTION pvdm_protections_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, lower(TG_OP), 'protections', CAST(NEW.protection_id AS TEXT),
        CASE WHEN TG_OP = 'UPDATE' THEN json_build_object('protection_id', OLD.protection_id, 'action', OLD.action, 'table_uuid', OLD.table_uuid, 'namespace_id', OLD.namespace_id, 'name', OLD.name, 'domain', OLD.domain, 'contract_sha256', OLD.contract_sha256, 'operator', OLD.operator, 'nonce', OLD.nonce, 'found_sha256', OLD.found_sha256, 'at_micros', OLD.at_micros)::text END,
        json_build_object('protection_id', NEW.protection_id, 'action', NEW.action, 'table_uuid', NEW.table_uuid, 'namespace_id', NEW.namespace_id, 'name', NEW.name, 'domain', NEW.domain, 'contract_sha256', NEW.contract_sha256, 'operator', NEW.operator, 'nonce', NEW.nonce, 'found_sha256', NEW.found_sha256, 'at_micros', NEW.at_micros)::text);
    RETURN NULL;
END $$
--;
CREATE TRIGGER protections_event AFTER INSERT ON protections
FOR EACH ROW
EXECUTE FUNCTION pvdm_protections_event()
--;
CREATE TRIGGER published_no_delete BEFORE DELETE ON published
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of published are never deleted')
--;
CREATE TRIGGER published_no_update BEFORE UPDATE ON published
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of published never change')
--;
CREATE TRIGGER published_no_truncate BEFORE TRUNCATE ON published
FOR EACH STATEMENT
EXECUTE FUNCTION pvdm_refuse('rows of published are never deleted')
--;
CREATE FUNCTION pvdm_published_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, lower(TG_OP), 'published', CAST(NEW.workload_id AS TEXT) || '/' || CAST(NEW.chunk_id AS TEXT),
        CASE WHEN TG_OP = 'UPDATE' THEN json_build_object('workload_id', OLD.workload_id, 'chunk_id', OLD.chunk_id, 'attempt_id', OLD.attempt_id, 'nonce', OLD.nonce, 'snapshot_id', OLD.snapshot_id, 'rows_added', OLD.rows_added, 'files_added', OLD.files_added, 'rows_removed', OLD.rows_removed, 'files_removed', OLD.files_removed, 'at_micros', OLD.at_micros)::text END,
        json_build_object('workload_id', NEW.workload_id, 'chunk_id', NEW.chunk_id, 'attempt_id', NEW.attempt_id, 'nonce', NEW.nonce, 'snapshot_id', NEW.snapshot_id, 'rows_added', NEW.rows_added, 'files_added', NEW.files_added, 'rows_removed', NEW.rows_removed, 'files_removed', NEW.files_removed, 'at_micros', NEW.at_micros)::text);
    RETURN NULL;
END $$
--;
CREATE TRIGGER published_event AFTER INSERT ON published
FOR EACH ROW
EXECUTE FUNCTION pvdm_published_event()
--;
CREATE TRIGGER quarantine_removals_no_delete BEFORE DELETE ON quarantine_removals
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of quarantine_removals are never deleted')
--;
CREATE TRIGGER quarantine_removals_fixed BEFORE UPDATE ON quarantine_removals
FOR EACH ROW
WHEN (NEW.attempt_id IS DISTINCT FROM OLD.attempt_id
    OR NEW.token_id IS DISTINCT FROM OLD.token_id
    OR NEW.name IS DISTINCT FROM OLD.name
    OR NEW.reason IS DISTINCT FROM OLD.reason
    OR NEW.files IS DISTINCT FROM OLD.files
    OR NEW.bytes IS DISTINCT FROM OLD.bytes)
EXECUTE FUNCTION pvdm_refuse('only done, at_micros of quarantine_removals change')
--;
CREATE TRIGGER quarantine_removals_no_truncate BEFORE TRUNCATE ON quarantine_removals
FOR EACH STATEMENT
EXECUTE FUNCTION pvdm_refuse('rows of quarantine_removals are never deleted')
--;
CREATE FUNCTION pvdm_quarantine_removals_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, lower(TG_OP), 'quarantine_removals', CAST(NEW.attempt_id AS TEXT),
        CASE WHEN TG_OP = 'UPDATE' THEN json_build_object('attempt_id', OLD.attempt_id, 'token_id', OLD.token_id, 'name', OLD.name, 'reason', OLD.reason, 'files', OLD.files, 'bytes', OLD.bytes, 'done', OLD.done, 'at_micros', OLD.at_micros)::text END,
        json_build_object('attempt_id', NEW.attempt_id, 'token_id', NEW.token_id, 'name', NEW.name, 'reason', NEW.reason, 'files', NEW.files, 'bytes', NEW.bytes, 'done', NEW.done, 'at_micros', NEW.at_micros)::text);
    RETURN NULL;
END $$
--;
CREATE TRIGGER quarantine_removals_event AFTER INSERT OR UPDATE ON quarantine_removals
FOR EACH ROW
EXECUTE FUNCTION pvdm_quarantine_removals_event()
--;
CREATE TRIGGER table_migrations_no_delete BEFORE DELETE ON table_migrations
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of table_migrations are never deleted')
--;
CREATE TRIGGER table_migrations_no_update BEFORE UPDATE ON table_migrations
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of table_migrations never change')
--;
CREATE TRIGGER table_migrations_no_truncate BEFORE TRUNCATE ON table_migrations
FOR EACH STATEMENT
EXECUTE FUNCTION pvdm_refuse('rows of table_migrations are never deleted')
--;
CREATE FUNCTION pvdm_table_migrations_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, lower(TG_OP), 'table_migrations', CAST(NEW.migration_id AS TEXT),
        CASE WHEN TG_OP = 'UPDATE' THEN json_build_object('migration_id', OLD.migration_id, 'table_uuid', OLD.table_uuid, 'name', OLD.name, 'domain', OLD.domain, 'contract_sha256', OLD.contract_sha256, 'metadata_sha256', OLD.metadata_sha256, 'operator', OLD.operator, 'nonce', OLD.nonce, 'at_micros', OLD.at_micros)::text END,
        json_build_object('migration_id', NEW.migration_id, 'table_uuid', NEW.table_uuid, 'name', NEW.name, 'domain', NEW.domain, 'contract_sha256', NEW.contract_sha256, 'metadata_sha256', NEW.metadata_sha256, 'operator', NEW.operator, 'nonce', NEW.nonce, 'at_micros', NEW.at_micros)::text);
    RETURN NULL;
END $$
--;
CREATE TRIGGER table_migrations_event AFTER INSERT ON table_migrations
FOR EACH ROW
EXECUTE FUNCTION pvdm_table_migrations_event()
--;
CREATE TRIGGER verified_no_delete BEFORE DELETE ON verified
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of verified are never deleted')
--;
CREATE TRIGGER verified_fixed BEFORE UPDATE ON verified
FOR EACH ROW
WHEN (NEW.nonce IS DISTINCT FROM OLD.nonce
    OR NEW.attempt_id IS DISTINCT FROM OLD.attempt_id)
EXECUTE FUNCTION pvdm_refuse('only core_sha256, location, sha256, files, rows, findings, findings_more, located, at_micros of verified change')
--;
CREATE TRIGGER verified_no_truncate BEFORE TRUNCATE ON verified
FOR EACH STATEMENT
EXECUTE FUNCTION pvdm_refuse('rows of verified are never deleted')
--;
CREATE FUNCTION pvdm_verified_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, lower(TG_OP), 'verified', CAST(NEW.nonce AS TEXT),
        CASE WHEN TG_OP = 'UPDATE' THEN json_build_object('nonce', OLD.nonce, 'attempt_id', OLD.attempt_id, 'core_sha256', OLD.core_sha256, 'location', OLD.location, 'sha256', OLD.sha256, 'files', OLD.files, 'rows', OLD.rows, 'findings_more', OLD.findings_more, 'at_micros', OLD.at_micros)::text END,
        json_build_object('nonce', NEW.nonce, 'attempt_id', NEW.attempt_id, 'core_sha256', NEW.core_sha256, 'location', NEW.location, 'sha256', NEW.sha256, 'files', NEW.files, 'rows', NEW.rows, 'findings_more', NEW.findings_more, 'at_micros', NEW.at_micros)::text);
    RETURN NULL;
END $$
--;
CREATE TRIGGER verified_event AFTER INSERT OR UPDATE ON verified
FOR EACH ROW
EXECUTE FUNCTION pvdm_verified_event()
--;
CREATE TRIGGER attestations_no_delete BEFORE DELETE ON attestations
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of attestations are never deleted')
--;
CREATE TRIGGER attestations_no_update BEFORE UPDATE ON attestations
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of attestations never change')
--;
CREATE TRIGGER attestations_no_truncate BEFORE TRUNCATE ON attestations
FOR EACH STATEMENT
EXECUTE FUNCTION pvdm_refuse('rows of attestations are never deleted')
--;
CREATE FUNCTION pvdm_attestations_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, lower(TG_OP), 'attestations', CAST(NEW.attestation_id AS TEXT),
        CASE WHEN TG_OP = 'UPDATE' THEN json_build_object('attestation_id', OLD.attestation_id, 'nonce', OLD.nonce, 'attestor', OLD.attestor, 'catalog', OLD.catalog, 'table_uuid', OLD.table_uuid, 'snapshot_id', OLD.snapshot_id, 'at_micros', OLD.at_micros)::text END,
        json_build_object('attestation_id', NEW.attestation_id, 'nonce', NEW.nonce, 'attestor', NEW.attestor, 'catalog', NEW.catalog, 'table_uuid', NEW.table_uuid, 'snapshot_id', NEW.snapshot_id, 'at_micros', NEW.at_micros)::text);
    RETURN NULL;
END $$
--;
CREATE TRIGGER attestations_event AFTER INSERT ON attestations
FOR EACH ROW
EXECUTE FUNCTION pvdm_attestations_event()
--;
CREATE TRIGGER overrides_no_delete BEFORE DELETE ON overrides
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of overrides are never deleted')
--;
CREATE TRIGGER overrides_no_update BEFORE UPDATE ON overrides
FOR EACH ROW
EXECUTE FUNCTION pvdm_refuse('rows of overrides never change')
--;
CREATE TRIGGER overrides_no_truncate BEFORE TRUNCATE ON overrides
FOR EACH STATEMENT
EXECUTE FUNCTION pvdm_refuse('rows of overrides are never deleted')
--;
CREATE FUNCTION pvdm_overrides_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events (at_micros, kind, subject, row_key, old, new)
    VALUES (NEW.at_micros, lower(TG_OP), 'overrides', CAST(NEW.override_id AS TEXT),
        CASE WHEN TG_OP = 'UPDATE' THEN json_build_object('override_id', OLD.override_id, 'fail_proof_id', OLD.fail_proof_id, 'nonce', OLD.nonce, 'operator', OLD.operator, 'expires_micros', OLD.expires_micros, 'at_micros', OLD.at_micros)::text END,
        json_build_object('override_id', NEW.override_id, 'fail_proof_id', NEW.fail_proof_id, 'nonce', NEW.nonce, 'operator', NEW.operator, 'expires_micros', NEW.expires_micros, 'at_micros', NEW.at_micros)::text);
    RETURN NULL;
END $$
--;
CREATE TRIGGER overrides_event AFTER INSERT ON overrides
FOR EACH ROW
EXECUTE FUNCTION pvdm_overrides_event()
--;
CREATE FUNCTION pvdm_claims_overlap() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('pvdm claims ' || NEW.target, 0));
    IF EXISTS (SELECT 1 FROM claims c
    WHERE c.target = NEW.target AND c.workload_id <> NEW.workload_id
      AND (c.claim_column IS NULL OR NEW.claim_column IS NULL
           OR c.claim_column <> NEW.claim_column OR c.column_kind <> NEW.column_kind
           OR ((c.upper_bound IS NULL OR NEW.lower_bound < c.upper_bound)
               AND (NEW.upper_bound IS NULL OR c.lower_bound < NEW.upper_bound)))) THEN
        RAISE EXCEPTION 'pvdm rule: claims overlap' USING ERRCODE = 'PV001';
    END IF;
    RETURN NEW;
END $$
--;
CREATE TRIGGER claims_overlap BEFORE INSERT ON claims
FOR EACH ROW
EXECUTE FUNCTION pvdm_claims_overlap()
--;
CREATE FUNCTION pvdm_attempts_published() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.state = 'COMMITTED' AND NOT EXISTS (SELECT 1 FROM published p JOIN nonces n ON n.nonce = p.nonce
    WHERE p.workload_id = NEW.workload_id AND p.chunk_id = NEW.chunk_id AND p.attempt_id = NEW.attempt_id
      AND n.state = 'COMMITTED') THEN
        RAISE EXCEPTION 'pvdm rule: a committed attempt is published' USING ERRCODE = 'PV001';
    END IF;
    RETURN NEW;
END $$
--;
CREATE TRIGGER attempts_published BEFORE UPDATE ON attempts
FOR EACH ROW
EXECUTE FUNCTION pvdm_attempts_published()
--;
CREATE FUNCTION pvdm_log_entries_next() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.entry_index <> (SELECT coalesce(max(entry_index) + 1, 0) FROM log_entries) THEN
        RAISE EXCEPTION 'pvdm rule: log entries have no gap' USING ERRCODE = 'PV001';
    END IF;
    RETURN NEW;
END $$
--;
CREATE TRIGGER log_entries_next BEFORE INSERT ON log_entries
FOR EACH ROW
EXECUTE FUNCTION pvdm_log_entries_next()
--;
CREATE VIEW iceberg_tables AS
SELECT 'pvdm' AS catalog_name,
    (SELECT string_agg(level, '.' ORDER BY at) FROM json_array_elements_text(n.levels::json) WITH ORDINALITY AS each_level (level, at)) AS table_namespace,
    t.name AS table_name,
    t.metadata_location AS metadata_location,
    t.previous_location AS previous_metadata_location,
    'TABLE' AS iceberg_type
FROM tables t JOIN namespaces n ON n.namespace_id = t.namespace_id
WHERE t.dropped_micros IS NULL AND t.upstream IS NULL AND NOT EXISTS (SELECT 1 FROM json_array_elements_text(n.levels::json) AS level WHERE strpos(level, '.') > 0)
UNION ALL
SELECT 'pvdm', (SELECT string_agg(level, '.' ORDER BY at) FROM json_array_elements_text(n.levels::json) WITH ORDINALITY AS each_level (level, at)), v.name, v.metadata_location, NULL, 'VIEW'
FROM views v JOIN namespaces n ON n.namespace_id = v.namespace_id
WHERE v.dropped_micros IS NULL AND NOT EXISTS (SELECT 1 FROM json_array_elements_text(n.levels::json) AS level WHERE strpos(level, '.') > 0)
--;
CREATE VIEW iceberg_namespace_properties AS
SELECT 'pvdm' AS catalog_name,
    (SELECT string_agg(level, '.' ORDER BY at) FROM json_array_elements_text(n.levels::json) WITH ORDINALITY AS each_level (level, at)) AS namespace,
    key AS property_key,
    value AS property_value
FROM namespaces n, json_each_text(n.properties::json) AS property (key, value)
WHERE n.dropped_micros IS NULL AND NOT EXISTS (SELECT 1 FROM json_array_elements_text(n.levels::json) AS level WHERE strpos(level, '.') > 0)
UNION ALL
SELECT 'pvdm', (SELECT string_agg(level, '.' ORDER BY at) FROM json_array_elements_text(n.levels::json) WITH ORDINALITY AS each_level (level, at)), 'exists', 'true'
FROM namespaces n
WHERE n.dropped_micros IS NULL AND n.properties = '{}' AND NOT EXISTS (SELECT 1 FROM json_array_elements_text(n.levels::json) AS level WHERE strpos(level, '.') > 0)
--;
CREATE VIEW iceberg_left_out AS
SELECT DISTINCT 'pvdm' AS catalog_name,
    n.levels AS levels,
    (SELECT count(*) FROM tables t WHERE t.namespace_id = n.namespace_id AND t.dropped_micros IS NULL
        AND t.upstream IS NULL) AS table_count,
    (SELECT count(*) FROM views v WHERE v.namespace_id = n.namespace_id AND v.dropped_micros IS NULL) AS view_count
FROM namespaces n
WHERE n.dropped_micros IS NULL AND EXISTS (SELECT 1 FROM json_array_elements_text(n.levels::json) AS level WHERE strpos(level, '.') > 0)
