-- Written by a test from the migrated database: see docs/reference/database-roles.md.

CREATE TYPE tasker.dlq_reason AS ENUM ('staleness_timeout', 'max_retries_exceeded', 'dependency_cycle_detected', 'worker_unavailable', 'manual_dlq');
COMMENT ON TYPE tasker.dlq_reason IS 'Why a task needs an operator; the detail code of an investigation says more.';

CREATE TYPE tasker.dlq_resolution_status AS ENUM ('pending', 'manually_resolved', 'permanently_failed', 'cancelled');
COMMENT ON TYPE tasker.dlq_resolution_status IS 'Where an investigation stands: pending, or how it ended.';

CREATE TABLE tasker.access_changes (
    change_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    changed_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT access_changes_pkey PRIMARY KEY (change_id)
);
COMMENT ON TABLE tasker.access_changes IS 'Changes that take access away from somebody. Servers ask every other second which rows there are; those of the last hour are kept, and each new one removes some that are older.';

CREATE TABLE tasker.answer_links (
    link_uuid uuid NOT NULL,
    task_uuid uuid NOT NULL,
    step_uuid uuid NOT NULL,
    fence bigint NOT NULL,
    assignee text NOT NULL,
    digest bytea NOT NULL,
    created_by text NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    used_at timestamp with time zone,
    revoked_at timestamp with time zone,
    revoked_by text DEFAULT ''::text NOT NULL,
    CONSTRAINT answer_link_digest_is_sha256 CHECK ((octet_length(digest) = 32)),
    CONSTRAINT answer_link_is_used_or_revoked CHECK (((used_at IS NULL) OR (revoked_at IS NULL))),
    CONSTRAINT answer_links_pkey PRIMARY KEY (link_uuid)
);
CREATE UNIQUE INDEX answer_link_digest_is_unique ON tasker.answer_links USING btree (digest);
CREATE INDEX answer_links_of_step ON tasker.answer_links USING btree (task_uuid, step_uuid, link_uuid);
CREATE TRIGGER used_link_stays_used BEFORE UPDATE ON tasker.answer_links FOR EACH ROW WHEN ((((old.used_at IS NOT NULL) AND (new.used_at IS NULL)) OR ((old.revoked_at IS NOT NULL) AND (new.revoked_at IS NULL)))) EXECUTE FUNCTION tasker.refuse_restored_access('an answer link');
COMMENT ON TABLE tasker.answer_links IS 'Links by which a step that waits for a person is answered once, without signing in. Removed with the task.';
COMMENT ON COLUMN tasker.answer_links.fence IS 'The fence of the wait for which it was made: the step has another one after a reset.';
COMMENT ON COLUMN tasker.answer_links.assignee IS 'For whom it was made. It is worth nothing once the step is assigned to somebody else.';
COMMENT ON COLUMN tasker.answer_links.digest IS 'The SHA-256 of the token, which is shown once.';

CREATE TABLE tasker.api_key_secrets (
    prefix text NOT NULL,
    key_uuid uuid NOT NULL,
    digest bytea NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    ends_at timestamp with time zone,
    CONSTRAINT api_key_digest_is_sha256 CHECK ((octet_length(digest) = 32)),
    CONSTRAINT api_key_secrets_pkey PRIMARY KEY (prefix),
    CONSTRAINT api_key_secrets_key_uuid_fkey FOREIGN KEY (key_uuid) REFERENCES tasker.api_keys(key_uuid)
);
CREATE INDEX api_key_secrets_of_key ON tasker.api_key_secrets USING btree (key_uuid);
CREATE TRIGGER secret_change_is_noted AFTER DELETE OR UPDATE ON tasker.api_key_secrets FOR EACH STATEMENT EXECUTE FUNCTION tasker.note_access_change();
CREATE TRIGGER secret_ends_no_later BEFORE UPDATE ON tasker.api_key_secrets FOR EACH ROW WHEN ((COALESCE(new.ends_at, 'infinity'::timestamp with time zone) > COALESCE(old.ends_at, 'infinity'::timestamp with time zone))) EXECUTE FUNCTION tasker.refuse_restored_access('a secret');
COMMENT ON TABLE tasker.api_key_secrets IS 'Secrets of keys: one of each, and for a while the one before, when a key is rotated.';
COMMENT ON COLUMN tasker.api_key_secrets.prefix IS 'How the secret begins. It is shown, so that a key that was found somewhere can be looked up.';

CREATE TABLE tasker.api_keys (
    key_uuid uuid NOT NULL,
    name text NOT NULL,
    grants text[] NOT NULL,
    created_by text NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    expires_at timestamp with time zone,
    last_used_at timestamp with time zone,
    revoked_at timestamp with time zone,
    revoked_by text,
    CONSTRAINT api_key_name_is_short CHECK (((length(name) >= 1) AND (length(name) <= 100))),
    CONSTRAINT api_key_revoked_by_somebody CHECK (((revoked_at IS NULL) = (revoked_by IS NULL))),
    CONSTRAINT api_keys_pkey PRIMARY KEY (key_uuid)
);
CREATE UNIQUE INDEX api_key_name_is_unique ON tasker.api_keys USING btree (name) WHERE (revoked_at IS NULL);
CREATE INDEX api_keys_by_time ON tasker.api_keys USING btree (created_at DESC, key_uuid DESC);
CREATE TRIGGER key_change_is_noted AFTER UPDATE OF grants, expires_at, revoked_at, name ON tasker.api_keys FOR EACH STATEMENT EXECUTE FUNCTION tasker.note_access_change();
CREATE TRIGGER key_removal_is_noted AFTER DELETE ON tasker.api_keys FOR EACH STATEMENT EXECUTE FUNCTION tasker.note_access_change();
CREATE TRIGGER revoked_key_stays_revoked BEFORE UPDATE ON tasker.api_keys FOR EACH ROW WHEN (((old.revoked_at IS NOT NULL) AND (new.revoked_at IS NULL))) EXECUTE FUNCTION tasker.refuse_restored_access('a key');
COMMENT ON TABLE tasker.api_keys IS 'Keys with which programs sign in. What is recorded as the actor is key:name. Revoked keys are kept: history names them.';
COMMENT ON COLUMN tasker.api_keys.grants IS 'What the key may do: role@namespace, with * for all namespaces.';
COMMENT ON COLUMN tasker.api_keys.last_used_at IS 'Written at most once a minute.';

CREATE TABLE tasker.attribute_names (
    namespace text NOT NULL,
    name text NOT NULL,
    type text NOT NULL,
    CONSTRAINT attribute_type_is_known CHECK ((type = ANY (ARRAY['text'::text, 'number'::text, 'time'::text, 'bool'::text]))),
    CONSTRAINT attribute_names_pkey PRIMARY KEY (namespace, name)
);
CREATE INDEX attribute_names_by_name ON tasker.attribute_names USING btree (name);
COMMENT ON TABLE tasker.attribute_names IS 'The search attributes that templates declare, with the type that each has in the whole namespace.';

CREATE TABLE tasker.audit_events (
    audit_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    actor text NOT NULL,
    action text NOT NULL,
    subject text NOT NULL,
    data jsonb DEFAULT '{}'::jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT audit_events_pkey PRIMARY KEY (audit_id)
);
CREATE INDEX audit_events_by_action ON tasker.audit_events USING btree (action, audit_id DESC);
CREATE TRIGGER audit_is_never_emptied BEFORE TRUNCATE ON tasker.audit_events FOR EACH STATEMENT EXECUTE FUNCTION tasker.audit_only_grows();
CREATE TRIGGER audit_never_changes BEFORE DELETE OR UPDATE ON tasker.audit_events FOR EACH ROW EXECUTE FUNCTION tasker.audit_only_grows();
COMMENT ON TABLE tasker.audit_events IS 'What happened to Tasker itself and who did it: events that could not be sent, and what operators did about it. It only grows.';

CREATE TABLE tasker.breaker_counts (
    server_uuid uuid NOT NULL,
    namespace text NOT NULL,
    handler text NOT NULL,
    cause_key text NOT NULL,
    cause text NOT NULL,
    failed integer NOT NULL,
    tasks integer NOT NULL,
    concluded integer NOT NULL,
    counted_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT breaker_counts_pkey PRIMARY KEY (server_uuid, namespace, handler, cause_key)
);
COMMENT ON TABLE tasker.breaker_counts IS 'How many attempts of a handler each server saw fail with one cause within the window of breakers.';
COMMENT ON COLUMN tasker.breaker_counts.tasks IS 'Of how many tasks, counted up to the number that opens a breaker.';
COMMENT ON COLUMN tasker.breaker_counts.concluded IS 'All attempts of the handler that ended within the window.';

CREATE TABLE tasker.case_fingerprints (
    fingerprint uuid NOT NULL,
    case_id uuid NOT NULL,
    home_case_id uuid NOT NULL,
    version smallint NOT NULL,
    error_type text NOT NULL,
    error_pattern text NOT NULL,
    first_seen_at timestamp with time zone NOT NULL,
    CONSTRAINT case_fingerprints_pkey PRIMARY KEY (fingerprint),
    CONSTRAINT case_fingerprints_case_id_fkey FOREIGN KEY (case_id) REFERENCES tasker.cases(case_id),
    CONSTRAINT case_fingerprints_home_case_id_fkey FOREIGN KEY (home_case_id) REFERENCES tasker.cases(case_id)
);
CREATE INDEX case_fingerprints_by_case ON tasker.case_fingerprints USING btree (case_id);
CREATE INDEX case_fingerprints_by_home ON tasker.case_fingerprints USING btree (home_case_id);
COMMENT ON TABLE tasker.case_fingerprints IS 'Which case a fingerprint belongs to. A merge changes case_id, and can be undone because home_case_id stays.';
COMMENT ON COLUMN tasker.case_fingerprints.version IS 'The version of the rules that the fingerprint was first computed with.';

CREATE TABLE tasker.case_history (
    history_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    case_id uuid NOT NULL,
    event text NOT NULL,
    actor text NOT NULL,
    notes text,
    metadata jsonb,
    changed_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT case_notes_are_short CHECK ((length(notes) <= 10000)),
    CONSTRAINT case_history_pkey PRIMARY KEY (history_id),
    CONSTRAINT case_history_case_id_fkey FOREIGN KEY (case_id) REFERENCES tasker.cases(case_id)
);
CREATE INDEX case_history_by_case ON tasker.case_history USING btree (case_id, history_id);
CREATE TRIGGER case_history_is_never_removed BEFORE TRUNCATE ON tasker.case_history FOR EACH STATEMENT EXECUTE FUNCTION tasker.refuse_change_of_record();
CREATE TRIGGER case_history_never_changes BEFORE DELETE OR UPDATE ON tasker.case_history FOR EACH ROW EXECUTE FUNCTION tasker.refuse_change_of_record();
COMMENT ON TABLE tasker.case_history IS 'Every change of a case: who, when, what. Append-only.';

CREATE TABLE tasker.case_members (
    dlq_entry_uuid uuid NOT NULL,
    namespace text NOT NULL,
    fingerprint uuid,
    fingerprint_version smallint DEFAULT 0 NOT NULL,
    opened_at timestamp with time zone NOT NULL,
    acted_at timestamp with time zone,
    failed_again_at timestamp with time zone,
    recovered_at timestamp with time zone,
    ended_at timestamp with time zone,
    revision integer DEFAULT 0 NOT NULL,
    task_name text NOT NULL,
    task_version text NOT NULL,
    step_name text NOT NULL,
    dlq_reason tasker.dlq_reason NOT NULL,
    detail_code text NOT NULL,
    error_type text,
    error_message text,
    error_fingerprint text,
    worker_uuid text,
    worker_name text,
    worker_version text,
    attempted_at timestamp with time zone,
    resolution_status tasker.dlq_resolution_status,
    CONSTRAINT case_members_pkey PRIMARY KEY (dlq_entry_uuid)
) WITH (fillfactor=70);
CREATE INDEX case_members_by_end ON tasker.case_members USING btree (ended_at) INCLUDE (resolution_status, acted_at, failed_again_at, dlq_entry_uuid) WHERE (ended_at IS NOT NULL);
CREATE INDEX case_members_ended ON tasker.case_members USING btree (fingerprint, ended_at DESC) WHERE (ended_at IS NOT NULL);
CREATE INDEX case_members_of_namespace_by_end ON tasker.case_members USING btree (namespace, ended_at) INCLUDE (resolution_status, acted_at, failed_again_at, dlq_entry_uuid) WHERE (ended_at IS NOT NULL);
CREATE INDEX case_members_open ON tasker.case_members USING btree (namespace, fingerprint, opened_at) INCLUDE (acted_at, failed_again_at, recovered_at, dlq_entry_uuid) WHERE (ended_at IS NULL);
CREATE INDEX case_members_to_classify ON tasker.case_members USING btree (fingerprint_version, opened_at) WHERE (ended_at IS NULL);
COMMENT ON TABLE tasker.case_members IS 'A row for each investigation: its newest failure, by which it belongs to a case, and how far its repair is. It follows the investigation and its history.';
COMMENT ON COLUMN tasker.case_members.fingerprint IS 'Null until it is computed, a moment after the failure.';
COMMENT ON COLUMN tasker.case_members.fingerprint_version IS 'The version of the rules it was computed with; 0: it is to be computed.';
COMMENT ON COLUMN tasker.case_members.acted_at IS 'When a person last repaired a step of the task, or cancelled the task.';
COMMENT ON COLUMN tasker.case_members.failed_again_at IS 'When a step of the task last failed for good after that.';
COMMENT ON COLUMN tasker.case_members.revision IS 'Rises when the failure is another one.';
COMMENT ON COLUMN tasker.case_members.error_message IS 'The redacted message of the newest failure, as it is stored of the step.';
COMMENT ON COLUMN tasker.case_members.error_fingerprint IS 'What the handler says is the same failure.';
COMMENT ON COLUMN tasker.case_members.attempted_at IS 'When the attempt began that failed.';
COMMENT ON COLUMN tasker.case_members.resolution_status IS 'How the investigation ended. Null while it is open, and when it ended before the column was added.';

CREATE TABLE tasker.case_refinements (
    refinement_id uuid DEFAULT tasker.uuid_generate_v7() NOT NULL,
    case_id uuid NOT NULL,
    fingerprint uuid NOT NULL,
    field text NOT NULL,
    literal text NOT NULL,
    actor text NOT NULL,
    reason text NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    applied_at timestamp with time zone,
    CONSTRAINT refinement_field_is_known CHECK ((field = ANY (ARRAY['error_message'::text, 'error_type'::text, 'worker_version'::text, 'task_version'::text]))),
    CONSTRAINT refinement_literal_is_short CHECK (((length(literal) >= 1) AND (length(literal) <= 200))),
    CONSTRAINT case_refinements_pkey PRIMARY KEY (refinement_id),
    CONSTRAINT case_refinements_fingerprint_field_literal_key UNIQUE (fingerprint, field, literal),
    CONSTRAINT case_refinements_case_id_fkey FOREIGN KEY (case_id) REFERENCES tasker.cases(case_id),
    CONSTRAINT case_refinements_fingerprint_fkey FOREIGN KEY (fingerprint) REFERENCES tasker.case_fingerprints(fingerprint)
);
CREATE INDEX case_refinements_of_case ON tasker.case_refinements USING btree (case_id);
CREATE INDEX case_refinements_to_apply ON tasker.case_refinements USING btree (created_at) WHERE (applied_at IS NULL);
COMMENT ON TABLE tasker.case_refinements IS 'How cases were split: failures of a fingerprint that have a text in a field are another case.';
COMMENT ON COLUMN tasker.case_refinements.applied_at IS 'When those that were open then had followed.';

CREATE TABLE tasker.cases (
    case_id uuid DEFAULT tasker.uuid_generate_v7() NOT NULL,
    namespace text NOT NULL,
    task_name text NOT NULL,
    step_name text NOT NULL,
    dlq_reason tasker.dlq_reason NOT NULL,
    detail_code text NOT NULL,
    error_type text NOT NULL,
    error_pattern text NOT NULL,
    state text DEFAULT 'new'::text NOT NULL,
    state_since timestamp with time zone NOT NULL,
    first_seen_at timestamp with time zone NOT NULL,
    level integer DEFAULT 0 NOT NULL,
    owner text,
    owned_until timestamp with time zone,
    snoozed_until timestamp with time zone,
    snooze_above bigint,
    fixed_in text,
    resolved_at timestamp with time zone,
    merged_into uuid,
    updated_at timestamp with time zone NOT NULL,
    digested_at timestamp with time zone,
    CONSTRAINT case_owner_has_an_end CHECK (((owner IS NULL) = (owned_until IS NULL))),
    CONSTRAINT case_resolved_has_a_time CHECK (((state = 'resolved'::text) = (resolved_at IS NOT NULL))),
    CONSTRAINT case_resting_has_an_end CHECK (((snooze_above IS NULL) OR (snoozed_until IS NOT NULL))),
    CONSTRAINT case_state_is_known CHECK ((state = ANY (ARRAY['new'::text, 'ongoing'::text, 'escalating'::text, 'regressed'::text, 'resting'::text, 'resolved'::text]))),
    CONSTRAINT cases_pkey PRIMARY KEY (case_id),
    CONSTRAINT cases_merged_into_fkey FOREIGN KEY (merged_into) REFERENCES tasker.cases(case_id)
);
CREATE INDEX cases_open ON tasker.cases USING btree (case_id) WHERE (state <> 'resolved'::text);
CREATE INDEX cases_open_of_namespace ON tasker.cases USING btree (namespace, case_id) WHERE (state <> 'resolved'::text);
CREATE INDEX cases_resolved ON tasker.cases USING btree (resolved_at DESC, case_id) WHERE (state = 'resolved'::text);
CREATE INDEX cases_resolved_of_namespace ON tasker.cases USING btree (namespace, resolved_at DESC, case_id) WHERE (state = 'resolved'::text);
COMMENT ON TABLE tasker.cases IS 'Investigations of one cause: where it is worked on together. How many are open is counted in tasker.case_members.';
COMMENT ON COLUMN tasker.cases.step_name IS 'Empty when no step failed.';
COMMENT ON COLUMN tasker.cases.error_pattern IS 'The error of its first investigation, without what differs from task to task.';
COMMENT ON COLUMN tasker.cases.level IS 'The highest of 100, 1,000 and 10,000 that its open investigations have passed; 0 for none. Each counts as an escalation once.';
COMMENT ON COLUMN tasker.cases.owned_until IS 'When the ownership ends by itself.';
COMMENT ON COLUMN tasker.cases.snoozed_until IS 'The case rests until then, or until more than snooze_above investigations are open.';
COMMENT ON COLUMN tasker.cases.fixed_in IS 'The version of the worker in which the cause is repaired: failures of earlier ones are no regression.';
COMMENT ON COLUMN tasker.cases.merged_into IS 'The case that its fingerprints belong to since it was merged.';
COMMENT ON COLUMN tasker.cases.digested_at IS 'When it was last part of a digest: it was too small to be told of by itself, and nobody had taken it.';

CREATE TABLE tasker.child_signals (
    kind text NOT NULL,
    child_uuid uuid NOT NULL,
    parent_task_uuid uuid NOT NULL,
    parent_step_uuid uuid NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT child_signal_is_known CHECK ((kind = ANY (ARRAY['ended'::text, 'cancel'::text]))),
    CONSTRAINT child_signals_pkey PRIMARY KEY (kind, child_uuid)
) WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=2000);
CREATE INDEX child_signals_by_time ON tasker.child_signals USING btree (kind, created_at);
CREATE INDEX child_signals_of_step ON tasker.child_signals USING btree (parent_step_uuid);
COMMENT ON TABLE tasker.child_signals IS 'What child tasks and the steps that started them have to tell each other: left by the transaction that causes it, removed by the one that does it.';
COMMENT ON COLUMN tasker.child_signals.kind IS 'ended: the child has come to its end, which its parent step has to be told. cancel: nobody waits for the child any more, so it is to be cancelled.';

CREATE TABLE tasker.claim_conditions (
    condition_uuid uuid NOT NULL,
    CONSTRAINT claim_conditions_pkey PRIMARY KEY (condition_uuid)
);
COMMENT ON TABLE tasker.claim_conditions IS 'The holds that block, and the operations that say which workers take their steps, until the last of their items has ended. While there is none, claims ask of no step.';

CREATE TABLE tasker.claims (
    look_at timestamp with time zone NOT NULL,
    claimed_at timestamp with time zone NOT NULL,
    tasks uuid[] NOT NULL,
    steps uuid[] NOT NULL
) WITH (autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=5000);
CREATE INDEX claims_to_look_at ON tasker.claims USING btree (look_at);
COMMENT ON TABLE tasker.claims IS 'A row for each claim of which a lease may still run: where expired leases are found. Lease and worker are in tasker.workflow_steps.';
COMMENT ON COLUMN tasker.claims.look_at IS 'When to look at it: some seconds after the claim, when most steps have ended, and then when the first of its leases may have expired.';
COMMENT ON COLUMN tasker.claims.claimed_at IS 'When the steps were claimed. A step that was claimed again belongs to another row.';
COMMENT ON COLUMN tasker.claims.tasks IS 'The tasks of the steps, in the same order.';
COMMENT ON COLUMN tasker.claims.steps IS 'The steps that were claimed.';

CREATE TABLE tasker.deadlines (
    task_uuid uuid NOT NULL,
    step_uuid uuid NOT NULL,
    namespace text NOT NULL,
    due_at timestamp with time zone NOT NULL,
    warn_at timestamp with time zone NOT NULL,
    look_at timestamp with time zone NOT NULL,
    warn_s integer,
    investigate boolean NOT NULL,
    orders boolean NOT NULL,
    source text NOT NULL,
    set_by text DEFAULT ''::text NOT NULL,
    set_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    warned_at timestamp with time zone,
    announced_at timestamp with time zone,
    ended_at timestamp with time zone,
    CONSTRAINT deadline_is_in_bounds CHECK (((warn_at <= due_at) AND (due_at <= (set_at + '1826 days'::interval)) AND (warn_s >= 0))),
    CONSTRAINT deadline_source_is_known CHECK ((source = ANY (ARRAY['request'::text, 'template'::text, 'operator'::text]))),
    CONSTRAINT deadline_that_is_asked_for_is_ahead CHECK (((source = 'template'::text) OR (due_at > set_at))),
    CONSTRAINT deadlines_pkey PRIMARY KEY (task_uuid, step_uuid)
);
CREATE INDEX deadlines_of_open_tasks ON tasker.deadlines USING btree (namespace, due_at, task_uuid) WHERE ((ended_at IS NULL) AND (step_uuid = '00000000-0000-0000-0000-000000000000'::uuid));
CREATE INDEX deadlines_to_investigate ON tasker.deadlines USING btree (due_at) WHERE ((ended_at IS NULL) AND investigate);
CREATE INDEX deadlines_to_look_at ON tasker.deadlines USING btree (look_at, task_uuid, step_uuid) WHERE (look_at < 'infinity'::timestamp with time zone);
COMMENT ON TABLE tasker.deadlines IS 'By when tasks and steps are due. The row stays when the task has ended, and is removed with it.';
COMMENT ON COLUMN tasker.deadlines.step_uuid IS 'The step that is due; all zeros: the whole task is.';
COMMENT ON COLUMN tasker.deadlines.look_at IS 'When people are told next: of what is due soon, or overdue. Infinity: there is nothing to tell.';
COMMENT ON COLUMN tasker.deadlines.warn_s IS 'How long before people are told. Null: when four fifths of the time are over.';
COMMENT ON COLUMN tasker.deadlines.investigate IS 'The sweep opens an investigation once it is overdue.';
COMMENT ON COLUMN tasker.deadlines.orders IS 'Of steps of one priority the one that is due first is handed out first.';
COMMENT ON COLUMN tasker.deadlines.source IS 'Who said so last: the request, the template, or an operator.';
COMMENT ON COLUMN tasker.deadlines.warned_at IS 'When people were told that it is due soon. Null: they were not.';
COMMENT ON COLUMN tasker.deadlines.announced_at IS 'When people were told that it is overdue. Null: they were not.';
COMMENT ON COLUMN tasker.deadlines.ended_at IS 'When its task ended or was given up. Null: it has not.';

CREATE TABLE tasker.debounced_tasks (
    namespace text NOT NULL,
    name text NOT NULL,
    debounce_key text NOT NULL,
    task_uuid uuid NOT NULL,
    latest_start timestamp with time zone NOT NULL,
    CONSTRAINT debounced_task_has_its_key PRIMARY KEY (namespace, name, debounce_key),
    CONSTRAINT debounced_task_has_one_key UNIQUE (task_uuid)
);
COMMENT ON TABLE tasker.debounced_tasks IS 'The pending tasks into which requests with their debounce key are merged. The row goes when its task starts or ends.';
COMMENT ON COLUMN tasker.debounced_tasks.latest_start IS 'It starts by then, however many requests come.';

CREATE TABLE tasker.deferred_work (
    kind text NOT NULL,
    task_uuid uuid NOT NULL,
    step_uuid uuid DEFAULT '00000000-0000-0000-0000-000000000000'::uuid NOT NULL,
    failures integer DEFAULT 1 NOT NULL,
    last_error text NOT NULL,
    first_failed_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    last_failed_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    retry_at timestamp with time zone NOT NULL,
    CONSTRAINT deferred_work_error_is_short CHECK ((length(last_error) <= 1000)),
    CONSTRAINT deferred_work_failures_are_counted CHECK ((failures > 0)),
    CONSTRAINT deferred_work_kind_is_short CHECK (((length(kind) >= 1) AND (length(kind) <= 50))),
    CONSTRAINT deferred_work_pkey PRIMARY KEY (kind, task_uuid, step_uuid)
);
CREATE INDEX deferred_work_by_retry ON tasker.deferred_work USING btree (retry_at);
COMMENT ON TABLE tasker.deferred_work IS 'Work of the server that failed and is tried again later: one row for each task or step and each kind of work. A success deletes the row.';
COMMENT ON COLUMN tasker.deferred_work.kind IS 'The loop that failed: sweep, or the name of a timer.';
COMMENT ON COLUMN tasker.deferred_work.step_uuid IS 'All zeros when the work concerns the whole task.';
COMMENT ON COLUMN tasker.deferred_work.failures IS 'Failures in a row.';
COMMENT ON COLUMN tasker.deferred_work.retry_at IS 'The work is skipped until then. The delay doubles with each failure, from a second to an hour.';

CREATE TABLE tasker.dispatch_canary (
    only_row boolean DEFAULT true NOT NULL,
    sent_at timestamp with time zone,
    returned_at timestamp with time zone,
    CONSTRAINT dispatch_canary_is_one_row CHECK (only_row),
    CONSTRAINT dispatch_canary_pkey PRIMARY KEY (only_row)
);
COMMENT ON TABLE tasker.dispatch_canary IS 'A message that no worker takes, sent now and then, to see that the message broker dead-letters: when it was sent last, and when one came back.';

CREATE TABLE tasker.dispatch_outbox (
    "position" bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    task_uuid uuid NOT NULL,
    step_uuid uuid NOT NULL,
    namespace text NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    due_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT dispatch_outbox_pkey PRIMARY KEY ("position")
) WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=2000);
CREATE INDEX dispatch_outbox_by_step ON tasker.dispatch_outbox USING btree (step_uuid);
COMMENT ON TABLE tasker.dispatch_outbox IS 'Steps to be announced through the message broker, written in the transaction that enqueues them and removed once the broker has confirmed.';
COMMENT ON COLUMN tasker.dispatch_outbox.due_at IS 'Not to be announced before this instant: after a try that failed, and for a step that came to a worker without its handler.';

CREATE TABLE tasker.dlq_base_priorities (
    dlq_reason tasker.dlq_reason NOT NULL,
    minutes integer NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT dlq_base_priority_is_not_negative CHECK ((minutes >= 0)),
    CONSTRAINT dlq_base_priorities_pkey PRIMARY KEY (dlq_reason)
);
COMMENT ON TABLE tasker.dlq_base_priorities IS 'Base priorities of the reasons, from the server''s configuration: minutes of age that a reason is worth in the investigation queue.';

CREATE TABLE tasker.dlq_totals (
    namespace text NOT NULL,
    dlq_reason tasker.dlq_reason NOT NULL,
    resolution_status tasker.dlq_resolution_status NOT NULL,
    entries bigint NOT NULL,
    open_seconds numeric NOT NULL,
    oldest_entry timestamp with time zone NOT NULL,
    newest_entry timestamp with time zone NOT NULL,
    CONSTRAINT dlq_totals_are_of_ended_entries CHECK ((resolution_status <> 'pending'::tasker.dlq_resolution_status)),
    CONSTRAINT dlq_totals_pkey PRIMARY KEY (namespace, dlq_reason, resolution_status)
);
COMMENT ON TABLE tasker.dlq_totals IS 'Investigations that have ended, added up by namespace, reason and how they ended.';
COMMENT ON COLUMN tasker.dlq_totals.open_seconds IS 'How long they were open, all together.';

CREATE TABLE tasker.due_queues (
    namespace text NOT NULL,
    handler text NOT NULL,
    CONSTRAINT due_queues_pkey PRIMARY KEY (namespace, handler)
);
COMMENT ON TABLE tasker.due_queues IS 'Queues in which a template has the steps that are due first come first. Claims of other queues do not look at due times.';

CREATE TABLE tasker.emission_sinks (
    sink text NOT NULL,
    taken_before xid8 DEFAULT pg_snapshot_xmin(pg_current_snapshot()) NOT NULL,
    holder uuid,
    held_until timestamp with time zone,
    failing_since timestamp with time zone,
    last_error text,
    last_success_at timestamp with time zone,
    next_try_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    opened_in pg_snapshot DEFAULT pg_current_snapshot() NOT NULL,
    events boolean DEFAULT true NOT NULL,
    CONSTRAINT emission_sink_failing_says_why CHECK (((failing_since IS NULL) = (last_error IS NULL))),
    CONSTRAINT emission_sinks_pkey PRIMARY KEY (sink)
);
COMMENT ON TABLE tasker.emission_sinks IS 'Where events are sent. A new sink receives the events from then on.';
COMMENT ON COLUMN tasker.emission_sinks.taken_before IS 'Events of transactions before this one have their rows in emissions.';
COMMENT ON COLUMN tasker.emission_sinks.holder IS 'The server that sends to it now, until held_until: one at a time, so that events keep their order.';
COMMENT ON COLUMN tasker.emission_sinks.next_try_at IS 'Not to be tried before this instant, after it failed.';
COMMENT ON COLUMN tasker.emission_sinks.opened_in IS 'Events whose transactions this snapshot sees are listed for the sink already or are older than it. It advances with each complete scan for new events.';
COMMENT ON COLUMN tasker.emission_sinks.events IS 'It receives events, and not only messages.';

CREATE TABLE tasker.emissions (
    sink text NOT NULL,
    "position" bigint NOT NULL,
    event_uuid uuid NOT NULL,
    task_uuid uuid NOT NULL,
    state text DEFAULT 'pending'::text NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    refusals integer DEFAULT 0 NOT NULL,
    next_attempt_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    last_attempt_at timestamp with time zone,
    last_error text,
    published_at timestamp with time zone,
    namespace text,
    CONSTRAINT emission_published_has_its_time CHECK (((state <> 'published'::text) OR (published_at IS NOT NULL))),
    CONSTRAINT emission_state_is_known CHECK ((state = ANY (ARRAY['pending'::text, 'published'::text, 'set_aside'::text]))),
    CONSTRAINT emissions_pkey PRIMARY KEY (sink, "position"),
    CONSTRAINT emissions_position_fkey FOREIGN KEY ("position") REFERENCES tasker.outbox("position"),
    CONSTRAINT emissions_sink_fkey FOREIGN KEY (sink) REFERENCES tasker.emission_sinks(sink)
) WITH (fillfactor=85);
CREATE INDEX emissions_by_namespace ON tasker.emissions USING btree (namespace, sink, "position");
CREATE INDEX emissions_by_position ON tasker.emissions USING hash ("position");
CREATE INDEX emissions_due ON tasker.emissions USING btree (sink, next_attempt_at, "position") WHERE ((state = 'pending'::text) AND (next_attempt_at > '-infinity'::timestamp with time zone));
CREATE INDEX emissions_pending ON tasker.emissions USING btree (sink, "position") WHERE ((state = 'pending'::text) AND ("position" > 0));
CREATE INDEX emissions_pending_by_task ON tasker.emissions USING btree (sink, task_uuid, "position") WHERE (state = 'pending'::text);
CREATE INDEX emissions_set_aside ON tasker.emissions USING btree (sink, "position") WHERE (state = 'set_aside'::text);
CREATE INDEX emissions_unpublished_by_namespace ON tasker.emissions USING btree (namespace, sink, state, "position") WHERE ((state <> 'published'::text) AND (namespace > ''::text));
CREATE TRIGGER emission_namespace_is_noted BEFORE INSERT ON tasker.emissions FOR EACH ROW WHEN ((new.namespace IS NULL)) EXECUTE FUNCTION tasker.note_namespace();
COMMENT ON TABLE tasker.emissions IS 'What became of sending an event to a sink: one row each.';
COMMENT ON COLUMN tasker.emissions.attempts IS 'How often it was sent, all tries counted.';
COMMENT ON COLUMN tasker.emissions.refusals IS 'How often the sink refused the event itself; after some it is set aside.';
COMMENT ON COLUMN tasker.emissions.namespace IS 'The namespace of the task.';

CREATE TABLE tasker.held_steps (
    hold_uuid uuid,
    namespace text NOT NULL,
    handler text NOT NULL,
    priority integer NOT NULL,
    state_since timestamp with time zone NOT NULL,
    step_uuid uuid NOT NULL,
    task_uuid uuid NOT NULL,
    queue_ttl_ms bigint,
    inputs_bytes bigint,
    held_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    counted_until timestamp with time zone,
    limit_key_id bigint,
    released_by uuid,
    CONSTRAINT held_steps_pkey PRIMARY KEY (task_uuid, step_uuid)
);
CREATE INDEX held_steps_by_limit ON tasker.held_steps USING btree (limit_key_id, priority DESC, state_since) WHERE (limit_key_id IS NOT NULL);
CREATE INDEX held_steps_by_queue ON tasker.held_steps USING btree (namespace, handler);
CREATE INDEX held_steps_of_limit ON tasker.held_steps USING btree (namespace, handler, limit_key_id, priority DESC, state_since) WHERE (limit_key_id IS NOT NULL);
CREATE INDEX held_steps_to_release ON tasker.held_steps USING btree (hold_uuid, priority DESC, state_since, step_uuid);
COMMENT ON TABLE tasker.held_steps IS 'The enqueued steps that a hold or a limit keeps from claims, with their rows of tasker.ready_steps. If the step is elsewhere by now the row is outdated, and goes when the hold ends, or with the next claim.';
COMMENT ON COLUMN tasker.held_steps.hold_uuid IS 'The hold. Null: a limit keeps it.';
COMMENT ON COLUMN tasker.held_steps.held_at IS 'Since when its times stand still.';
COMMENT ON COLUMN tasker.held_steps.counted_until IS 'Until when the time for which its task is held was added to what the task may take as a whole. Null: from held_at on it was not.';
COMMENT ON COLUMN tasker.held_steps.limit_key_id IS 'The key of the limit. Null: a hold keeps it.';
COMMENT ON COLUMN tasker.held_steps.released_by IS 'The hold that let it go before a limit kept it from claims.';

CREATE TABLE tasker.hold_history (
    change_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    hold_uuid uuid NOT NULL,
    event text NOT NULL,
    actor text NOT NULL,
    reason text,
    metadata jsonb DEFAULT '{}'::jsonb NOT NULL,
    changed_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT hold_history_pkey PRIMARY KEY (change_id),
    CONSTRAINT hold_history_hold_uuid_fkey FOREIGN KEY (hold_uuid) REFERENCES tasker.holds(hold_uuid) ON DELETE CASCADE
);
CREATE INDEX hold_history_by_hold ON tasker.hold_history USING btree (hold_uuid, change_id);
COMMENT ON TABLE tasker.hold_history IS 'What happened to each hold.';

CREATE TABLE tasker.hold_releases (
    hold_uuid uuid NOT NULL,
    task_uuid uuid NOT NULL,
    step_uuid uuid NOT NULL,
    wave integer NOT NULL,
    fence bigint NOT NULL,
    released_at timestamp with time zone NOT NULL,
    outcome text,
    failure text,
    judged_at timestamp with time zone,
    CONSTRAINT outcome_of_a_release_is_known CHECK ((outcome = ANY (ARRAY['succeeded'::text, 'failed'::text, 'no_answer'::text, 'gone'::text]))),
    CONSTRAINT hold_releases_pkey PRIMARY KEY (hold_uuid, task_uuid, step_uuid, released_at),
    CONSTRAINT hold_releases_hold_uuid_fkey FOREIGN KEY (hold_uuid) REFERENCES tasker.holds(hold_uuid) ON DELETE CASCADE
);
CREATE INDEX hold_releases_awaited ON tasker.hold_releases USING btree (hold_uuid) WHERE (outcome IS NULL);
CREATE INDEX hold_releases_by_age ON tasker.hold_releases USING btree (hold_uuid, released_at);
CREATE INDEX hold_releases_in_flight ON tasker.hold_releases USING btree (task_uuid, step_uuid) WHERE (outcome IS NULL);
COMMENT ON TABLE tasker.hold_releases IS 'Steps that a hold let go as a probe (wave 0) or in a wave that has to succeed before the next.';
COMMENT ON COLUMN tasker.hold_releases.fence IS 'Of the step when it was let go: an attempt that was claimed later has a higher one.';
COMMENT ON COLUMN tasker.hold_releases.outcome IS 'What became of the attempt; null while it is awaited.';
COMMENT ON COLUMN tasker.hold_releases.failure IS 'With what it failed, without what must not be shown.';

CREATE TABLE tasker.holds (
    hold_uuid uuid NOT NULL,
    kind text NOT NULL,
    namespace text NOT NULL,
    handler text,
    task_name text,
    step_name text,
    case_id uuid,
    cause text,
    cause_key text,
    reason text NOT NULL,
    owner text NOT NULL,
    state text DEFAULT 'active'::text NOT NULL,
    blocks boolean DEFAULT true NOT NULL,
    waves integer[] DEFAULT '{}'::integer[] NOT NULL,
    wave integer DEFAULT 0 NOT NULL,
    wave_since timestamp with time zone,
    wave_steps integer DEFAULT 0 NOT NULL,
    began_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    ends_at timestamp with time zone NOT NULL,
    warned_at timestamp with time zone,
    next_probe_at timestamp with time zone,
    probes integer DEFAULT 0 NOT NULL,
    failed_probes integer DEFAULT 0 NOT NULL,
    released bigint DEFAULT 0 NOT NULL,
    ended_at timestamp with time zone,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT hold_has_an_owner CHECK (((length(owner) >= 1) AND (length(owner) <= 255))),
    CONSTRAINT hold_kind_is_known CHECK ((kind = ANY (ARRAY['manual'::text, 'breaker'::text]))),
    CONSTRAINT hold_state_is_known CHECK ((state = ANY (ARRAY['active'::text, 'releasing'::text, 'ended'::text]))),
    CONSTRAINT hold_that_ended_blocks_nothing CHECK (((state <> 'ended'::text) OR (NOT blocks))),
    CONSTRAINT hold_that_ended_has_its_time CHECK (((state = 'ended'::text) = (ended_at IS NOT NULL))),
    CONSTRAINT hold_that_is_active_blocks CHECK (((state <> 'active'::text) OR blocks)),
    CONSTRAINT holds_pkey PRIMARY KEY (hold_uuid)
);
CREATE INDEX holds_by_age ON tasker.holds USING btree (began_at, hold_uuid);
CREATE INDEX holds_that_block ON tasker.holds USING btree (namespace) WHERE blocks;
CREATE UNIQUE INDEX one_blocking_breaker_of_a_handler ON tasker.holds USING btree (namespace, handler) WHERE ((kind = 'breaker'::text) AND blocks);
CREATE INDEX open_holds ON tasker.holds USING btree (hold_uuid) WHERE (ended_at IS NULL);
CREATE TRIGGER follow_inserted_hold AFTER INSERT ON tasker.holds FOR EACH ROW EXECUTE FUNCTION tasker.follow_hold();
CREATE TRIGGER follow_updated_hold AFTER UPDATE OF blocks ON tasker.holds FOR EACH ROW WHEN ((new.blocks <> old.blocks)) EXECUTE FUNCTION tasker.follow_hold();
COMMENT ON TABLE tasker.holds IS 'Steps of which scope are not handed out, since when, until when, and why.';
COMMENT ON COLUMN tasker.holds.kind IS 'manual: a person began it. breaker: many failures of one cause did.';
COMMENT ON COLUMN tasker.holds.handler IS 'Only steps with this handler; null: any.';
COMMENT ON COLUMN tasker.holds.task_name IS 'Only steps of tasks of this template; null: any.';
COMMENT ON COLUMN tasker.holds.step_name IS 'Only steps with this name; null: any.';
COMMENT ON COLUMN tasker.holds.case_id IS 'The case that it was begun for.';
COMMENT ON COLUMN tasker.holds.cause_key IS 'Of a breaker: the key of the cause that opened it.';
COMMENT ON COLUMN tasker.holds.blocks IS 'Whether steps of the scope are held. False once the last wave has succeeded, while the rest is let go, and afterwards.';
COMMENT ON COLUMN tasker.holds.waves IS 'How many steps each wave of the release lets go; after the last all that are left.';
COMMENT ON COLUMN tasker.holds.wave IS 'How many waves of the release have begun.';
COMMENT ON COLUMN tasker.holds.released IS 'How many steps were let go.';

CREATE TABLE tasker.human_step_history (
    change_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    task_uuid uuid NOT NULL,
    step_uuid uuid NOT NULL,
    event text NOT NULL,
    actor text NOT NULL,
    reason text DEFAULT ''::text NOT NULL,
    assignee text DEFAULT ''::text NOT NULL,
    changed_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT human_step_event_is_known CHECK ((event = ANY (ARRAY['assigned'::text, 'unassigned'::text, 'escalated'::text]))),
    CONSTRAINT human_step_history_pkey PRIMARY KEY (change_id)
);
CREATE INDEX human_step_history_of_step ON tasker.human_step_history USING btree (task_uuid, step_uuid, change_id);
COMMENT ON TABLE tasker.human_step_history IS 'Who gave an external step another assignee. Removed with its task.';
COMMENT ON COLUMN tasker.human_step_history.assignee IS 'Who was to answer from then on.';

CREATE TABLE tasker.human_steps (
    task_uuid uuid NOT NULL,
    step_uuid uuid NOT NULL,
    namespace text NOT NULL,
    task_name text NOT NULL,
    step_name text NOT NULL,
    assignee text DEFAULT ''::text NOT NULL,
    assigned_by text DEFAULT ''::text NOT NULL,
    assigned_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    waiting boolean DEFAULT true NOT NULL,
    waiting_since timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    due_at timestamp with time zone DEFAULT 'infinity'::timestamp with time zone NOT NULL,
    escalated_at timestamp with time zone,
    CONSTRAINT human_steps_pkey PRIMARY KEY (task_uuid, step_uuid)
);
CREATE INDEX inbox_by_assignee ON tasker.human_steps USING btree (namespace, assignee, due_at, step_uuid) WHERE waiting;
CREATE INDEX inbox_by_assignee_and_template ON tasker.human_steps USING btree (namespace, assignee, task_name, due_at, step_uuid) WHERE waiting;
CREATE INDEX inbox_by_namespace ON tasker.human_steps USING btree (namespace, due_at, step_uuid) WHERE waiting;
CREATE INDEX inbox_by_template ON tasker.human_steps USING btree (namespace, task_name, due_at, step_uuid) WHERE waiting;
COMMENT ON TABLE tasker.human_steps IS 'External steps that people answer: who, and whether they wait. A row stays when its step has ended, and is removed with its task.';
COMMENT ON COLUMN tasker.human_steps.task_name IS 'The name of the template.';
COMMENT ON COLUMN tasker.human_steps.assignee IS 'A person, or group: and a group. Empty: nobody in particular.';
COMMENT ON COLUMN tasker.human_steps.assigned_by IS 'Who said so. Empty: the template of the task.';
COMMENT ON COLUMN tasker.human_steps.waiting IS 'The step waits for an answer.';
COMMENT ON COLUMN tasker.human_steps.due_at IS 'The timeout of the wait; infinity: it has none.';
COMMENT ON COLUMN tasker.human_steps.escalated_at IS 'When escalate_to of the template became the assignee in this wait. Null: it did not.';

CREATE TABLE tasker.incident_cases (
    incident_id uuid NOT NULL,
    case_id uuid NOT NULL,
    joined_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    told_state text NOT NULL,
    told_entries bigint NOT NULL,
    CONSTRAINT incident_cases_pkey PRIMARY KEY (incident_id, case_id),
    CONSTRAINT incident_cases_case_id_fkey FOREIGN KEY (case_id) REFERENCES tasker.cases(case_id),
    CONSTRAINT incident_cases_incident_id_fkey FOREIGN KEY (incident_id) REFERENCES tasker.incidents(incident_id)
);
CREATE INDEX incident_cases_by_case ON tasker.incident_cases USING btree (case_id, joined_at DESC);
COMMENT ON TABLE tasker.incident_cases IS 'The cases of an incident, with what people were last told of each.';
COMMENT ON COLUMN tasker.incident_cases.told_entries IS 'How many of its investigations were open then, without those whose task went on by itself.';

CREATE TABLE tasker.incidents (
    incident_id uuid DEFAULT tasker.uuid_generate_v7() NOT NULL,
    namespace text NOT NULL,
    lead_case_id uuid NOT NULL,
    dedup_key text NOT NULL,
    severity text NOT NULL,
    began_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    ended_at timestamp with time zone,
    unowned_since timestamp with time zone,
    escalation smallint DEFAULT 0 NOT NULL,
    told_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    told_owned boolean DEFAULT false NOT NULL,
    revision integer DEFAULT 0 NOT NULL,
    CONSTRAINT incident_escalation_is_known CHECK (((escalation >= 0) AND (escalation <= 2))),
    CONSTRAINT incident_severity_is_known CHECK ((severity = ANY (ARRAY['critical'::text, 'high'::text, 'medium'::text, 'low'::text]))),
    CONSTRAINT incidents_pkey PRIMARY KEY (incident_id),
    CONSTRAINT incidents_lead_case_id_fkey FOREIGN KEY (lead_case_id) REFERENCES tasker.cases(case_id)
);
CREATE INDEX incidents_by_time ON tasker.incidents USING btree (began_at DESC, incident_id DESC);
CREATE INDEX incidents_of_namespace ON tasker.incidents USING btree (namespace, began_at DESC, incident_id DESC);
CREATE INDEX incidents_open ON tasker.incidents USING btree (namespace, began_at DESC, incident_id DESC) WHERE (ended_at IS NULL);
COMMENT ON TABLE tasker.incidents IS 'Cases of one namespace that people were first told of within ten minutes: they are told of them together.';
COMMENT ON COLUMN tasker.incidents.lead_case_id IS 'The case that people were told of first.';
COMMENT ON COLUMN tasker.incidents.dedup_key IS 'By which receivers know that messages are about the same incident.';
COMMENT ON COLUMN tasker.incidents.severity IS 'The highest that one of its cases had.';
COMMENT ON COLUMN tasker.incidents.ended_at IS 'When people were told that all of its cases are resolved.';
COMMENT ON COLUMN tasker.incidents.unowned_since IS 'Since when one of its open cases is nobody''s and does not rest.';
COMMENT ON COLUMN tasker.incidents.escalation IS 'How many routes were told because nobody took it: 0 the first, 1 the next one too, 2 all.';
COMMENT ON COLUMN tasker.incidents.told_at IS 'When people were last told of it.';
COMMENT ON COLUMN tasker.incidents.told_owned IS 'They were told that somebody has taken all of its cases.';
COMMENT ON COLUMN tasker.incidents.revision IS 'Rises with each change, so that of two servers one makes it.';

CREATE TABLE tasker.lease_key (
    only_row boolean DEFAULT true NOT NULL,
    secret bytea NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT lease_key_is_long_enough CHECK ((octet_length(secret) >= 32)),
    CONSTRAINT lease_key_is_one_row CHECK (only_row),
    CONSTRAINT lease_key_pkey PRIMARY KEY (only_row)
);
COMMENT ON TABLE tasker.lease_key IS 'The key that signs lease tokens. Whoever reads it can report results in the name of any worker.';

CREATE TABLE tasker.limit_keys (
    limit_key_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    limit_id bigint NOT NULL,
    key text NOT NULL,
    full_at timestamp with time zone DEFAULT '-infinity'::timestamp with time zone NOT NULL,
    used_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT limit_keys_pkey PRIMARY KEY (limit_key_id),
    CONSTRAINT limit_keys_limit_id_fkey FOREIGN KEY (limit_id) REFERENCES tasker.limits(limit_id) ON DELETE CASCADE
);
CREATE UNIQUE INDEX limit_keys_by_key ON tasker.limit_keys USING btree (limit_id, key);
COMMENT ON TABLE tasker.limit_keys IS 'The keys of limits for which a claim has looked; a claim locks those of the steps that it takes.';
COMMENT ON COLUMN tasker.limit_keys.full_at IS 'When as many steps can begin at once again as the burst allows.';
COMMENT ON COLUMN tasker.limit_keys.used_at IS 'When a claim looked last, by some minutes.';

CREATE TABLE tasker.limit_queues (
    namespace text NOT NULL,
    handler text NOT NULL,
    limit_id bigint NOT NULL,
    CONSTRAINT limit_queues_pkey PRIMARY KEY (namespace, handler, limit_id),
    CONSTRAINT limit_queues_limit_id_fkey FOREIGN KEY (limit_id) REFERENCES tasker.limits(limit_id) ON DELETE CASCADE
);
CREATE INDEX limit_queues_by_limit ON tasker.limit_queues USING btree (limit_id);
COMMENT ON TABLE tasker.limit_queues IS 'Queues in which steps may have a limit. Claims of other queues ask for no limit. An empty handler or namespace means every one.';

CREATE TABLE tasker.limit_slots (
    limit_key_id bigint NOT NULL,
    task_uuid uuid NOT NULL,
    step_uuid uuid NOT NULL,
    fence bigint NOT NULL,
    weight integer DEFAULT 1 NOT NULL,
    CONSTRAINT limit_slots_pkey PRIMARY KEY (limit_key_id, task_uuid, step_uuid)
) WITH (fillfactor=85, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=5000);
COMMENT ON TABLE tasker.limit_slots IS 'The steps that were claimed under a key of a limit. A row counts while its step is in progress under its fence.';
COMMENT ON COLUMN tasker.limit_slots.weight IS 'How many places the step has taken.';

CREATE TABLE tasker.limits (
    limit_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    kind text NOT NULL,
    namespace text NOT NULL,
    name text NOT NULL,
    max_in_progress integer,
    per_second double precision,
    burst integer,
    by_template boolean NOT NULL,
    changed_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    changed_by text NOT NULL,
    CONSTRAINT limit_is_whole CHECK (((kind = ANY (ARRAY['server'::text, 'namespace'::text, 'handler'::text, 'name'::text])) AND ((namespace = ''::text) = (kind = 'server'::text)) AND ((name = ''::text) = (kind = ANY (ARRAY['server'::text, 'namespace'::text]))) AND (max_in_progress >= 1) AND (per_second > (0)::double precision) AND (burst >= 1) AND (num_nonnulls(max_in_progress, per_second) > 0) AND ((per_second IS NULL) = (burst IS NULL)))),
    CONSTRAINT limits_pkey PRIMARY KEY (limit_id)
);
CREATE UNIQUE INDEX limits_by_name ON tasker.limits USING btree (namespace, kind, name);
COMMENT ON TABLE tasker.limits IS 'How many steps may be in progress at a time, or begin in a second.';
COMMENT ON COLUMN tasker.limits.kind IS 'What is limited: the server, a namespace, a handler of a namespace, or what templates give a name.';
COMMENT ON COLUMN tasker.limits.name IS 'The handler, or the name; empty for the others.';
COMMENT ON COLUMN tasker.limits.burst IS 'How many steps may begin at once after a rest.';
COMMENT ON COLUMN tasker.limits.by_template IS 'The values are those of the newest template with the name; nobody has set others.';

CREATE TABLE tasker.map_inputs (
    task_uuid uuid NOT NULL,
    step_uuid uuid NOT NULL,
    context jsonb,
    context_bytes integer,
    omitted text[],
    by_reference uuid[],
    CONSTRAINT map_inputs_pkey PRIMARY KEY (task_uuid, step_uuid)
);
COMMENT ON TABLE tasker.map_inputs IS 'What the items of a map step are handed without the list that they are made of; removed with its task. No row: they are handed what a step is.';
COMMENT ON COLUMN tasker.map_inputs.step_uuid IS 'The map step.';
COMMENT ON COLUMN tasker.map_inputs.context IS 'The context of the task without the list. Null: all of it is handed out.';
COMMENT ON COLUMN tasker.map_inputs.context_bytes IS 'Size of the context.';
COMMENT ON COLUMN tasker.map_inputs.omitted IS 'JSON Pointers of what the context is without.';
COMMENT ON COLUMN tasker.map_inputs.by_reference IS 'Steps with the list in their result, which is handed out by reference.';

CREATE TABLE tasker.message_emissions (
    sink text NOT NULL,
    "position" bigint NOT NULL,
    subject_id uuid NOT NULL,
    state text DEFAULT 'pending'::text NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    refusals integer DEFAULT 0 NOT NULL,
    next_attempt_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    last_attempt_at timestamp with time zone,
    last_error text,
    published_at timestamp with time zone,
    CONSTRAINT message_emission_published_has_its_time CHECK (((state <> 'published'::text) OR (published_at IS NOT NULL))),
    CONSTRAINT message_emission_state_is_known CHECK ((state = ANY (ARRAY['pending'::text, 'published'::text, 'set_aside'::text]))),
    CONSTRAINT message_emissions_pkey PRIMARY KEY (sink, "position"),
    CONSTRAINT message_emissions_position_fkey FOREIGN KEY ("position") REFERENCES tasker.messages("position"),
    CONSTRAINT message_emissions_sink_fkey FOREIGN KEY (sink) REFERENCES tasker.emission_sinks(sink)
) WITH (fillfactor=85);
CREATE INDEX message_emissions_by_position ON tasker.message_emissions USING btree ("position");
CREATE INDEX message_emissions_pending ON tasker.message_emissions USING btree (sink, subject_id, "position") WHERE (state = 'pending'::text);
CREATE INDEX message_emissions_set_aside ON tasker.message_emissions USING btree (sink, "position") WHERE (state = 'set_aside'::text);
COMMENT ON TABLE tasker.message_emissions IS 'What became of sending a message to a sink: one row each.';
COMMENT ON COLUMN tasker.message_emissions.refusals IS 'How often the sink refused the message itself; after some it is set aside.';

CREATE TABLE tasker.messages (
    "position" bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    message_uuid uuid DEFAULT tasker.uuid_generate_v7() NOT NULL,
    topic text NOT NULL,
    subject_kind text NOT NULL,
    subject_id uuid NOT NULL,
    incident_id uuid,
    namespaces text[] NOT NULL,
    dedup_key text,
    escalation smallint DEFAULT 0 NOT NULL,
    data jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    routed_at timestamp with time zone,
    CONSTRAINT message_subject_is_short CHECK (((length(subject_kind) >= 1) AND (length(subject_kind) <= 32))),
    CONSTRAINT message_topic_is_short CHECK (((length(topic) >= 1) AND (length(topic) <= 64))),
    CONSTRAINT messages_pkey PRIMARY KEY ("position"),
    CONSTRAINT messages_message_uuid_key UNIQUE (message_uuid),
    CONSTRAINT messages_incident_id_fkey FOREIGN KEY (incident_id) REFERENCES tasker.incidents(incident_id)
);
CREATE INDEX messages_of_incident ON tasker.messages USING btree (incident_id, "position") WHERE (incident_id IS NOT NULL);
CREATE INDEX messages_of_subject ON tasker.messages USING btree (subject_id, "position");
CREATE INDEX messages_to_route ON tasker.messages USING btree ("position") WHERE (routed_at IS NULL);
COMMENT ON TABLE tasker.messages IS 'What people are told of incidents, operations and the like: written in the transaction that it tells of.';
COMMENT ON COLUMN tasker.messages.subject_id IS 'What it is about: messages of one subject are sent in their order.';
COMMENT ON COLUMN tasker.messages.namespaces IS 'Of what it is about: whoever may see all of them may see it.';
COMMENT ON COLUMN tasker.messages.routed_at IS 'When the routes were asked for the sinks that get it, in tasker.message_emissions.';

CREATE TABLE tasker.namespaces (
    namespace text NOT NULL,
    weight double precision NOT NULL,
    set_by text NOT NULL,
    set_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT namespace_weight_is_in_bounds CHECK (((weight >= (0.01)::double precision) AND (weight <= (1000)::double precision))),
    CONSTRAINT namespaces_pkey PRIMARY KEY (namespace)
);
COMMENT ON TABLE tasker.namespaces IS 'The weights of namespaces in claims of several: their shares when all have work. A namespace without a row has the weight 1.';

CREATE TABLE tasker.operation_items (
    operation_uuid uuid NOT NULL,
    ordinal integer NOT NULL,
    task_uuid uuid NOT NULL,
    step_uuid uuid NOT NULL,
    entry_uuid uuid NOT NULL,
    namespace text NOT NULL,
    expected_state text NOT NULL,
    expected_fence bigint NOT NULL,
    state text DEFAULT 'planned'::text NOT NULL,
    outcome text,
    tries integer DEFAULT 0 NOT NULL,
    wave integer,
    round integer,
    released_fence bigint,
    released_at timestamp with time zone,
    failed_at timestamp with time zone,
    failure_cause text,
    failure_text text,
    ended_at timestamp with time zone,
    made_task uuid,
    CONSTRAINT operation_item_state_is_known CHECK ((state = ANY (ARRAY['planned'::text, 'released'::text, 'running'::text, 'verified'::text, 'failed_again'::text, 'skipped'::text, 'aborted'::text]))),
    CONSTRAINT operation_item_that_ended_has_its_time CHECK (((state = ANY (ARRAY['verified'::text, 'failed_again'::text, 'skipped'::text, 'aborted'::text])) = (ended_at IS NOT NULL))),
    CONSTRAINT operation_item_that_was_released_has_its_time CHECK (((state <> ALL (ARRAY['released'::text, 'running'::text, 'verified'::text, 'failed_again'::text])) OR (released_at IS NOT NULL))),
    CONSTRAINT operation_items_pkey PRIMARY KEY (operation_uuid, ordinal)
) WITH (fillfactor=80);
CREATE UNIQUE INDEX operation_item_is_open_once ON tasker.operation_items USING btree (task_uuid, step_uuid) WHERE (state = ANY (ARRAY['planned'::text, 'released'::text, 'running'::text]));
CREATE INDEX operation_items_by_round ON tasker.operation_items USING btree (operation_uuid, round, state) WHERE (round IS NOT NULL);
CREATE INDEX operation_items_by_state ON tasker.operation_items USING btree (operation_uuid, state, ordinal);
CREATE INDEX operation_items_that_failed ON tasker.operation_items USING btree (operation_uuid, round, failure_cause) WHERE (failure_cause IS NOT NULL);
CREATE TRIGGER items_of_unsettled_operation_stay AFTER DELETE ON tasker.operation_items REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION tasker.refuse_removal_of_records();
COMMENT ON TABLE tasker.operation_items IS 'The steps of an operation, in the order of task and step. Of the tasks of actions on whole tasks, the step is 00000000-0000-0000-0000-000000000000.';
COMMENT ON COLUMN tasker.operation_items.expected_fence IS 'The fence of the step when it was planned: the action is done only if nothing has happened to the step since.';
COMMENT ON COLUMN tasker.operation_items.outcome IS 'Why the item came to its state, as a code.';
COMMENT ON COLUMN tasker.operation_items.tries IS 'How often the task was held by others when the item was to be released.';
COMMENT ON COLUMN tasker.operation_items.released_fence IS 'The fence of the step as the action left it: attempts from then on have a higher one.';
COMMENT ON COLUMN tasker.operation_items.failed_at IS 'When the step last failed after its release, as far as servers have seen.';
COMMENT ON COLUMN tasker.operation_items.made_task IS 'The task that the item waits for: of the act recreate that which was made in the place of task_uuid, of the act compensate task_uuid itself.';

CREATE TABLE tasker.operations (
    operation_uuid uuid NOT NULL,
    request_key text NOT NULL,
    digest bytea NOT NULL,
    act text NOT NULL,
    arguments jsonb DEFAULT '{}'::jsonb NOT NULL,
    selection jsonb NOT NULL,
    planned_by text NOT NULL,
    reason text NOT NULL,
    namespaces text[] NOT NULL,
    state text NOT NULL,
    items integer DEFAULT 0 NOT NULL,
    capped boolean DEFAULT false NOT NULL,
    without_step integer DEFAULT 0 NOT NULL,
    overlapping jsonb DEFAULT '[]'::jsonb NOT NULL,
    plan_digest text DEFAULT ''::text NOT NULL,
    causes text[],
    waves integer[] NOT NULL,
    wave integer DEFAULT 0 NOT NULL,
    round integer DEFAULT 0 NOT NULL,
    wave_since timestamp with time zone,
    rate_per_minute integer DEFAULT 0 NOT NULL,
    stop_on_new_cause boolean NOT NULL,
    wave_timeout interval NOT NULL,
    next_release_at timestamp with time zone,
    paused_by text,
    paused_for text,
    paused_details jsonb,
    paused_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    started_at timestamp with time zone,
    started_by text,
    ended_at timestamp with time zone,
    settled_at timestamp with time zone,
    worker_at_least text,
    tolerate text DEFAULT '1'::text NOT NULL,
    tolerated_causes text[] DEFAULT '{}'::text[] NOT NULL,
    CONSTRAINT operation_act_is_known CHECK ((act = ANY (ARRAY['reset_for_retry'::text, 'resolve_manually'::text, 'complete_manually'::text, 'answer'::text, 'cancel'::text, 'compensate'::text, 'recreate'::text, 'end_investigation'::text]))),
    CONSTRAINT operation_request_key_is_short CHECK (((length(request_key) >= 1) AND (length(request_key) <= 255))),
    CONSTRAINT operation_settles_after_its_end CHECK (((settled_at IS NULL) OR (ended_at IS NOT NULL))),
    CONSTRAINT operation_state_is_known CHECK ((state = ANY (ARRAY['planned'::text, 'running'::text, 'paused'::text, 'done'::text, 'aborted'::text]))),
    CONSTRAINT operation_that_ended_has_its_time CHECK (((state = ANY (ARRAY['done'::text, 'aborted'::text])) = (ended_at IS NOT NULL))),
    CONSTRAINT operation_that_is_paused_says_why CHECK (((state = 'paused'::text) = (paused_for IS NOT NULL))),
    CONSTRAINT operations_pkey PRIMARY KEY (operation_uuid)
);
CREATE UNIQUE INDEX operation_request_key_is_unique ON tasker.operations USING btree (request_key);
CREATE INDEX operations_by_time ON tasker.operations USING btree (created_at DESC, operation_uuid DESC);
CREATE INDEX operations_unsettled ON tasker.operations USING btree (created_at) WHERE (settled_at IS NULL);
CREATE TRIGGER follow_inserted_gate AFTER INSERT ON tasker.operations FOR EACH ROW WHEN ((new.worker_at_least IS NOT NULL)) EXECUTE FUNCTION tasker.follow_gate();
CREATE TRIGGER follow_settled_gate AFTER UPDATE OF settled_at ON tasker.operations FOR EACH ROW WHEN ((new.worker_at_least IS NOT NULL)) EXECUTE FUNCTION tasker.follow_gate();
CREATE TRIGGER unsettled_operation_stays AFTER DELETE ON tasker.operations REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION tasker.refuse_removal_of_records();
COMMENT ON TABLE tasker.operations IS 'One action on many steps: planned, running or paused, done or aborted.';
COMMENT ON COLUMN tasker.operations.request_key IS 'With it the same request is recognised when it is sent again.';
COMMENT ON COLUMN tasker.operations.digest IS 'Of all that the request says; tells apart two requests under one key.';
COMMENT ON COLUMN tasker.operations.items IS 'How many items were frozen. The items in each state always add up to it.';
COMMENT ON COLUMN tasker.operations.capped IS 'More was selected than the limit allows.';
COMMENT ON COLUMN tasker.operations.without_step IS 'Selected investigations whose task has no step that has failed.';
COMMENT ON COLUMN tasker.operations.overlapping IS 'Other operations that had selected items of this one, which were left out.';
COMMENT ON COLUMN tasker.operations.causes IS 'The causes of the failures that were selected; null when there were too many.';
COMMENT ON COLUMN tasker.operations.waves IS 'How many items each wave releases; after the last all that are left.';
COMMENT ON COLUMN tasker.operations.round IS 'Goes up with each wave and each resume: items that are released together.';
COMMENT ON COLUMN tasker.operations.next_release_at IS 'When the next items may be released, by the rate.';
COMMENT ON COLUMN tasker.operations.settled_at IS 'When the last item came to its end. Servers look at operations that have ended until then.';
COMMENT ON COLUMN tasker.operations.worker_at_least IS 'Only workers of this version or a newer one take the steps that it released. Null: any.';
COMMENT ON COLUMN tasker.operations.tolerate IS 'How many steps of a wave may fail: a number, a percentage, or all_but_one.';
COMMENT ON COLUMN tasker.operations.tolerated_causes IS 'Fingerprints of failures that the guards do not count, named by the operators who resumed the operation.';

CREATE TABLE tasker.operator_requests (
    request_key text NOT NULL,
    action text NOT NULL,
    digest bytea NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT operator_request_key_is_short CHECK (((length(request_key) >= 1) AND (length(request_key) <= 255))),
    CONSTRAINT operator_requests_pkey PRIMARY KEY (request_key)
);
CREATE INDEX operator_requests_by_age ON tasker.operator_requests USING btree (created_at);
COMMENT ON TABLE tasker.operator_requests IS 'Requests of operators that bore a key and took effect, written in the transaction of their effect, so that the same request again is recognised. Kept for a week.';
COMMENT ON COLUMN tasker.operator_requests.digest IS 'Of all that the request says; tells apart two requests under one key.';

CREATE TABLE tasker.outbox (
    "position" bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    event_uuid uuid DEFAULT tasker.uuid_generate_v7() NOT NULL,
    topic text NOT NULL,
    task_uuid uuid NOT NULL,
    dlq_entry_uuid uuid,
    data jsonb NOT NULL,
    written_in xid8 DEFAULT pg_current_xact_id() NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    namespace text,
    CONSTRAINT outbox_entry_fits_topic CHECK (((dlq_entry_uuid IS NULL) = ((topic ~~ 'task.%'::text) OR (topic ~~ 'step.%'::text)))),
    CONSTRAINT outbox_topic_is_known CHECK ((topic = ANY (ARRAY['dlq.entry.created'::text, 'dlq.entry.updated'::text, 'dlq.entry.recovered'::text, 'dlq.entry.resolved'::text, 'task.completed'::text, 'task.failed'::text, 'task.cancelled'::text, 'step.failed'::text]))),
    CONSTRAINT outbox_pkey PRIMARY KEY ("position"),
    CONSTRAINT outbox_event_uuid_key UNIQUE (event_uuid),
    CONSTRAINT outbox_dlq_entry_uuid_fkey FOREIGN KEY (dlq_entry_uuid) REFERENCES tasker.tasks_dlq(dlq_entry_uuid)
);
CREATE INDEX outbox_by_entry ON tasker.outbox USING btree (dlq_entry_uuid, "position");
CREATE INDEX outbox_by_namespace ON tasker.outbox USING btree (namespace, "position");
CREATE INDEX outbox_by_namespace_and_transaction ON tasker.outbox USING btree (namespace, written_in, "position");
CREATE INDEX outbox_by_topic ON tasker.outbox USING btree (topic, "position");
CREATE INDEX outbox_by_transaction ON tasker.outbox USING btree (written_in, "position");
CREATE INDEX outbox_of_task ON tasker.outbox USING btree (task_uuid) WHERE (dlq_entry_uuid IS NULL);
CREATE TRIGGER event_namespace_is_noted BEFORE INSERT ON tasker.outbox FOR EACH ROW WHEN ((new.namespace IS NULL)) EXECUTE FUNCTION tasker.note_namespace();
CREATE TRIGGER event_of_investigated_task_stays AFTER DELETE ON tasker.outbox REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION tasker.refuse_removal_of_records();
COMMENT ON TABLE tasker.outbox IS 'Events of investigations and tasks, in order: each is written in the transaction of its change.';
COMMENT ON COLUMN tasker.outbox.event_uuid IS 'The event''s id wherever it is told; who gets it twice knows it by this.';
COMMENT ON COLUMN tasker.outbox.dlq_entry_uuid IS 'The investigation. Null for an event of a task.';
COMMENT ON COLUMN tasker.outbox.written_in IS 'The transaction that wrote it. Positions become visible out of order; those of transactions before pg_snapshot_xmin(pg_current_snapshot()) are complete.';
COMMENT ON COLUMN tasker.outbox.namespace IS 'The namespace of the task.';

CREATE TABLE tasker.queues (
    namespace text NOT NULL,
    handler text NOT NULL,
    queue_uuid uuid DEFAULT tasker.uuid_generate_v7() NOT NULL,
    busy_at timestamp with time zone NOT NULL,
    saturated_since timestamp with time zone,
    kept_at timestamp with time zone,
    CONSTRAINT queues_pkey PRIMARY KEY (namespace, handler)
);
CREATE INDEX queues_saturated ON tasker.queues USING btree (namespace, handler) WHERE (saturated_since IS NOT NULL);
COMMENT ON TABLE tasker.queues IS 'The queues of which steps were handed out lately. A row goes when none was for a day.';
COMMENT ON COLUMN tasker.queues.queue_uuid IS 'What messages about the queue are told by.';
COMMENT ON COLUMN tasker.queues.busy_at IS 'When a step of the queue was last claimed, to some seconds, or a worker of it had no free place.';
COMMENT ON COLUMN tasker.queues.saturated_since IS 'Since when steps of it wait past their limit because its workers are busy. Null: none does.';
COMMENT ON COLUMN tasker.queues.kept_at IS 'When the limit of such a step was last moved on.';

CREATE TABLE tasker.ready_steps (
    namespace text NOT NULL,
    handler text NOT NULL,
    priority integer NOT NULL,
    state_since timestamp with time zone NOT NULL,
    step_uuid uuid NOT NULL,
    task_uuid uuid NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    queue_ttl_ms bigint,
    inputs_bytes bigint,
    released_by uuid,
    limit_passed_at timestamp with time zone,
    due_at timestamp with time zone
) WITH (fillfactor=85, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=5000);
CREATE INDEX ready_steps_by_due ON tasker.ready_steps USING btree (namespace, handler, priority DESC, due_at) WHERE (due_at IS NOT NULL);
CREATE INDEX ready_steps_by_expiry ON tasker.ready_steps USING btree (expires_at);
CREATE INDEX ready_steps_past_limit ON tasker.ready_steps USING btree (namespace, handler) WHERE (limit_passed_at IS NOT NULL);
CREATE UNIQUE INDEX ready_steps_to_claim ON tasker.ready_steps USING btree (namespace, handler, priority DESC, state_since, step_uuid);
COMMENT ON TABLE tasker.ready_steps IS 'A row for each enqueued step: where claims find it. The state is in tasker.workflow_steps.';
COMMENT ON COLUMN tasker.ready_steps.priority IS 'That of the step.';
COMMENT ON COLUMN tasker.ready_steps.state_since IS 'Since when the step is enqueued. If the step says otherwise, the row is outdated, and goes with the next claim.';
COMMENT ON COLUMN tasker.ready_steps.expires_at IS 'When the step has waited for a worker too long.';
COMMENT ON COLUMN tasker.ready_steps.queue_ttl_ms IS 'The step''s own limit of that. Null: the limit of the server.';
COMMENT ON COLUMN tasker.ready_steps.inputs_bytes IS 'Size of what the step is handed out with. Null: not measured.';
COMMENT ON COLUMN tasker.ready_steps.released_by IS 'The hold that let it go: it holds it no more.';
COMMENT ON COLUMN tasker.ready_steps.limit_passed_at IS 'When the step had waited for a worker too long, and did not fail because its queue is saturated: expires_at was moved on. Null: it was not.';
COMMENT ON COLUMN tasker.ready_steps.due_at IS 'By when the step or its task is due, where its template has its steps ordered by that. Null: it has not.';

CREATE TABLE tasker.redaction (
    only_row boolean DEFAULT true NOT NULL,
    key_pattern text NOT NULL,
    key_words text[] NOT NULL,
    paths jsonb DEFAULT '[]'::jsonb NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    text_patterns text[],
    CONSTRAINT redaction_is_one_row CHECK (only_row),
    CONSTRAINT redaction_pkey PRIMARY KEY (only_row)
);
COMMENT ON TABLE tasker.redaction IS 'What the evidence of investigations must not show, from the server''s configuration.';
COMMENT ON COLUMN tasker.redaction.key_pattern IS 'Regular expression of the keys whose values are hidden, for the words of a key (function key_words).';
COMMENT ON COLUMN tasker.redaction.key_words IS 'One regular expression for the text of a document: one that does not match holds nothing that is hidden (function document_pattern).';
COMMENT ON COLUMN tasker.redaction.paths IS 'Places in the snapshot that are hidden: arrays of keys; * stands for each key or element.';
COMMENT ON COLUMN tasker.redaction.text_patterns IS 'Regular expressions of what is hidden inside of texts: three groups, what stays before, what is hidden, what stays after.';

CREATE TABLE tasker.rejected_reports (
    rejected_report_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    task_uuid uuid NOT NULL,
    step_uuid uuid NOT NULL,
    worker_uuid uuid NOT NULL,
    fence bigint NOT NULL,
    success boolean NOT NULL,
    step_state text,
    step_fence bigint,
    message text NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT rejected_reports_pkey PRIMARY KEY (rejected_report_id)
);
CREATE INDEX rejected_reports_by_step ON tasker.rejected_reports USING btree (task_uuid, step_uuid);
COMMENT ON TABLE tasker.rejected_reports IS 'Reports that came from an attempt which no longer held the lease. They changed nothing.';

CREATE TABLE tasker.schedule_firings (
    schedule_uuid uuid NOT NULL,
    nominal_at timestamp with time zone NOT NULL,
    kind text NOT NULL,
    nominal_until timestamp with time zone NOT NULL,
    instants bigint DEFAULT 1 NOT NULL,
    outcome text NOT NULL,
    reason text DEFAULT ''::text NOT NULL,
    task_uuid uuid,
    task_open boolean DEFAULT false NOT NULL,
    actor text NOT NULL,
    decided_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    late_ms bigint DEFAULT 0 NOT NULL,
    ended_at timestamp with time zone,
    CONSTRAINT firing_has_its_instants CHECK (((instants > 0) AND (nominal_until >= nominal_at) AND ((instants > 1) = (nominal_until > nominal_at)))),
    CONSTRAINT firing_kind_is_known CHECK ((kind = ANY (ARRAY['clock'::text, 'manual'::text, 'backfill'::text]))),
    CONSTRAINT firing_outcome_is_known CHECK ((outcome = ANY (ARRAY['started'::text, 'queued'::text, 'skipped'::text, 'merged'::text, 'missed'::text, 'refused'::text]))),
    CONSTRAINT firing_that_started_has_its_task CHECK (((outcome = 'started'::text) = (task_uuid IS NOT NULL))),
    CONSTRAINT firing_with_an_open_task_has_one CHECK (((NOT task_open) OR ((task_uuid IS NOT NULL) AND (ended_at IS NULL)))),
    CONSTRAINT firing_without_a_task_says_why CHECK (((outcome = 'started'::text) OR (reason <> ''::text))),
    CONSTRAINT schedule_firings_pkey PRIMARY KEY (schedule_uuid, nominal_at, kind),
    CONSTRAINT schedule_firings_schedule_uuid_fkey FOREIGN KEY (schedule_uuid) REFERENCES tasker.schedules(schedule_uuid) ON DELETE CASCADE
);
CREATE UNIQUE INDEX firing_of_task ON tasker.schedule_firings USING btree (task_uuid) WHERE (task_uuid IS NOT NULL);
CREATE INDEX firings_by_age ON tasker.schedule_firings USING btree (decided_at);
CREATE INDEX firings_with_open_task ON tasker.schedule_firings USING btree (schedule_uuid, nominal_at) WHERE task_open;
CREATE UNIQUE INDEX one_firing_waits ON tasker.schedule_firings USING btree (schedule_uuid) WHERE (outcome = 'queued'::text);
COMMENT ON TABLE tasker.schedule_firings IS 'What became of each instant of a schedule. Instants in a row that made no task for the same reason share one row.';
COMMENT ON COLUMN tasker.schedule_firings.nominal_at IS 'The instant by the rule, without jitter.';
COMMENT ON COLUMN tasker.schedule_firings.kind IS 'clock: the instant came. manual: somebody asked for a task. backfill: somebody asked for the task of an instant in the past.';
COMMENT ON COLUMN tasker.schedule_firings.task_open IS 'The task has not ended, as far as the schedule was told.';
COMMENT ON COLUMN tasker.schedule_firings.late_ms IS 'How long after the instant, with its jitter, a server attended to it.';

CREATE TABLE tasker.schedule_history (
    change_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    schedule_uuid uuid NOT NULL,
    event text NOT NULL,
    actor text NOT NULL,
    reason text DEFAULT ''::text NOT NULL,
    metadata jsonb DEFAULT '{}'::jsonb NOT NULL,
    changed_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT schedule_history_pkey PRIMARY KEY (change_id),
    CONSTRAINT schedule_history_schedule_uuid_fkey FOREIGN KEY (schedule_uuid) REFERENCES tasker.schedules(schedule_uuid) ON DELETE CASCADE
);
CREATE INDEX schedule_history_by_schedule ON tasker.schedule_history USING btree (schedule_uuid, change_id);
COMMENT ON TABLE tasker.schedule_history IS 'What people changed of each schedule.';

CREATE TABLE tasker.schedule_signals (
    task_uuid uuid NOT NULL,
    schedule_uuid uuid NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT schedule_signals_pkey PRIMARY KEY (task_uuid)
) WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=2000);
CREATE INDEX schedule_signals_by_time ON tasker.schedule_signals USING btree (created_at);
COMMENT ON TABLE tasker.schedule_signals IS 'Tasks that have ended and whose schedules are to be told of it: left by the transaction that ends them.';

CREATE TABLE tasker.schedules (
    schedule_uuid uuid NOT NULL,
    namespace text NOT NULL,
    name text NOT NULL,
    template_name text NOT NULL,
    template_version text DEFAULT ''::text NOT NULL,
    context jsonb DEFAULT '{}'::jsonb NOT NULL,
    nominal_key text DEFAULT ''::text NOT NULL,
    priority integer DEFAULT 0 NOT NULL,
    tags text[] DEFAULT '{}'::text[] NOT NULL,
    cron text DEFAULT ''::text NOT NULL,
    day_match text DEFAULT ''::text NOT NULL,
    zone text DEFAULT ''::text NOT NULL,
    every_s bigint DEFAULT 0 NOT NULL,
    after_end_s bigint DEFAULT 0 NOT NULL,
    except_days text[] DEFAULT '{}'::text[] NOT NULL,
    jitter_s bigint DEFAULT 0 NOT NULL,
    start_at timestamp with time zone,
    end_at timestamp with time zone,
    overlap text NOT NULL,
    catch_up text NOT NULL,
    catch_up_max integer DEFAULT 0 NOT NULL,
    start_within_s bigint NOT NULL,
    anchor timestamp with time zone NOT NULL,
    next_at timestamp with time zone,
    fire_at timestamp with time zone,
    awaits_task uuid,
    paused_at timestamp with time zone,
    paused_until timestamp with time zone,
    paused_by text DEFAULT ''::text NOT NULL,
    paused_reason text DEFAULT ''::text NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    created_by text NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    revision integer DEFAULT 1 NOT NULL,
    deleted_at timestamp with time zone,
    CONSTRAINT schedule_catch_up_is_known CHECK ((catch_up = ANY (ARRAY['none'::text, 'last'::text, 'all'::text]))),
    CONSTRAINT schedule_has_one_rule CHECK ((num_nonnulls(NULLIF(cron, ''::text), NULLIF(every_s, 0), NULLIF(after_end_s, 0)) = 1)),
    CONSTRAINT schedule_overlap_is_known CHECK ((overlap = ANY (ARRAY['skip'::text, 'queue'::text, 'cancel'::text, 'allow'::text]))),
    CONSTRAINT schedule_that_awaits_a_task_has_no_instant CHECK (((awaits_task IS NULL) OR (next_at IS NULL))),
    CONSTRAINT schedule_that_is_deleted_never_fires CHECK (((deleted_at IS NULL) OR (fire_at IS NULL))),
    CONSTRAINT schedule_with_an_instant_fires CHECK (((next_at IS NULL) OR (fire_at IS NOT NULL) OR (paused_at IS NOT NULL) OR (deleted_at IS NOT NULL))),
    CONSTRAINT schedules_pkey PRIMARY KEY (schedule_uuid)
);
CREATE UNIQUE INDEX schedule_name_is_unique ON tasker.schedules USING btree (namespace, name) WHERE (deleted_at IS NULL);
CREATE INDEX schedules_that_are_deleted ON tasker.schedules USING btree (deleted_at) WHERE (deleted_at IS NOT NULL);
CREATE INDEX schedules_to_fire ON tasker.schedules USING btree (fire_at) WHERE (fire_at IS NOT NULL);
COMMENT ON TABLE tasker.schedules IS 'Of which template tasks are made, and at which instants.';
COMMENT ON COLUMN tasker.schedules.template_version IS 'Empty: the newest at each instant.';
COMMENT ON COLUMN tasker.schedules.nominal_key IS 'The key of the context that gets the instant; empty: none does.';
COMMENT ON COLUMN tasker.schedules.anchor IS 'What a fixed rate is counted from.';
COMMENT ON COLUMN tasker.schedules.next_at IS 'The first instant by the rule that is in no firing yet. Null: none is known.';
COMMENT ON COLUMN tasker.schedules.fire_at IS 'When a server attends to it next. Null: when somebody changes it, or a task of it ends.';
COMMENT ON COLUMN tasker.schedules.awaits_task IS 'Of a fixed delay: the task whose end its next instant follows.';
COMMENT ON COLUMN tasker.schedules.revision IS 'Goes up with each change of what people say of it.';

CREATE TABLE tasker.schema_migrations (
    version integer NOT NULL,
    name text NOT NULL,
    checksum text NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT schema_migrations_pkey PRIMARY KEY (version)
);
COMMENT ON TABLE tasker.schema_migrations IS 'Migrations that were applied, and as version 0 the checksum of all of the schema.';

CREATE TABLE tasker.sessions (
    session_uuid uuid NOT NULL,
    digest bytea NOT NULL,
    subject text NOT NULL,
    key_uuid uuid,
    groups text[] DEFAULT '{}'::text[] NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    seen_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    ends_at timestamp with time zone NOT NULL,
    ended_at timestamp with time zone,
    CONSTRAINT session_digest_is_sha256 CHECK ((octet_length(digest) = 32)),
    CONSTRAINT sessions_pkey PRIMARY KEY (session_uuid),
    CONSTRAINT sessions_digest_key UNIQUE (digest),
    CONSTRAINT sessions_key_uuid_fkey FOREIGN KEY (key_uuid) REFERENCES tasker.api_keys(key_uuid)
);
CREATE INDEX sessions_by_end ON tasker.sessions USING btree (ends_at);
CREATE INDEX sessions_by_subject ON tasker.sessions USING btree (subject, created_at);
CREATE TRIGGER ended_session_stays_ended BEFORE UPDATE ON tasker.sessions FOR EACH ROW WHEN (((old.ended_at IS NOT NULL) AND (new.ended_at IS NULL))) EXECUTE FUNCTION tasker.refuse_restored_access('a session');
CREATE TRIGGER session_change_is_noted AFTER UPDATE OF ends_at, ended_at ON tasker.sessions FOR EACH STATEMENT EXECUTE FUNCTION tasker.note_access_change();
COMMENT ON TABLE tasker.sessions IS 'Sessions of browsers. Those that have ended are removed after a day.';
COMMENT ON COLUMN tasker.sessions.key_uuid IS 'The key that signed in; the session ends with it. Null for a person from an identity provider.';
COMMENT ON COLUMN tasker.sessions.groups IS 'The groups of the person, as the identity provider said at sign-in.';
COMMENT ON COLUMN tasker.sessions.seen_at IS 'The last request, to the minute; a session that is not used for long enough ends.';

CREATE TABLE tasker.sign_ins (
    digest bytea NOT NULL,
    state text NOT NULL,
    nonce text NOT NULL,
    verifier text NOT NULL,
    back text NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT sign_in_digest_is_sha256 CHECK ((octet_length(digest) = 32)),
    CONSTRAINT sign_ins_pkey PRIMARY KEY (digest)
);
CREATE INDEX sign_ins_by_time ON tasker.sign_ins USING btree (created_at);
COMMENT ON TABLE tasker.sign_ins IS 'Browsers that are at the identity provider. A row goes with the end of the sign-in, or after ten minutes.';

CREATE TABLE tasker.staleness_thresholds (
    only_row boolean DEFAULT true NOT NULL,
    waiting_for_dependencies_minutes integer DEFAULT 60 NOT NULL,
    waiting_for_retry_minutes integer DEFAULT 30 NOT NULL,
    steps_in_process_minutes integer DEFAULT 30 NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    error_recovery_minutes integer DEFAULT 60 NOT NULL,
    applied_at timestamp with time zone,
    CONSTRAINT staleness_recovery_is_positive CHECK ((error_recovery_minutes > 0)),
    CONSTRAINT staleness_thresholds_are_positive CHECK (((waiting_for_dependencies_minutes > 0) AND (waiting_for_retry_minutes > 0) AND (steps_in_process_minutes > 0))),
    CONSTRAINT staleness_thresholds_is_one_row CHECK (only_row),
    CONSTRAINT staleness_thresholds_pkey PRIMARY KEY (only_row)
);
COMMENT ON TABLE tasker.staleness_thresholds IS 'The server''s staleness thresholds, from its configuration. A template''s own thresholds win.';
COMMENT ON COLUMN tasker.staleness_thresholds.error_recovery_minutes IS 'How long a task may stand in error without an investigation.';
COMMENT ON COLUMN tasker.staleness_thresholds.applied_at IS 'The updated_at whose thresholds every watched task has. Another one: a server is about to apply them.';

CREATE TABLE tasker.step_checkpoints (
    task_uuid uuid NOT NULL,
    step_uuid uuid NOT NULL,
    value jsonb NOT NULL,
    bytes integer NOT NULL,
    attempt integer NOT NULL,
    saved_at timestamp with time zone NOT NULL,
    CONSTRAINT step_checkpoints_pkey PRIMARY KEY (task_uuid, step_uuid)
);
COMMENT ON TABLE tasker.step_checkpoints IS 'The last checkpoint of each step whose workers save any: handed out with the attempts that follow, removed with its task.';
COMMENT ON COLUMN tasker.step_checkpoints.bytes IS 'Size of the value.';
COMMENT ON COLUMN tasker.step_checkpoints.attempt IS 'The attempt that saved it.';

CREATE TABLE tasker.step_history (
    task_uuid uuid NOT NULL,
    transition_id bigint GENERATED ALWAYS AS IDENTITY (INCREMENT BY 2) NOT NULL,
    step_uuid uuid NOT NULL,
    from_state text NOT NULL,
    to_state text NOT NULL,
    event text NOT NULL,
    attempt integer NOT NULL,
    worker_uuid uuid,
    actor text,
    reason text,
    detail jsonb,
    created_at timestamp with time zone NOT NULL,
    moves_id bigint,
    enqueued_at timestamp with time zone,
    claimed_at timestamp with time zone,
    operation_uuid uuid,
    CONSTRAINT step_history_pkey PRIMARY KEY (task_uuid, transition_id)
);
CREATE TRIGGER failed_step_is_told AFTER INSERT ON tasker.step_history FOR EACH ROW WHEN (((new.to_state = 'error'::text) AND (current_setting('tasker.task_events'::text, true) <> ''::text))) EXECUTE FUNCTION tasker.tell_of_failed_step();
CREATE TRIGGER history_of_investigated_task_stays AFTER DELETE ON tasker.step_history REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION tasker.refuse_removal_of_records();
COMMENT ON TABLE tasker.step_history IS 'History of the steps, append-only: read it as tasker.workflow_step_transitions. A row is a move, and may have the enqueue and the claim before it. A failure''s error is in detail.';
COMMENT ON COLUMN tasker.step_history.moves_id IS 'The transition_id of the enqueue that this row has; that of the claim is the next.';
COMMENT ON COLUMN tasker.step_history.enqueued_at IS 'When the attempt was enqueued, if no other row has that.';
COMMENT ON COLUMN tasker.step_history.claimed_at IS 'When it was claimed, if no other row has that.';
COMMENT ON COLUMN tasker.step_history.operation_uuid IS 'The operation whose item the move is; null when it was made by hand, or by nobody.';

CREATE TABLE tasker.task_attributes (
    task_uuid uuid NOT NULL,
    namespace text NOT NULL,
    name text NOT NULL,
    text_value text,
    number_value numeric,
    time_value timestamp with time zone,
    CONSTRAINT attribute_has_one_value CHECK ((num_nonnulls(text_value, number_value, time_value) = 1))
);
CREATE INDEX task_attributes_by_number ON tasker.task_attributes USING btree (namespace, name, number_value, task_uuid NULLS FIRST) WHERE (number_value IS NOT NULL);
CREATE INDEX task_attributes_by_text ON tasker.task_attributes USING btree (namespace, name, text_value, task_uuid NULLS FIRST) WHERE (text_value IS NOT NULL);
CREATE INDEX task_attributes_by_time ON tasker.task_attributes USING btree (namespace, name, time_value, task_uuid NULLS FIRST) WHERE (time_value IS NOT NULL);
CREATE INDEX task_attributes_of_task ON tasker.task_attributes USING btree (task_uuid);
COMMENT ON TABLE tasker.task_attributes IS 'What tasks are found by: a row for each tag, for the correlation id, initiator and source system that a task was given, and for each attribute that its template declares.';
COMMENT ON COLUMN tasker.task_attributes.name IS 'tag, correlation_id, initiator or source_system, or the name of an attribute that a template declares.';
COMMENT ON COLUMN tasker.task_attributes.text_value IS 'Of a text; true or false of a bool.';

CREATE TABLE tasker.task_history (
    task_uuid uuid NOT NULL,
    transition_id bigint GENERATED ALWAYS AS IDENTITY (INCREMENT BY 8) NOT NULL,
    from_state text NOT NULL,
    to_state text NOT NULL,
    event text,
    actor text,
    reason text,
    detail jsonb,
    created_at timestamp with time zone NOT NULL,
    CONSTRAINT task_history_pkey PRIMARY KEY (task_uuid, transition_id)
);
CREATE TRIGGER history_of_investigated_task_stays AFTER DELETE ON tasker.task_history REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION tasker.refuse_removal_of_records();
CREATE TRIGGER task_is_told AFTER INSERT ON tasker.task_history FOR EACH ROW WHEN (((new.to_state = ANY (ARRAY['complete'::text, 'cancelled'::text, 'error'::text])) AND (new.from_state <> new.to_state) AND (current_setting('tasker.task_events'::text, true) <> ''::text))) EXECUTE FUNCTION tasker.tell_of_task();
COMMENT ON TABLE tasker.task_history IS 'History of the tasks, append-only: read it as tasker.task_transitions.';
COMMENT ON COLUMN tasker.task_history.event IS 'Null: the row is the whole path from from_state to to_state in tasker.task_settle_paths.';

CREATE TABLE tasker.task_limits (
    task_uuid uuid NOT NULL,
    step_uuid uuid,
    limit_id bigint NOT NULL,
    key text NOT NULL,
    weight integer DEFAULT 1 NOT NULL
);
CREATE INDEX task_limits_by_task ON tasker.task_limits USING btree (task_uuid);
CREATE INDEX task_limits_with_weight ON tasker.task_limits USING btree (task_uuid) WHERE (weight > 1);
COMMENT ON TABLE tasker.task_limits IS 'The limits that the template of a task gives to it, with their keys.';
COMMENT ON COLUMN tasker.task_limits.step_uuid IS 'The step that is limited. Null: every step of the task.';
COMMENT ON COLUMN tasker.task_limits.weight IS 'How many places the step takes.';

CREATE TABLE tasker.task_requests (
    task_uuid uuid NOT NULL,
    namespace text NOT NULL,
    name text NOT NULL,
    version text DEFAULT ''::text NOT NULL,
    context jsonb DEFAULT '{}'::jsonb NOT NULL,
    priority integer DEFAULT 0 NOT NULL,
    tags text[] DEFAULT '{}'::text[] NOT NULL,
    idempotency_key text,
    correlation_id text DEFAULT ''::text NOT NULL,
    reason text DEFAULT ''::text NOT NULL,
    source_system text DEFAULT ''::text NOT NULL,
    initiator text DEFAULT ''::text NOT NULL,
    start_at timestamp with time zone,
    due_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    refused_at timestamp with time zone,
    error_code text DEFAULT ''::text NOT NULL,
    error_message text DEFAULT ''::text NOT NULL,
    CONSTRAINT task_request_that_is_refused_has_an_error CHECK (((refused_at IS NULL) = (error_code = ''::text))),
    CONSTRAINT task_requests_pkey PRIMARY KEY (task_uuid)
);
CREATE UNIQUE INDEX task_request_key_is_unique ON tasker.task_requests USING btree (namespace, idempotency_key) WHERE ((idempotency_key IS NOT NULL) AND (refused_at IS NULL));
CREATE INDEX task_requests_refused ON tasker.task_requests USING btree (refused_at) WHERE (refused_at IS NOT NULL);
CREATE INDEX task_requests_to_create ON tasker.task_requests USING btree (created_at) WHERE (refused_at IS NULL);
COMMENT ON TABLE tasker.task_requests IS 'Tasks that tasker.create_task requested and no server has created yet, and those that servers refused to create. Creating the task deletes the row.';
COMMENT ON COLUMN tasker.task_requests.task_uuid IS 'The UUID of the task, once it is created.';
COMMENT ON COLUMN tasker.task_requests.refused_at IS 'When a server refused to create the task. Null: it is to be created.';
COMMENT ON COLUMN tasker.task_requests.error_code IS 'Why, as a code of the API.';

CREATE TABLE tasker.task_settle_paths (
    rest_from text NOT NULL,
    rest_to text NOT NULL,
    ordinal integer NOT NULL,
    event text NOT NULL,
    from_state text NOT NULL,
    to_state text NOT NULL,
    CONSTRAINT task_settle_paths_pkey PRIMARY KEY (rest_from, rest_to, ordinal)
);
COMMENT ON TABLE tasker.task_settle_paths IS 'The history rows that lead from one resting state of a task to another: a copy of the lifecycle table, kept equal by a test.';

CREATE TABLE tasker.task_starts (
    task_uuid uuid NOT NULL,
    start_by timestamp with time zone NOT NULL,
    CONSTRAINT task_starts_pkey PRIMARY KEY (task_uuid)
);
CREATE INDEX task_starts_by_time ON tasker.task_starts USING btree (start_by);
COMMENT ON TABLE tasker.task_starts IS 'Open tasks that end as expired unless a step of them is claimed by an instant. The row goes when the task has ended, or when that instant finds a step claimed.';

CREATE TABLE tasker.task_templates (
    template_uuid uuid DEFAULT tasker.uuid_generate_v7() NOT NULL,
    namespace text NOT NULL,
    name text NOT NULL,
    version text NOT NULL,
    description text DEFAULT ''::text NOT NULL,
    configuration jsonb NOT NULL,
    source text NOT NULL,
    checksum text NOT NULL,
    max_waiting_for_dependencies_minutes integer,
    max_waiting_for_retry_minutes integer,
    max_steps_in_process_minutes integer,
    max_duration_minutes integer,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    retired_at timestamp with time zone,
    retired_by text,
    retired_reason text,
    attributes text[],
    CONSTRAINT task_templates_pkey PRIMARY KEY (template_uuid),
    CONSTRAINT task_template_version_is_unique UNIQUE (namespace, name, version)
);
COMMENT ON TABLE tasker.task_templates IS 'Templates, one row a version. A version that a task uses never changes.';
COMMENT ON COLUMN tasker.task_templates.configuration IS 'The template as it is understood.';
COMMENT ON COLUMN tasker.task_templates.source IS 'The document as it was registered.';
COMMENT ON COLUMN tasker.task_templates.retired_at IS 'Since when no new tasks are made of this version. Null: they are.';
COMMENT ON COLUMN tasker.task_templates.retired_by IS 'Who retired it.';
COMMENT ON COLUMN tasker.task_templates.retired_reason IS 'Why.';
COMMENT ON COLUMN tasker.task_templates.attributes IS 'The names of the search attributes that it declares. Null: none.';

CREATE TABLE tasker.tasks (
    task_uuid uuid NOT NULL,
    template_uuid uuid NOT NULL,
    namespace text NOT NULL,
    name text NOT NULL,
    version text NOT NULL,
    state text NOT NULL,
    state_since timestamp with time zone NOT NULL,
    warn_at timestamp with time zone,
    stale_at timestamp with time zone,
    ends_at timestamp with time zone,
    priority integer DEFAULT 0 NOT NULL,
    context jsonb NOT NULL,
    initiator text DEFAULT ''::text NOT NULL,
    source_system text DEFAULT ''::text NOT NULL,
    reason text DEFAULT ''::text NOT NULL,
    tags text[] DEFAULT '{}'::text[] NOT NULL,
    correlation_id text NOT NULL,
    parent_correlation_id text DEFAULT ''::text NOT NULL,
    idempotency_key text,
    request_digest bytea,
    recreated_from uuid,
    start_at timestamp with time zone,
    created_at timestamp with time zone NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    completed_at timestamp with time zone,
    attend_by timestamp with time zone,
    context_bytes integer,
    phase text,
    outcome text,
    parent_task_uuid uuid,
    parent_step_uuid uuid,
    depth smallint,
    schedule_uuid uuid,
    options jsonb,
    CONSTRAINT task_context_is_an_object CHECK ((jsonb_typeof(context) = 'object'::text)),
    CONSTRAINT task_rests_only_where_it_may CHECK ((state = ANY (ARRAY['pending'::text, 'steps_in_process'::text, 'waiting_for_dependencies'::text, 'waiting_for_retry'::text, 'complete'::text, 'error'::text, 'cancelled'::text]))),
    CONSTRAINT task_watched_has_deadlines CHECK (((state = ANY (ARRAY['steps_in_process'::text, 'waiting_for_dependencies'::text, 'waiting_for_retry'::text])) = ((stale_at IS NOT NULL) AND (warn_at IS NOT NULL)))),
    CONSTRAINT tasks_pkey PRIMARY KEY (task_uuid),
    CONSTRAINT tasks_template_uuid_fkey FOREIGN KEY (template_uuid) REFERENCES tasker.task_templates(template_uuid)
) WITH (fillfactor=85, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=5000);
CREATE UNIQUE INDEX task_idempotency_key_is_unique ON tasker.tasks USING btree (namespace, idempotency_key) WHERE (idempotency_key IS NOT NULL);
CREATE INDEX tasks_by_duration ON tasker.tasks USING btree (ends_at) WHERE ((ends_at IS NOT NULL) AND (stale_at IS NOT NULL));
CREATE INDEX tasks_by_phase ON tasker.tasks USING btree (phase, task_uuid DESC) WHERE (phase IS NOT NULL);
CREATE INDEX tasks_by_state ON tasker.tasks USING btree (state, task_uuid DESC);
CREATE INDEX tasks_by_threshold ON tasker.tasks USING btree (((EXTRACT(epoch FROM (stale_at - state_since)))::double precision), state_since, task_uuid) WHERE (stale_at IS NOT NULL);
CREATE INDEX tasks_of_parent ON tasker.tasks USING btree (parent_task_uuid, task_uuid DESC) WHERE (parent_task_uuid IS NOT NULL);
CREATE INDEX tasks_of_template ON tasker.tasks USING btree (template_uuid, task_uuid DESC);
CREATE INDEX tasks_to_start ON tasker.tasks USING btree (start_at) WHERE (state = 'pending'::text);
CREATE INDEX tasks_unattended ON tasker.tasks USING btree (attend_by) WHERE (attend_by IS NOT NULL);
CREATE TRIGGER child_task_is_followed AFTER UPDATE OF state ON tasker.tasks FOR EACH ROW WHEN (((new.state = ANY (ARRAY['complete'::text, 'cancelled'::text])) AND (old.state <> new.state) AND ((new.state = 'cancelled'::text) OR (new.parent_step_uuid IS NOT NULL)))) EXECUTE FUNCTION tasker.follow_child_task();
CREATE TRIGGER compensation_is_told AFTER UPDATE OF outcome ON tasker.tasks FOR EACH ROW WHEN (((old.outcome IS NULL) AND (new.outcome IS NOT NULL))) EXECUTE FUNCTION tasker.tell_of_compensation();
CREATE TRIGGER scheduled_task_is_followed AFTER UPDATE OF state ON tasker.tasks FOR EACH ROW WHEN (((new.schedule_uuid IS NOT NULL) AND (new.state = ANY (ARRAY['complete'::text, 'cancelled'::text])) AND (old.state <> new.state))) EXECUTE FUNCTION tasker.follow_scheduled_task();
CREATE TRIGGER task_in_error_is_watched BEFORE UPDATE OF state ON tasker.tasks FOR EACH ROW WHEN (((old.state <> new.state) AND (('error'::text = old.state) OR ('error'::text = new.state)))) EXECUTE FUNCTION tasker.watch_task_in_error();
CREATE TRIGGER task_made_in_error_is_watched BEFORE INSERT ON tasker.tasks FOR EACH ROW WHEN ((new.state = 'error'::text)) EXECUTE FUNCTION tasker.watch_task_in_error();
CREATE TRIGGER task_options_end AFTER UPDATE OF state ON tasker.tasks FOR EACH ROW WHEN (((new.options IS NOT NULL) AND (old.state <> new.state) AND ((old.state = 'pending'::text) OR (new.state = ANY (ARRAY['complete'::text, 'cancelled'::text]))))) EXECUTE FUNCTION tasker.end_task_options();
COMMENT ON TABLE tasker.tasks IS 'One row a task: a run of a template.';
COMMENT ON COLUMN tasker.tasks.state_since IS 'When the task entered its state, or last made progress in it (to about a second).';
COMMENT ON COLUMN tasker.tasks.warn_at IS 'Instant from which the staleness monitor warns: 80 % of the threshold.';
COMMENT ON COLUMN tasker.tasks.stale_at IS 'Instant from which the task counts as stale: state_since and the threshold of its state. Null in states that nobody watches.';
COMMENT ON COLUMN tasker.tasks.ends_at IS 'Instant at which max_duration_minutes of the template is over. Null when it has none.';
COMMENT ON COLUMN tasker.tasks.attend_by IS 'Instant from which a task in error needs an investigation if it has none. Null when it has one, or is not in error.';
COMMENT ON COLUMN tasker.tasks.context_bytes IS 'Size of the context as it is read back. Null: not measured.';
COMMENT ON COLUMN tasker.tasks.phase IS 'compensating: the open task undoes what its steps have done. Null: it goes forward, or has ended.';
COMMENT ON COLUMN tasker.tasks.outcome IS 'Of a cancelled task that was to undo what it had done: compensated, compensation_stopped or nothing_to_compensate.';
COMMENT ON COLUMN tasker.tasks.parent_task_uuid IS 'The task whose step started this one. It may have been removed since. Null: no task did.';
COMMENT ON COLUMN tasker.tasks.parent_step_uuid IS 'The step of that task.';
COMMENT ON COLUMN tasker.tasks.depth IS 'How many tasks are above it. Null: none.';
COMMENT ON COLUMN tasker.tasks.schedule_uuid IS 'The schedule that made it. It may have been removed since. Null: none did.';
COMMENT ON COLUMN tasker.tasks.options IS 'What the task was created with beyond its request, such as start_by, as it is shown. Null: nothing.';

CREATE TABLE tasker.tasks_dlq (
    dlq_entry_uuid uuid DEFAULT tasker.uuid_generate_v7() NOT NULL,
    task_uuid uuid NOT NULL,
    step_uuid uuid,
    original_state character varying(50) NOT NULL,
    dlq_reason tasker.dlq_reason NOT NULL,
    detail_code text NOT NULL,
    detected_by text NOT NULL,
    dlq_timestamp timestamp with time zone DEFAULT now() NOT NULL,
    priority_at timestamp with time zone NOT NULL,
    task_snapshot jsonb NOT NULL,
    resolution_status tasker.dlq_resolution_status DEFAULT 'pending'::tasker.dlq_resolution_status NOT NULL,
    resolution_notes text,
    resolved_at timestamp with time zone,
    resolved_by character varying(255),
    metadata jsonb,
    recovered_at timestamp with time zone,
    predecessor_uuid uuid,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    namespace text NOT NULL,
    task_name text NOT NULL,
    step_name text,
    error_pattern text,
    case_key uuid NOT NULL,
    time_in_state_minutes numeric,
    original_reason tasker.dlq_reason,
    original_detail_code text,
    CONSTRAINT entry_ended_has_time_and_person CHECK ((((resolution_status = 'pending'::tasker.dlq_resolution_status) = (resolved_at IS NULL)) AND ((resolution_status = 'pending'::tasker.dlq_resolution_status) OR ((resolved_by IS NOT NULL) AND (btrim(resolution_notes) <> ''::text))))),
    CONSTRAINT tasks_dlq_pkey PRIMARY KEY (dlq_entry_uuid),
    CONSTRAINT tasks_dlq_predecessor_uuid_fkey FOREIGN KEY (predecessor_uuid) REFERENCES tasker.tasks_dlq(dlq_entry_uuid),
    CONSTRAINT tasks_dlq_task_uuid_fkey FOREIGN KEY (task_uuid) REFERENCES tasker.tasks(task_uuid)
);
CREATE UNIQUE INDEX idx_dlq_unique_pending_task ON tasker.tasks_dlq USING btree (task_uuid) WHERE (resolution_status = 'pending'::tasker.dlq_resolution_status);
CREATE INDEX tasks_dlq_by_namespace ON tasker.tasks_dlq USING btree (namespace, dlq_timestamp DESC, dlq_entry_uuid DESC);
CREATE INDEX tasks_dlq_by_status ON tasker.tasks_dlq USING btree (resolution_status, dlq_timestamp DESC, dlq_entry_uuid DESC);
CREATE INDEX tasks_dlq_by_task ON tasker.tasks_dlq USING btree (task_uuid, dlq_timestamp DESC);
CREATE INDEX tasks_dlq_by_time ON tasker.tasks_dlq USING btree (dlq_timestamp DESC, dlq_entry_uuid DESC);
CREATE INDEX tasks_dlq_ended_by_case ON tasker.tasks_dlq USING btree (case_key, resolved_at DESC) WHERE (resolution_status <> 'pending'::tasker.dlq_resolution_status);
CREATE INDEX tasks_dlq_pending_by_case ON tasker.tasks_dlq USING btree (namespace, dlq_reason, case_key, dlq_timestamp) INCLUDE (recovered_at) WHERE (resolution_status = 'pending'::tasker.dlq_resolution_status);
CREATE INDEX tasks_dlq_queue ON tasker.tasks_dlq USING btree (((recovered_at IS NOT NULL)), priority_at, dlq_entry_uuid) WHERE (resolution_status = 'pending'::tasker.dlq_resolution_status);
CREATE INDEX tasks_dlq_queue_of_namespace ON tasker.tasks_dlq USING btree (namespace, ((recovered_at IS NOT NULL)), priority_at, dlq_entry_uuid) WHERE ((resolution_status = 'pending'::tasker.dlq_resolution_status) AND (namespace > ''::text));
CREATE TRIGGER entries_are_never_removed BEFORE TRUNCATE ON tasker.tasks_dlq FOR EACH STATEMENT EXECUTE FUNCTION tasker.refuse_change_of_record();
CREATE TRIGGER entry_ended_is_added_up AFTER UPDATE OF resolution_status ON tasker.tasks_dlq FOR EACH ROW WHEN (((old.resolution_status = 'pending'::tasker.dlq_resolution_status) AND (new.resolution_status <> 'pending'::tasker.dlq_resolution_status))) EXECUTE FUNCTION tasker.add_to_dlq_totals();
CREATE TRIGGER entry_ended_stays_so BEFORE UPDATE ON tasker.tasks_dlq FOR EACH ROW WHEN (((old.resolution_status <> 'pending'::tasker.dlq_resolution_status) AND ((new.resolution_status <> old.resolution_status) OR (new.resolved_at IS DISTINCT FROM old.resolved_at)))) EXECUTE FUNCTION tasker.refuse_change_of_record();
CREATE TRIGGER entry_ended_task_is_watched AFTER UPDATE OF resolution_status ON tasker.tasks_dlq FOR EACH ROW WHEN (((old.resolution_status = 'pending'::tasker.dlq_resolution_status) AND ((new.resolution_status = 'manually_resolved'::tasker.dlq_resolution_status) OR ((new.resolution_status = 'cancelled'::tasker.dlq_resolution_status) AND (new.dlq_reason = 'manual_dlq'::tasker.dlq_reason))))) EXECUTE FUNCTION tasker.watch_task_again();
CREATE TRIGGER entry_evidence_never_changes BEFORE UPDATE ON tasker.tasks_dlq FOR EACH ROW WHEN (((old.task_uuid IS DISTINCT FROM new.task_uuid) OR ((old.original_state)::text IS DISTINCT FROM (new.original_state)::text) OR (old.detected_by IS DISTINCT FROM new.detected_by) OR (old.dlq_timestamp IS DISTINCT FROM new.dlq_timestamp) OR (old.task_snapshot IS DISTINCT FROM new.task_snapshot) OR (old.predecessor_uuid IS DISTINCT FROM new.predecessor_uuid) OR (old.created_at IS DISTINCT FROM new.created_at) OR (old.namespace IS DISTINCT FROM new.namespace) OR (old.task_name IS DISTINCT FROM new.task_name) OR (((old.dlq_reason IS DISTINCT FROM new.dlq_reason) OR (old.detail_code IS DISTINCT FROM new.detail_code) OR (old.step_uuid IS DISTINCT FROM new.step_uuid) OR (old.priority_at IS DISTINCT FROM new.priority_at) OR (old.step_name IS DISTINCT FROM new.step_name) OR (old.error_pattern IS DISTINCT FROM new.error_pattern) OR (old.case_key IS DISTINCT FROM new.case_key) OR (old.original_reason IS DISTINCT FROM new.original_reason) OR (old.original_detail_code IS DISTINCT FROM new.original_detail_code)) AND ((old.resolution_status <> 'pending'::tasker.dlq_resolution_status) OR (new.resolution_status <> 'pending'::tasker.dlq_resolution_status) OR (new.dlq_reason = old.dlq_reason) OR (new.priority_at >= old.priority_at) OR (new.original_reason IS DISTINCT FROM COALESCE(old.original_reason, old.dlq_reason)) OR (new.original_detail_code IS DISTINCT FROM COALESCE(old.original_detail_code, old.detail_code)))))) EXECUTE FUNCTION tasker.refuse_change_of_evidence();
CREATE TRIGGER entry_frees_unique_key AFTER UPDATE OF resolution_status ON tasker.tasks_dlq FOR EACH ROW WHEN (((old.resolution_status = 'pending'::tasker.dlq_resolution_status) AND (new.resolution_status = 'permanently_failed'::tasker.dlq_resolution_status))) EXECUTE FUNCTION tasker.free_unique_key();
CREATE TRIGGER entry_gave_up_child AFTER UPDATE OF resolution_status ON tasker.tasks_dlq FOR EACH ROW WHEN (((old.resolution_status = 'pending'::tasker.dlq_resolution_status) AND (new.resolution_status = 'permanently_failed'::tasker.dlq_resolution_status))) EXECUTE FUNCTION tasker.follow_given_up_child();
CREATE TRIGGER entry_gave_up_scheduled_task AFTER UPDATE OF resolution_status ON tasker.tasks_dlq FOR EACH ROW WHEN (((old.resolution_status = 'pending'::tasker.dlq_resolution_status) AND (new.resolution_status = 'permanently_failed'::tasker.dlq_resolution_status))) EXECUTE FUNCTION tasker.follow_scheduled_task();
CREATE TRIGGER entry_has_its_member AFTER UPDATE OF resolution_status, recovered_at ON tasker.tasks_dlq FOR EACH ROW WHEN (((old.resolved_at IS DISTINCT FROM new.resolved_at) OR (old.recovered_at IS DISTINCT FROM new.recovered_at))) EXECUTE FUNCTION tasker.follow_entry();
CREATE TRIGGER entry_is_never_removed BEFORE DELETE ON tasker.tasks_dlq FOR EACH ROW EXECUTE FUNCTION tasker.refuse_change_of_record();
CREATE TRIGGER entry_made_ended_is_added_up AFTER INSERT ON tasker.tasks_dlq FOR EACH ROW WHEN ((new.resolution_status <> 'pending'::tasker.dlq_resolution_status)) EXECUTE FUNCTION tasker.add_to_dlq_totals();
CREATE TRIGGER entry_time_is_noted BEFORE INSERT ON tasker.tasks_dlq FOR EACH ROW EXECUTE FUNCTION tasker.note_time_in_state();
CREATE TRIGGER permanent_failure_is_told AFTER UPDATE OF resolution_status ON tasker.tasks_dlq FOR EACH ROW WHEN (((old.resolution_status = 'pending'::tasker.dlq_resolution_status) AND (new.resolution_status = 'permanently_failed'::tasker.dlq_resolution_status) AND (current_setting('tasker.task_events'::text, true) <> ''::text))) EXECUTE FUNCTION tasker.tell_of_permanent_failure();
COMMENT ON TABLE tasker.tasks_dlq IS 'Investigations: why a task is stuck, as evidence, and who looked into it. Only a weightier reason replaces the reason of an open one.';
COMMENT ON COLUMN tasker.tasks_dlq.priority_at IS 'dlq_timestamp less the base priority of the reason in minutes: the order of the investigation queue, which time does not change because age grows equally for all.';
COMMENT ON COLUMN tasker.tasks_dlq.recovered_at IS 'When the task went on by itself although the entry is open.';
COMMENT ON COLUMN tasker.tasks_dlq.error_pattern IS 'The message of the step''s error when the entry was opened, without ids and numbers; null when no step failed.';
COMMENT ON COLUMN tasker.tasks_dlq.case_key IS 'The same for investigations of the same failure: namespace, template, reason, step and error.';
COMMENT ON COLUMN tasker.tasks_dlq.time_in_state_minutes IS 'What the snapshot says of it. Null: nothing, or it is hidden.';
COMMENT ON COLUMN tasker.tasks_dlq.original_reason IS 'The reason it was opened for, when a weightier one has replaced that since; null otherwise.';
COMMENT ON COLUMN tasker.tasks_dlq.original_detail_code IS 'The detail code it was opened for, when a weightier reason has replaced that since; null otherwise.';

CREATE TABLE tasker.tasks_dlq_history (
    history_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    dlq_entry_uuid uuid NOT NULL,
    event text NOT NULL,
    actor text NOT NULL,
    from_status tasker.dlq_resolution_status,
    to_status tasker.dlq_resolution_status NOT NULL,
    notes text,
    metadata jsonb,
    changed_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT tasks_dlq_history_pkey PRIMARY KEY (history_id),
    CONSTRAINT tasks_dlq_history_dlq_entry_uuid_fkey FOREIGN KEY (dlq_entry_uuid) REFERENCES tasker.tasks_dlq(dlq_entry_uuid)
);
CREATE INDEX tasks_dlq_history_by_entry ON tasker.tasks_dlq_history USING btree (dlq_entry_uuid, history_id);
CREATE TRIGGER history_is_never_removed BEFORE TRUNCATE ON tasker.tasks_dlq_history FOR EACH STATEMENT EXECUTE FUNCTION tasker.refuse_change_of_record();
CREATE TRIGGER history_is_told AFTER INSERT ON tasker.tasks_dlq_history REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION tasker.tell_of_investigation();
CREATE TRIGGER history_never_changes BEFORE DELETE OR UPDATE ON tasker.tasks_dlq_history FOR EACH ROW EXECUTE FUNCTION tasker.refuse_change_of_record();
COMMENT ON TABLE tasker.tasks_dlq_history IS 'Every change of an investigation: who, when, from, to. Append-only.';

CREATE TABLE tasker.template_handlers (
    namespace text NOT NULL,
    handler text NOT NULL,
    CONSTRAINT template_handlers_pkey PRIMARY KEY (namespace, handler)
);
COMMENT ON TABLE tasker.template_handlers IS 'Handlers that templates of a namespace name. Some may be named by none any more, because an unused version was replaced.';

CREATE TABLE tasker.unique_tasks (
    namespace text NOT NULL,
    name text NOT NULL,
    unique_key text NOT NULL,
    task_uuid uuid NOT NULL,
    CONSTRAINT unique_task_has_its_key PRIMARY KEY (namespace, name, unique_key),
    CONSTRAINT unique_task_has_one_key UNIQUE (task_uuid)
);
COMMENT ON TABLE tasker.unique_tasks IS 'The open tasks that have a unique key, by their template and key.';

CREATE TABLE tasker.workers (
    worker_uuid uuid NOT NULL,
    name text NOT NULL,
    namespaces text[] NOT NULL,
    handlers text[] NOT NULL,
    version text DEFAULT ''::text NOT NULL,
    max_concurrency integer NOT NULL,
    heartbeat_interval interval NOT NULL,
    lease interval NOT NULL,
    registered_at timestamp with time zone DEFAULT now() NOT NULL,
    last_heartbeat_at timestamp with time zone DEFAULT now() NOT NULL,
    left_at timestamp with time zone,
    draining_since timestamp with time zone,
    registered_by text,
    CONSTRAINT workers_pkey PRIMARY KEY (worker_uuid)
);
CREATE INDEX workers_by_heartbeat ON tasker.workers USING btree (last_heartbeat_at DESC);
COMMENT ON TABLE tasker.workers IS 'The workers that registered, with what they were promised and the last sign of life of each.';
COMMENT ON COLUMN tasker.workers.draining_since IS 'From when on the worker gets no new work: it finishes what it holds and leaves.';
COMMENT ON COLUMN tasker.workers.registered_by IS 'The subject that registered the worker; null where nobody signs in.';

CREATE TABLE tasker.workflow_steps (
    task_uuid uuid NOT NULL,
    step_uuid uuid NOT NULL,
    name text NOT NULL,
    step_type text NOT NULL,
    namespace text NOT NULL,
    handler text NOT NULL,
    priority integer NOT NULL,
    state text NOT NULL,
    state_since timestamp with time zone NOT NULL,
    parent_uuids uuid[] NOT NULL,
    child_uuids uuid[] NOT NULL,
    parents_open integer NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    max_attempts integer NOT NULL,
    retryable boolean NOT NULL,
    backoff text NOT NULL,
    backoff_base_ms integer NOT NULL,
    max_backoff_ms integer NOT NULL,
    backoff_jitter boolean NOT NULL,
    timeout_ms bigint,
    fence bigint DEFAULT 0 NOT NULL,
    reported_fence bigint,
    report_digest bytea,
    kept_report jsonb,
    worker_uuid uuid,
    lease_expires_at timestamp with time zone,
    timeout_at timestamp with time zone,
    next_retry_at timestamp with time zone,
    last_attempted_at timestamp with time zone,
    last_failure_at timestamp with time zone,
    completed_at timestamp with time zone,
    created_at timestamp with time zone NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    results jsonb,
    error jsonb,
    queue_ttl_ms bigint,
    expires_at timestamp with time zone,
    queue_expiries integer DEFAULT 0 NOT NULL,
    awaits_worker_since timestamp with time zone,
    results_bytes integer,
    inputs_bytes bigint,
    unwritten smallint DEFAULT 0 NOT NULL,
    moves_id bigint,
    enqueued_at timestamp with time zone,
    join_rule text,
    decide_at timestamp with time zone,
    decided_at timestamp with time zone,
    skip_reason text,
    wait_until timestamp with time zone,
    remind_first_s integer,
    reminders integer DEFAULT 0 NOT NULL,
    remind_at timestamp with time zone,
    is_decision boolean,
    child_task_uuid uuid,
    map_step_uuid uuid,
    item_ordinal integer,
    item jsonb,
    items_total integer,
    attributes_at timestamp with time zone,
    checkpointed boolean,
    item_under_way integer,
    items_limit integer,
    items_free integer,
    item_next integer,
    CONSTRAINT step_has_all_of_its_state CHECK (((state = ANY ('{pending,enqueued,in_progress,enqueued_for_orchestration,complete,error,resolved_manually,skipped,cancelled}'::text[])) AND ((expires_at IS NOT NULL) = (state = 'enqueued'::text)) AND ((lease_expires_at IS NOT NULL) = (state = 'in_progress'::text)) AND ((kept_report IS NOT NULL) = (state = 'enqueued_for_orchestration'::text)) AND ((state = 'error'::text) OR ((next_retry_at IS NULL) AND (awaits_worker_since IS NULL))) AND ((next_retry_at IS NULL) OR (awaits_worker_since IS NULL)) AND ((expires_at IS NULL) OR (join_rule IS NULL) OR (decided_at IS NOT NULL)) AND ((skip_reason IS NOT NULL) OR (state <> 'skipped'::text)))),
    CONSTRAINT step_has_all_of_its_type CHECK (((step_type = ANY ('{standard,external,wait,child,map}'::text[])) AND (backoff = ANY ('{exponential,linear,constant}'::text[])) AND (queue_ttl_ms > 0) AND ((child_task_uuid IS NOT NULL) OR (decided_at IS NULL) OR (step_type <> 'child'::text)) AND (parents_open >= 0) AND ((parents_open <= cardinality(parent_uuids)) OR ((items_total IS NOT NULL) AND (parents_open <= items_total)) OR ((map_step_uuid IS NOT NULL) AND (parents_open <= 1))) AND ((map_step_uuid IS NULL) = (item IS NULL)) AND ((map_step_uuid IS NULL) = (item_ordinal IS NULL)) AND (item_ordinal >= 0))),
    CONSTRAINT workflow_steps_pkey PRIMARY KEY (task_uuid, step_uuid)
) WITH (autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=5000, fillfactor=40);
CREATE INDEX steps_awaiting_worker ON tasker.workflow_steps USING btree (namespace, handler, awaits_worker_since) WHERE (awaits_worker_since IS NOT NULL);
CREATE INDEX steps_by_map ON tasker.workflow_steps USING btree (task_uuid, map_step_uuid, item_ordinal) WHERE (map_step_uuid IS NOT NULL);
CREATE INDEX steps_by_reminder ON tasker.workflow_steps USING btree (remind_at, task_uuid, step_uuid) WHERE (remind_at IS NOT NULL);
CREATE INDEX steps_by_wait ON tasker.workflow_steps USING btree (wait_until, task_uuid, step_uuid) WHERE (wait_until IS NOT NULL);
CREATE INDEX steps_to_decide ON tasker.workflow_steps USING btree (decide_at, task_uuid, step_uuid) WHERE (decide_at IS NOT NULL);
CREATE INDEX steps_to_retry ON tasker.workflow_steps USING btree (next_retry_at, task_uuid, step_uuid) WHERE (next_retry_at IS NOT NULL);
CREATE INDEX steps_with_attributes_due ON tasker.workflow_steps USING btree (attributes_at, task_uuid, step_uuid) WHERE (attributes_at < 'infinity'::timestamp with time zone);
CREATE INDEX steps_with_kept_report ON tasker.workflow_steps USING btree (task_uuid, step_uuid) WHERE (kept_report IS NOT NULL);
CREATE TRIGGER steps_of_investigated_task_stay AFTER DELETE ON tasker.workflow_steps REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION tasker.refuse_removal_of_records();
COMMENT ON TABLE tasker.workflow_steps IS 'One row a step of a task. The edges of the graph are the arrays of parents and children.';
COMMENT ON COLUMN tasker.workflow_steps.parents_open IS 'Parents that are not yet complete, resolved by hand or skipped. Of a step whose join_rule is any, at least the true number. Of a step of type map that has its items: the items that are not.';
COMMENT ON COLUMN tasker.workflow_steps.fence IS 'Goes up with every claim and whenever a lease is taken away; a report must name the current one.';
COMMENT ON COLUMN tasker.workflow_steps.reported_fence IS 'The fence of the last report that counted, so that the same report sent again is recognised.';
COMMENT ON COLUMN tasker.workflow_steps.kept_report IS 'A report that was accepted but whose follow-up failed; it is tried again.';
COMMENT ON COLUMN tasker.workflow_steps.next_retry_at IS 'Instant from which a failed step may be enqueued again. Null in state error means: failed for good.';
COMMENT ON COLUMN tasker.workflow_steps.queue_ttl_ms IS 'How long the step may wait in the queue, in milliseconds. Null: as the server says.';
COMMENT ON COLUMN tasker.workflow_steps.expires_at IS 'Instant from which an enqueued step counts as taken by no worker in time.';
COMMENT ON COLUMN tasker.workflow_steps.queue_expiries IS 'How often in a row it was taken by no worker in time although one was alive.';
COMMENT ON COLUMN tasker.workflow_steps.awaits_worker_since IS 'When it was taken by no worker in time. It goes back into the queue by itself once a worker for it lives.';
COMMENT ON COLUMN tasker.workflow_steps.results_bytes IS 'Size of the result (results -> ''result'') as it is read back. Null: not measured, or there is none.';
COMMENT ON COLUMN tasker.workflow_steps.inputs_bytes IS 'Size of what the step is handed out with: the context of its task and the results of those of its parents that are done. Null: not measured.';
COMMENT ON COLUMN tasker.workflow_steps.unwritten IS 'Which moves of the attempt that is under way the history does not have yet: 1 enqueue, 2 claim, 3 both.';
COMMENT ON COLUMN tasker.workflow_steps.moves_id IS 'The transition_id of that enqueue; that of the claim is the next.';
COMMENT ON COLUMN tasker.workflow_steps.enqueued_at IS 'When that enqueue was, of a step that is claimed. While it is enqueued it is state_since.';
COMMENT ON COLUMN tasker.workflow_steps.join_rule IS 'all, any or none_failed: the step is decided when its parents are done. Null: it has no condition, and no parent of it can be skipped, so it is enqueued at once.';
COMMENT ON COLUMN tasker.workflow_steps.decide_at IS 'Instant from which a pending step is due to be decided. Null: not now.';
COMMENT ON COLUMN tasker.workflow_steps.decided_at IS 'When it was decided that the step runs.';
COMMENT ON COLUMN tasker.workflow_steps.skip_reason IS 'Why the step is skipped, in words.';
COMMENT ON COLUMN tasker.workflow_steps.wait_until IS 'When the wait of a pending external step ends by the clock. Null: it does not wait yet, or without end.';
COMMENT ON COLUMN tasker.workflow_steps.remind_first_s IS 'After how many seconds of its wait people are first reminded of the step. Null: they are not.';
COMMENT ON COLUMN tasker.workflow_steps.reminders IS 'How often people were reminded of the step in this wait.';
COMMENT ON COLUMN tasker.workflow_steps.remind_at IS 'When people are next reminded of a pending step. Null: it does not wait yet, or they are not reminded again.';
COMMENT ON COLUMN tasker.workflow_steps.is_decision IS 'True of a step of type decision: its result names which of its direct dependents go on. Null of all others.';
COMMENT ON COLUMN tasker.workflow_steps.child_task_uuid IS 'The task that a step of type child started last.';
COMMENT ON COLUMN tasker.workflow_steps.map_step_uuid IS 'Of an item: the step of type map that it belongs to.';
COMMENT ON COLUMN tasker.workflow_steps.item_ordinal IS 'Of an item: its place among the items of its step, from 0.';
COMMENT ON COLUMN tasker.workflow_steps.item IS 'Of an item: what its handler is given, an element of the list or several.';
COMMENT ON COLUMN tasker.workflow_steps.items_total IS 'Of a step of type map: how many items it has. Null: it has none yet.';
COMMENT ON COLUMN tasker.workflow_steps.attributes_at IS 'Instant from which the attributes of the task are to be evaluated because of this step. Infinity: its result is part of them, and they are evaluated. Null: it is part of none.';
COMMENT ON COLUMN tasker.workflow_steps.checkpointed IS 'Whether it has a row of step_checkpoints. Null: it has none.';
COMMENT ON COLUMN tasker.workflow_steps.item_under_way IS 'Of a step of type map: the ordinal at which an item was last found enqueued or in progress, or from which one is sought downwards. Null: from the last one. It may be out of date.';
COMMENT ON COLUMN tasker.workflow_steps.items_limit IS 'Of a step of type map: how many of its items are under way at once. Null: all.';
COMMENT ON COLUMN tasker.workflow_steps.items_free IS 'Of a step of type map with a limit: how many more may be under way.';
COMMENT ON COLUMN tasker.workflow_steps.item_next IS 'Of a step of type map with a limit: no item with a lower ordinal waits for a place.';

-- views/access_revision.sql
CREATE VIEW tasker.access_revision (
    only_row boolean,
    revision bigint
);

-- views/loaded_steps.sql
CREATE VIEW tasker.loaded_steps (
    task_uuid uuid,
    step_uuid uuid,
    step_type text,
    is_decision boolean,
    join_rule text,
    namespace text,
    handler text,
    child_uuids uuid[],
    retryable boolean,
    max_attempts integer,
    backoff text,
    backoff_base_ms integer,
    max_backoff_ms integer,
    backoff_jitter boolean,
    timeout_ms bigint,
    remind_first_s integer,
    priority integer,
    state text,
    state_since timestamp with time zone,
    attempts integer,
    fence bigint,
    parents_open integer,
    next_retry_at timestamp with time zone,
    awaits_worker_since timestamp with time zone,
    unclaimed boolean,
    queue_expiries integer,
    decide_at timestamp with time zone,
    decided_at timestamp with time zone,
    wait_until timestamp with time zone,
    remind_at timestamp with time zone,
    reminders integer,
    worker_uuid uuid,
    lease_expires_at timestamp with time zone,
    items_total integer,
    items_limit integer,
    items_free integer,
    item_next integer,
    item_under_way integer,
    map_step_uuid uuid,
    item_ordinal integer,
    results_bytes integer,
    inputs_bytes bigint,
    unwritten smallint,
    moves_id bigint,
    enqueued_at timestamp with time zone,
    last_attempted_at timestamp with time zone
);

-- views/task_transitions.sql
CREATE VIEW tasker.task_transitions (
    task_uuid uuid,
    transition_id bigint,
    from_state text,
    to_state text,
    event text,
    actor text,
    reason text,
    detail jsonb,
    created_at timestamp with time zone
);

-- views/v_dlq_dashboard.sql
CREATE VIEW tasker.v_dlq_dashboard (
    dlq_reason tasker.dlq_reason,
    total_entries bigint,
    pending bigint,
    manually_resolved bigint,
    permanent_failures bigint,
    cancelled bigint,
    oldest_entry timestamp with time zone,
    newest_entry timestamp with time zone,
    avg_resolution_time_minutes numeric
);

-- views/v_dlq_investigation_queue.sql
CREATE VIEW tasker.v_dlq_investigation_queue (
    dlq_entry_uuid uuid,
    task_uuid uuid,
    step_uuid uuid,
    original_state character varying(50),
    dlq_reason tasker.dlq_reason,
    detail_code text,
    dlq_timestamp timestamp with time zone,
    minutes_in_dlq numeric,
    namespace_name text,
    task_name text,
    current_state text,
    time_in_state_minutes numeric,
    priority_score numeric,
    recovered_at timestamp with time zone,
    step_name text,
    error_pattern text,
    case_key uuid,
    assignee text,
    priority_at timestamp with time zone,
    case_id uuid,
    error_message text,
    progress text
);

-- views/v_task_staleness_monitoring.sql
CREATE VIEW tasker.v_task_staleness_monitoring (
    task_uuid uuid,
    namespace_name text,
    task_name text,
    current_state text,
    time_in_state_minutes numeric,
    task_age_minutes numeric,
    staleness_threshold_minutes numeric,
    health_status text,
    priority integer
);

-- views/v_task_state_analysis.sql
CREATE VIEW tasker.v_task_state_analysis (
    task_uuid uuid,
    correlation_id text,
    namespace_name text,
    task_name text,
    task_version text,
    current_state text,
    state_entered_at timestamp with time zone,
    time_in_state_minutes numeric,
    task_age_minutes numeric,
    staleness_threshold_minutes numeric,
    warn_at timestamp with time zone,
    stale_at timestamp with time zone,
    ends_at timestamp with time zone,
    priority integer
);

-- views/workflow_step_transitions.sql
CREATE VIEW tasker.workflow_step_transitions (
    task_uuid uuid,
    transition_id bigint,
    step_uuid uuid,
    from_state text,
    to_state text,
    event text,
    attempt integer,
    worker_uuid uuid,
    actor text,
    reason text,
    detail jsonb,
    created_at timestamp with time zone,
    operation_uuid uuid
);

CREATE OR REPLACE FUNCTION tasker.add_to_dlq_totals()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    INSERT INTO tasker.dlq_totals AS t (namespace, dlq_reason, resolution_status, entries, open_seconds, oldest_entry, newest_entry)
    VALUES (NEW.namespace, NEW.dlq_reason, NEW.resolution_status, 1, extract(epoch FROM NEW.resolved_at - NEW.dlq_timestamp), NEW.dlq_timestamp, NEW.dlq_timestamp)
    ON CONFLICT (namespace, dlq_reason, resolution_status) DO UPDATE
    SET entries = t.entries + 1,
        open_seconds = t.open_seconds + excluded.open_seconds,
        oldest_entry = least(t.oldest_entry, excluded.oldest_entry),
        newest_entry = greatest(t.newest_entry, excluded.newest_entry);
    RETURN NULL;
END
$function$
;

-- functions/all_shown.sql
CREATE FUNCTION tasker.all_shown(p_cuts jsonb) RETURNS uuid[] IMMUTABLE;

CREATE OR REPLACE FUNCTION tasker.audit_only_grows()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    RAISE EXCEPTION 'the audit log only grows' USING ERRCODE = 'integrity_constraint_violation';
END
$function$
;

-- functions/case_harm.sql
CREATE FUNCTION tasker.case_harm(p_severity text, p_stuck bigint, p_recent bigint, p_earlier bigint, p_owned boolean, p_resting boolean) RETURNS double precision IMMUTABLE;

-- functions/case_key.sql
CREATE FUNCTION tasker.case_key(p_namespace text, p_task_name text, p_reason tasker.dlq_reason, p_detail_code text, p_step_name text, p_error_pattern text) RETURNS uuid IMMUTABLE;

-- functions/case_level.sql
CREATE FUNCTION tasker.case_level(p_open bigint) RETURNS integer IMMUTABLE;

-- functions/case_state.sql
CREATE FUNCTION tasker.case_state(p_state text, p_since timestamp with time zone, p_first_seen timestamp with time zone, p_level integer, p_snoozed_until timestamp with time zone, p_snooze_above bigint, p_touched boolean, p_open bigint, p_recent bigint, p_earlier bigint, p_now timestamp with time zone) RETURNS text IMMUTABLE;

-- functions/context_parts.sql
CREATE FUNCTION tasker.context_parts(p_context jsonb, p_paths jsonb, p_most integer) RETURNS TABLE(ordinal integer, value text, part jsonb) IMMUTABLE;

-- functions/create_dlq_entries.sql
CREATE FUNCTION tasker.create_dlq_entries(p_tasks uuid[], p_reasons tasker.dlq_reason[], p_details text[], p_detected_by text, p_states text[], p_since timestamp with time zone[], p_steps uuid[], p_actor text, p_notes text, p_metadata jsonb[]) RETURNS TABLE(task_uuid uuid, dlq_entry_uuid uuid);

-- functions/create_dlq_entry.sql
CREATE FUNCTION tasker.create_dlq_entry(p_task_uuid uuid, p_reason tasker.dlq_reason, p_detail_code text, p_detected_by text, p_original_state text, p_state_since timestamp with time zone DEFAULT NULL::timestamp with time zone, p_step_uuid uuid DEFAULT NULL::uuid, p_actor text DEFAULT 'tasker'::text, p_notes text DEFAULT NULL::text, p_metadata jsonb DEFAULT NULL::jsonb) RETURNS uuid;

-- functions/create_task.sql
CREATE FUNCTION tasker.create_task(namespace text, name text, context jsonb DEFAULT '{}'::jsonb, version text DEFAULT NULL::text, priority integer DEFAULT 0, tags text[] DEFAULT NULL::text[], idempotency_key text DEFAULT NULL::text, correlation_id text DEFAULT NULL::text, reason text DEFAULT NULL::text, source_system text DEFAULT NULL::text, initiator text DEFAULT NULL::text, start_at timestamp with time zone DEFAULT NULL::timestamp with time zone, due_at timestamp with time zone DEFAULT NULL::timestamp with time zone) RETURNS uuid;

-- functions/defer_work.sql
CREATE FUNCTION tasker.defer_work(p_kind text, p_task uuid, p_step uuid, p_error text) RETURNS timestamp with time zone;

-- functions/detect_and_transition_stale_tasks.sql
CREATE FUNCTION tasker.detect_and_transition_stale_tasks(p_dry_run boolean DEFAULT true, p_batch_size integer DEFAULT 100, p_skip integer DEFAULT 0) RETURNS TABLE(task_uuid uuid, namespace_name text, task_name text, current_state text, time_in_state_minutes numeric, staleness_threshold_minutes numeric, action_taken text, moved_to_dlq boolean, transition_success boolean, dlq_reason tasker.dlq_reason, dlq_entry_uuid uuid, error_code text, error_message text);

-- functions/dlq_base_priority.sql
CREATE FUNCTION tasker.dlq_base_priority(p_reason tasker.dlq_reason) RETURNS integer STABLE;

-- functions/dlq_events.sql
CREATE FUNCTION tasker.dlq_events(p_changes bigint[]) RETURNS TABLE(history_id bigint, event text, task_uuid uuid, dlq_entry_uuid uuid, data jsonb, changed_at timestamp with time zone) STABLE;

-- functions/dlq_evidence.sql
CREATE FUNCTION tasker.dlq_evidence(p_tasks uuid[], p_original_states text[], p_since timestamp with time zone[], p_steps uuid[], p_detected_by text, p_at timestamp with time zone, p_failed text DEFAULT NULL::text) RETURNS TABLE(task_uuid uuid, snapshot jsonb) STABLE;

-- functions/dlq_failed_step.sql
CREATE FUNCTION tasker.dlq_failed_step(p_task uuid, p_step uuid) RETURNS TABLE(step_name text, error_pattern text) STABLE;

-- functions/dlq_severity.sql
CREATE FUNCTION tasker.dlq_severity(p_reason tasker.dlq_reason, p_detail_code text) RETURNS text IMMUTABLE;

-- functions/document_pattern.sql
CREATE FUNCTION tasker.document_pattern(p_words text[]) RETURNS text IMMUTABLE;

CREATE OR REPLACE FUNCTION tasker.end_task_options()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    IF OLD.state = 'pending' THEN
        DELETE FROM tasker.debounced_tasks x WHERE x.task_uuid = NEW.task_uuid;
    END IF;
    IF NEW.state IN ('complete', 'cancelled') THEN
        DELETE FROM tasker.task_starts x WHERE x.task_uuid = NEW.task_uuid;
        DELETE FROM tasker.unique_tasks x WHERE x.task_uuid = NEW.task_uuid;
        UPDATE tasker.deadlines x SET ended_at = clock_timestamp(), look_at = 'infinity' WHERE x.task_uuid = NEW.task_uuid;
    END IF;
    RETURN NULL;
END
$function$
;

-- functions/entry_documents.sql
CREATE FUNCTION tasker.entry_documents(p_entries uuid[], p_budget bigint) RETURNS TABLE(dlq_entry_uuid uuid, task_snapshot jsonb, metadata jsonb, resolution_notes text) STABLE;

-- functions/error_pattern.sql
CREATE FUNCTION tasker.error_pattern(p_message text) RETURNS text IMMUTABLE;

CREATE OR REPLACE FUNCTION tasker.follow_child_task()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    IF NEW.parent_step_uuid IS NOT NULL THEN
        INSERT INTO tasker.child_signals (kind, child_uuid, parent_task_uuid, parent_step_uuid)
        VALUES ('ended', NEW.task_uuid, NEW.parent_task_uuid, NEW.parent_step_uuid)
        ON CONFLICT DO NOTHING;
    END IF;
    IF NEW.state = 'cancelled' THEN
        INSERT INTO tasker.child_signals (kind, child_uuid, parent_task_uuid, parent_step_uuid)
        SELECT 'cancel', c.task_uuid, c.parent_task_uuid, c.parent_step_uuid
        FROM tasker.tasks c
        WHERE c.parent_task_uuid = NEW.task_uuid AND c.state NOT IN ('complete', 'cancelled')
          AND NOT EXISTS (SELECT FROM tasker.tasks_dlq d WHERE d.task_uuid = c.task_uuid AND d.resolution_status = 'permanently_failed')
        ORDER BY c.task_uuid
        ON CONFLICT DO NOTHING;
    END IF;
    RETURN NULL;
END
$function$
;

CREATE OR REPLACE FUNCTION tasker.follow_entry()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    UPDATE tasker.case_members
    SET ended_at = NEW.resolved_at, recovered_at = NEW.recovered_at, resolution_status = nullif(NEW.resolution_status, 'pending')
    WHERE dlq_entry_uuid = NEW.dlq_entry_uuid;
    RETURN NULL;
END
$function$
;

CREATE OR REPLACE FUNCTION tasker.follow_gate()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    IF NEW.settled_at IS NULL THEN
        INSERT INTO tasker.claim_conditions VALUES (NEW.operation_uuid) ON CONFLICT DO NOTHING;
    ELSE
        DELETE FROM tasker.claim_conditions WHERE condition_uuid = NEW.operation_uuid;
    END IF;
    RETURN NULL;
END
$function$
;

CREATE OR REPLACE FUNCTION tasker.follow_given_up_child()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    INSERT INTO tasker.child_signals (kind, child_uuid, parent_task_uuid, parent_step_uuid)
    SELECT 'ended', t.task_uuid, t.parent_task_uuid, t.parent_step_uuid
    FROM tasker.tasks t
    WHERE t.task_uuid = NEW.task_uuid AND t.parent_step_uuid IS NOT NULL
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$function$
;

CREATE OR REPLACE FUNCTION tasker.follow_hold()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    IF NEW.blocks THEN
        INSERT INTO tasker.claim_conditions VALUES (NEW.hold_uuid) ON CONFLICT DO NOTHING;
    ELSE
        DELETE FROM tasker.claim_conditions WHERE condition_uuid = NEW.hold_uuid;
    END IF;
    RETURN NULL;
END
$function$
;

CREATE OR REPLACE FUNCTION tasker.follow_scheduled_task()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    INSERT INTO tasker.schedule_signals (task_uuid, schedule_uuid)
    SELECT t.task_uuid, t.schedule_uuid
    FROM tasker.tasks t
    WHERE t.task_uuid = NEW.task_uuid AND t.schedule_uuid IS NOT NULL
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$function$
;

-- functions/follow_settled_tasks.sql
CREATE FUNCTION tasker.follow_settled_tasks(p_tasks uuid[], p_from text[], p_to text[], p_by_operator boolean) RETURNS integer;

-- functions/free_slots.sql
CREATE FUNCTION tasker.free_slots(p_limit_key bigint, p_used bigint) RETURNS TABLE(free integer, most integer, retry_ms integer) STABLE;

CREATE OR REPLACE FUNCTION tasker.free_unique_key()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    DELETE FROM tasker.unique_tasks x WHERE x.task_uuid = NEW.task_uuid;
    UPDATE tasker.deadlines x SET ended_at = clock_timestamp(), look_at = 'infinity' WHERE x.task_uuid = NEW.task_uuid;
    RETURN NULL;
END
$function$
;

-- functions/get_due_tasks_for_dlq.sql
CREATE FUNCTION tasker.get_due_tasks_for_dlq(p_limit integer DEFAULT 100) RETURNS TABLE(task_uuid uuid, namespace_name text, task_name text, current_state text, state_since timestamp with time zone, time_in_state_minutes numeric, threshold_minutes numeric, detail_code text, dlq_reason tasker.dlq_reason) STABLE;

-- functions/get_stale_tasks_for_dlq.sql
CREATE FUNCTION tasker.get_stale_tasks_for_dlq(p_limit integer DEFAULT 100, p_now timestamp with time zone DEFAULT clock_timestamp()) RETURNS TABLE(task_uuid uuid, namespace_name text, task_name text, current_state text, state_since timestamp with time zone, time_in_state_minutes numeric, threshold_minutes numeric, task_age_minutes numeric, detail_code text) STABLE;

-- functions/get_step_readiness_status.sql
CREATE FUNCTION tasker.get_step_readiness_status(p_task_uuid uuid, p_step_uuids uuid[] DEFAULT NULL::uuid[], p_now timestamp with time zone DEFAULT clock_timestamp()) RETURNS TABLE(step_uuid uuid, task_uuid uuid, name text, current_state text, dependencies_satisfied boolean, retry_eligible boolean, ready_for_execution boolean, total_parents integer, completed_parents integer, attempts integer, max_attempts integer, last_attempted_at timestamp with time zone, last_failure_at timestamp with time zone, next_retry_at timestamp with time zone) STABLE;

-- functions/get_task_staleness.sql
CREATE FUNCTION tasker.get_task_staleness(p_limit integer DEFAULT 100, p_now timestamp with time zone DEFAULT clock_timestamp(), p_namespaces text[] DEFAULT NULL::text[], p_health text DEFAULT NULL::text, p_namespace text DEFAULT NULL::text, p_name text DEFAULT NULL::text) RETURNS TABLE(task_uuid uuid, namespace_name text, task_name text, current_state text, time_in_state_minutes double precision, task_age_minutes double precision, staleness_threshold_minutes double precision, health_status text, priority integer) STABLE;

-- functions/get_unattended_tasks_for_dlq.sql
CREATE FUNCTION tasker.get_unattended_tasks_for_dlq(p_limit integer DEFAULT 100, p_now timestamp with time zone DEFAULT clock_timestamp()) RETURNS TABLE(task_uuid uuid, namespace_name text, task_name text, state_since timestamp with time zone, time_in_state_minutes numeric, threshold_minutes numeric, dlq_reason tasker.dlq_reason) STABLE;

-- functions/insert_dlq_entries.sql
CREATE FUNCTION tasker.insert_dlq_entries(p_places bigint[], p_tasks uuid[], p_reasons tasker.dlq_reason[], p_details text[], p_detected_by text, p_states text[], p_since timestamp with time zone[], p_steps uuid[], p_actor text, p_notes text, p_metadata jsonb[], p_at timestamp with time zone, p_failed text) RETURNS TABLE(places bigint[], entries uuid[]);

-- functions/is_held.sql
CREATE FUNCTION tasker.is_held(p_task uuid, p_step uuid, p_namespace text, p_handler text, p_released_by uuid, p_operations uuid[]) RETURNS boolean STABLE;

-- functions/is_hidden_key.sql
CREATE FUNCTION tasker.is_hidden_key(p_key text, p_pattern text) RETURNS boolean IMMUTABLE;

-- functions/item_counts.sql
CREATE FUNCTION tasker.item_counts(p_task uuid, p_map_step uuid) RETURNS jsonb STABLE;

-- functions/key_words.sql
CREATE FUNCTION tasker.key_words(p_key text) RETURNS text IMMUTABLE;

-- functions/max_snapshot_bytes.sql
CREATE FUNCTION tasker.max_snapshot_bytes() RETURNS integer IMMUTABLE;

-- functions/measure_inputs.sql
CREATE FUNCTION tasker.measure_inputs(p_tasks uuid[], p_steps uuid[], p_max_context bigint, p_time interval) RETURNS integer;

-- functions/named_limits.sql
CREATE FUNCTION tasker.named_limits(p_task uuid, p_step uuid) RETURNS TABLE(limit_id bigint, key text, weight integer, most integer, limit_key_id bigint) STABLE;

CREATE OR REPLACE FUNCTION tasker.note_access_change()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    DELETE FROM tasker.access_changes WHERE change_id IN (
        SELECT change_id FROM tasker.access_changes
        WHERE changed_at < clock_timestamp() - interval '1 hour'
        ORDER BY change_id LIMIT 20 FOR UPDATE SKIP LOCKED
    );
    INSERT INTO tasker.access_changes DEFAULT VALUES;
    RETURN NULL;
END
$function$
;

CREATE OR REPLACE FUNCTION tasker.note_namespace()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    NEW.namespace := (SELECT t.namespace FROM tasker.tasks t WHERE t.task_uuid = NEW.task_uuid);
    RETURN NEW;
END
$function$
;

CREATE OR REPLACE FUNCTION tasker.note_time_in_state()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    IF jsonb_typeof(NEW.task_snapshot -> 'time_in_state_minutes') = 'number' THEN
        NEW.time_in_state_minutes := (NEW.task_snapshot ->> 'time_in_state_minutes')::numeric;
    END IF;
    RETURN NEW;
END
$function$
;

-- functions/omission.sql
CREATE FUNCTION tasker.omission(p_doc jsonb, p_path text) RETURNS jsonb IMMUTABLE;

-- functions/plain_text.sql
CREATE FUNCTION tasker.plain_text(p_text text) RETURNS text IMMUTABLE;

-- functions/raise_dlq_entries.sql
CREATE FUNCTION tasker.raise_dlq_entries(p_tasks uuid[], p_reasons tasker.dlq_reason[], p_details text[], p_steps uuid[], p_opened bigint[], p_actor text, p_at timestamp with time zone) RETURNS void;

-- functions/redact_document.sql
CREATE FUNCTION tasker.redact_document(p_doc jsonb) RETURNS jsonb STABLE;

-- functions/redact_error.sql
CREATE FUNCTION tasker.redact_error(p_error jsonb) RETURNS jsonb STABLE;

-- functions/redact_keys.sql
CREATE FUNCTION tasker.redact_keys(p_doc jsonb, p_words text[], p_pattern text, p_most integer DEFAULT NULL::integer, p_level integer DEFAULT 0, p_patterns text[] DEFAULT NULL::text[]) RETURNS jsonb IMMUTABLE;

-- functions/redact_note.sql
CREATE FUNCTION tasker.redact_note(p_text text) RETURNS text STABLE;

-- functions/redact_path.sql
CREATE FUNCTION tasker.redact_path(p_doc jsonb, p_path jsonb) RETURNS jsonb IMMUTABLE;

-- functions/redact_snapshot.sql
CREATE FUNCTION tasker.redact_snapshot(p_snapshot jsonb) RETURNS jsonb STABLE;

-- functions/redact_text.sql
CREATE FUNCTION tasker.redact_text(p_text text, p_patterns text[]) RETURNS text IMMUTABLE;

CREATE OR REPLACE FUNCTION tasker.refuse_change_of_evidence()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    RAISE EXCEPTION 'the evidence of investigation % never changes', OLD.dlq_entry_uuid
        USING ERRCODE = 'integrity_constraint_violation';
END
$function$
;

CREATE OR REPLACE FUNCTION tasker.refuse_change_of_record()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    RAISE EXCEPTION '% on tasker.% is refused: the record of an investigation never changes', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'integrity_constraint_violation';
END
$function$
;

CREATE OR REPLACE FUNCTION tasker.refuse_removal_of_records()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
DECLARE
    _record uuid;
BEGIN
    CASE TG_TABLE_NAME
        WHEN 'workflow_steps' THEN -- another version may remove steps that never began
            SELECT r.task_uuid INTO _record FROM removed r JOIN tasker.tasks_dlq d ON d.task_uuid = r.task_uuid WHERE r.state <> 'pending' LIMIT 1;
        WHEN 'operation_items' THEN
            SELECT r.operation_uuid INTO _record FROM removed r JOIN tasker.operations o ON o.operation_uuid = r.operation_uuid WHERE o.settled_at IS NULL LIMIT 1;
        WHEN 'operations' THEN
            SELECT r.operation_uuid INTO _record FROM removed r WHERE r.settled_at IS NULL LIMIT 1;
        ELSE
            SELECT r.task_uuid INTO _record FROM removed r JOIN tasker.tasks_dlq d ON d.task_uuid = r.task_uuid LIMIT 1;
    END CASE;
    IF _record IS NOT NULL THEN
        RAISE EXCEPTION 'rows of % are not removed: % is investigated or has not settled', TG_TABLE_NAME, _record
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NULL;
END
$function$
;

CREATE OR REPLACE FUNCTION tasker.refuse_restored_access()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    RAISE EXCEPTION '% that has ended stays ended', TG_ARGV[0] USING ERRCODE = 'integrity_constraint_violation';
END
$function$
;

-- functions/retry_rest.sql
CREATE FUNCTION tasker.retry_rest(p_state text, p_template tasker.task_templates, p_rest interval) RETURNS interval IMMUTABLE;

-- functions/shown_steps.sql
CREATE FUNCTION tasker.shown_steps(p_tasks uuid[]) RETURNS jsonb STABLE;

-- functions/snapshot_cuts.sql
CREATE FUNCTION tasker.snapshot_cuts(p_tasks uuid[]) RETURNS jsonb STABLE;

-- functions/snapshot_keys.sql
CREATE FUNCTION tasker.snapshot_keys() RETURNS text[] IMMUTABLE;

-- functions/snapshot_steps.sql
CREATE FUNCTION tasker.snapshot_steps(p_task uuid, p_shown uuid[]) RETURNS SETOF tasker.workflow_steps STABLE;

-- functions/staleness_threshold.sql
CREATE FUNCTION tasker.staleness_threshold(p_state text, p_template tasker.task_templates, p_server tasker.staleness_thresholds) RETURNS interval IMMUTABLE;

-- functions/step_documents.sql
CREATE FUNCTION tasker.step_documents(p_task uuid, p_budget bigint) RETURNS TABLE(step_uuid uuid, results jsonb, error jsonb) STABLE;

-- functions/step_has_moved.sql
CREATE FUNCTION tasker.step_has_moved() RETURNS bigint;

-- functions/step_inputs.sql
CREATE FUNCTION tasker.step_inputs(p_task uuid, p_step uuid, p_parents uuid[], p_map_step uuid, p_bytes bigint, p_checkpointed boolean) RETURNS TABLE(task_name text, task_version text, template_uuid uuid, correlation_id text, context jsonb, context_omitted text[], dependency_results jsonb, dependencies jsonb, checkpoint jsonb) STABLE;

-- functions/step_limits.sql
CREATE FUNCTION tasker.step_limits(p_task uuid, p_step uuid, p_namespace text, p_handler text) RETURNS TABLE(limit_id bigint, key text, weight integer, limit_key_id bigint) STABLE;

-- functions/steps_within_timeout.sql
CREATE FUNCTION tasker.steps_within_timeout(p_task uuid, p_template uuid, p_now timestamp with time zone) RETURNS SETOF uuid STABLE;

-- functions/sweep_tasks.sql
CREATE FUNCTION tasker.sweep_tasks(p_tasks uuid[], p_states text[], p_since timestamp with time zone[], p_minutes numeric[], p_thresholds numeric[], p_details text[], p_reasons tasker.dlq_reason[], p_sweep uuid) RETURNS TABLE(task_uuid uuid, transitioned boolean, dlq_entry_uuid uuid);

-- functions/task_event_payload.sql
CREATE FUNCTION tasker.task_event_payload(p_task uuid, p_context boolean, p_results boolean, p_bytes integer) RETURNS jsonb STABLE;

-- functions/task_snapshot.sql
CREATE FUNCTION tasker.task_snapshot(p_task_uuid uuid, p_original_state text, p_state_since timestamp with time zone, p_detected_by text, p_at timestamp with time zone) RETURNS jsonb STABLE;

-- functions/task_snapshot_cuts.sql
CREATE FUNCTION tasker.task_snapshot_cuts(p_task uuid, p_shown uuid[], p_most integer DEFAULT tasker.max_snapshot_bytes(), p_spell integer DEFAULT 67108864) RETURNS jsonb STABLE;

-- functions/task_snapshots.sql
CREATE FUNCTION tasker.task_snapshots(p_tasks uuid[], p_original_states text[], p_since timestamp with time zone[], p_detected_by text, p_at timestamp with time zone, p_cuts jsonb DEFAULT NULL::jsonb) RETURNS TABLE(task_uuid uuid, snapshot jsonb, plain boolean) STABLE;

CREATE OR REPLACE FUNCTION tasker.tell_of_compensation()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    INSERT INTO tasker.messages (topic, subject_kind, subject_id, namespaces, data)
    VALUES ('task.compensated', 'task', NEW.task_uuid, ARRAY[NEW.namespace], jsonb_build_object(
        'summary', format('%s: the compensation of a task of %s has ended: %s', NEW.namespace, NEW.name, replace(NEW.outcome, '_', ' ')),
        'severity', CASE NEW.outcome WHEN 'compensation_stopped' THEN 'medium' ELSE 'low' END,
        'namespace', NEW.namespace, 'template', NEW.name, 'task', NEW.task_uuid, 'state', NEW.outcome,
        'began_at', NEW.state_since, 'path', '/ui/tasks/' || NEW.task_uuid,
        'entries', 0, 'waiting', 0, 'proving', 0, 'failed_again', 0, 'recovered', 0, 'cases', 0, 'cases_open', 0));
    RETURN NULL;
END
$function$
;

CREATE OR REPLACE FUNCTION tasker.tell_of_failed_step()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    IF EXISTS (
        SELECT FROM tasker.workflow_steps s
        WHERE s.task_uuid = NEW.task_uuid AND s.step_uuid = NEW.step_uuid AND s.state = 'error' AND s.next_retry_at IS NULL
    ) THEN
        PERFORM tasker.write_task_event('step.failed', NEW.task_uuid, NEW.step_uuid,
            jsonb_build_object('event', NEW.event, 'from_state', NEW.from_state, 'to_state', NEW.to_state, 'actor', NEW.actor, 'reason', NEW.reason, 'at', NEW.created_at));
    END IF;
    RETURN NULL;
END
$function$
;

CREATE OR REPLACE FUNCTION tasker.tell_of_investigation()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
DECLARE
    _changes bigint[] := (SELECT array_agg(a.history_id) FROM added a);
BEGIN
    WITH told AS MATERIALIZED (
        SELECT e.* FROM tasker.dlq_events(_changes) e
    ),
    events AS (
        INSERT INTO tasker.outbox (topic, task_uuid, dlq_entry_uuid, data, created_at)
        SELECT
            'dlq.entry.' || CASE WHEN e.event IN ('created', 'recovered', 'resolved') THEN e.event ELSE 'updated' END,
            e.task_uuid, e.dlq_entry_uuid, e.data, e.changed_at
        FROM told e
        ORDER BY e.history_id
    )
    INSERT INTO tasker.case_members (
        dlq_entry_uuid, namespace, opened_at, task_name, task_version, step_name, dlq_reason, detail_code,
        error_type, error_message, error_fingerprint, worker_uuid, attempted_at, recovered_at, ended_at
    )
    SELECT
        e.dlq_entry_uuid, e.data ->> 'namespace', (e.data ->> 'dlq_timestamp')::timestamptz, e.data ->> 'task_name', e.data ->> 'task_version',
        coalesce(e.data #>> '{step,name}', ''), (e.data ->> 'dlq_reason')::tasker.dlq_reason, e.data ->> 'detail_code',
        left(e.data #>> '{step,error_type}', 200), e.data #>> '{step,error_message}',
        left(e.data #>> '{step,error_fingerprint}', 200), left(e.data #>> '{step,worker_uuid}', 100), (e.data #>> '{step,last_attempted_at}')::timestamptz,
        (e.data ->> 'recovered_at')::timestamptz, (e.data ->> 'resolved_at')::timestamptz
    FROM told e
    WHERE e.event = 'created'
    ON CONFLICT DO NOTHING;

    IF NOT EXISTS (SELECT FROM added a WHERE a.event IN ('step_reset', 'step_resolved', 'step_completed', 'task_cancelled', 'step_failed', 'raised')) THEN
        RETURN NULL;
    END IF;
    UPDATE tasker.case_members m
    SET acted_at = greatest(m.acted_at, c.acted_at),
        failed_again_at = CASE WHEN greatest(m.acted_at, c.acted_at) < c.failed_at THEN c.failed_at ELSE m.failed_again_at END,
        revision = m.revision + CASE WHEN c.cause THEN 1 ELSE 0 END,
        fingerprint_version = CASE WHEN c.cause THEN 0 ELSE m.fingerprint_version END,
        dlq_reason = coalesce(f.dlq_reason, c.dlq_reason, m.dlq_reason), detail_code = coalesce(f.detail_code, c.detail_code, m.detail_code),
        step_name = coalesce(f.step_name, m.step_name),
        error_type = CASE WHEN f.step_name IS NULL THEN m.error_type ELSE left(f.error ->> 'type', 200) END,
        error_message = CASE WHEN f.step_name IS NULL THEN m.error_message ELSE f.error ->> 'message' END,
        error_fingerprint = CASE WHEN f.step_name IS NULL THEN m.error_fingerprint ELSE left(f.error ->> 'fingerprint', 200) END,
        worker_uuid = CASE WHEN f.step_name IS NULL THEN m.worker_uuid ELSE left(f.error ->> 'worker_uuid', 100) END,
        worker_name = CASE WHEN f.step_name IS NULL THEN m.worker_name END,
        worker_version = CASE WHEN f.step_name IS NULL THEN m.worker_version END,
        attempted_at = CASE WHEN f.step_name IS NULL THEN m.attempted_at ELSE f.last_attempted_at END
    FROM (
        SELECT
            a.dlq_entry_uuid,
            max(a.changed_at) FILTER (WHERE a.event IN ('step_reset', 'step_resolved', 'step_completed', 'task_cancelled')) AS acted_at,
            max(a.changed_at) FILTER (WHERE a.event = 'step_failed') AS failed_at,
            bool_or(a.event IN ('step_failed', 'raised')) AS cause,
            max(a.history_id) FILTER (WHERE a.event = 'step_failed') AS failure,
            (max((a.metadata #>> '{to,dlq_reason}')) FILTER (WHERE a.event = 'raised'))::tasker.dlq_reason AS dlq_reason,
            max(a.metadata #>> '{to,detail_code}') FILTER (WHERE a.event = 'raised') AS detail_code
        FROM added a
        WHERE a.event IN ('step_reset', 'step_resolved', 'step_completed', 'task_cancelled', 'step_failed', 'raised')
        GROUP BY a.dlq_entry_uuid
    ) c
    LEFT JOIN LATERAL (
        SELECT (a.metadata ->> 'dlq_reason')::tasker.dlq_reason AS dlq_reason, a.metadata ->> 'detail_code' AS detail_code, s.name AS step_name,
            CASE WHEN jsonb_typeof(a.metadata -> 'error') = 'object' THEN a.metadata -> 'error' ELSE '{}' END AS error, s.last_attempted_at
        FROM added a
        JOIN tasker.tasks_dlq d ON d.dlq_entry_uuid = a.dlq_entry_uuid
        JOIN tasker.workflow_steps s ON s.task_uuid = d.task_uuid AND s.step_uuid = (a.metadata ->> 'step_uuid')::uuid
        WHERE a.history_id = c.failure
    ) f ON true
    WHERE m.dlq_entry_uuid = c.dlq_entry_uuid;
    RETURN NULL;
END
$function$
;

CREATE OR REPLACE FUNCTION tasker.tell_of_permanent_failure()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    PERFORM tasker.write_task_event('task.failed', NEW.task_uuid, NULL, jsonb_build_object(
        'event', 'permanently_failed', 'actor', NEW.resolved_by, 'reason', NEW.resolution_notes, 'at', NEW.resolved_at, 'dlq_entry_uuid', NEW.dlq_entry_uuid));
    RETURN NULL;
END
$function$
;

CREATE OR REPLACE FUNCTION tasker.tell_of_task()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    PERFORM tasker.write_task_event(
        CASE NEW.to_state WHEN 'complete' THEN 'task.completed' WHEN 'cancelled' THEN 'task.cancelled' ELSE 'task.failed' END, NEW.task_uuid, NULL,
        jsonb_build_object('event', coalesce(NEW.event, 'settle'), 'from_state', NEW.from_state, 'to_state', NEW.to_state, 'actor', NEW.actor, 'reason', NEW.reason, 'at', NEW.created_at));
    RETURN NULL;
END
$function$
;

-- functions/thresholds_in_use.sql
CREATE FUNCTION tasker.thresholds_in_use() RETURNS SETOF double precision STABLE;

-- functions/transition_stale_task_to_error.sql
CREATE FUNCTION tasker.transition_stale_task_to_error(p_task_uuid uuid, p_current_state text, p_state_since timestamp with time zone, p_reason text) RETURNS boolean;

-- functions/transition_stale_tasks_to_error.sql
CREATE FUNCTION tasker.transition_stale_tasks_to_error(p_tasks uuid[], p_states text[], p_since timestamp with time zone[], p_reasons text[], p_attended boolean DEFAULT false) RETURNS SETOF uuid;

CREATE OR REPLACE FUNCTION tasker.uuid_generate_v7()
 RETURNS uuid
 LANGUAGE sql
 PARALLEL SAFE
AS $function$
    SELECT encode(
        set_bit(
            set_bit(
                overlay(uuid_send(gen_random_uuid())
                    PLACING substring(int8send(floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3)
                    FROM 1 FOR 6),
                52, 1),
            53, 1),
        'hex')::uuid
$function$
;

CREATE OR REPLACE FUNCTION tasker.watch_task_again()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    UPDATE tasker.tasks t
    SET attend_by = clock_timestamp() + make_interval(mins => st.error_recovery_minutes)
    FROM tasker.staleness_thresholds st
    WHERE t.task_uuid = NEW.task_uuid AND t.state = 'error' AND t.attend_by IS NULL AND st.only_row;
    RETURN NULL;
END
$function$
;

CREATE OR REPLACE FUNCTION tasker.watch_task_in_error()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    IF NEW.state <> 'error' OR NEW.attend_by = 'infinity' THEN
        NEW.attend_by := NULL;
        RETURN NEW;
    END IF;
    NEW.attend_by := CASE WHEN NOT EXISTS (
        SELECT FROM tasker.tasks_dlq d WHERE d.task_uuid = NEW.task_uuid AND d.resolution_status = 'pending'
    ) THEN clock_timestamp() + (
        SELECT make_interval(mins => st.error_recovery_minutes) FROM tasker.staleness_thresholds st WHERE st.only_row
    ) END;
    RETURN NEW;
END
$function$
;

-- functions/write_task_event.sql
CREATE FUNCTION tasker.write_task_event(p_topic text, p_task uuid, p_step uuid, p_change jsonb) RETURNS void;
