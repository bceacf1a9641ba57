-- Incidents, and the messages that people get.

CREATE TABLE tasker.incidents (
    incident_id   uuid DEFAULT tasker.uuid_generate_v7() PRIMARY KEY,
    namespace     text NOT NULL,
    lead_case_id  uuid NOT NULL,
    dedup_key     text NOT NULL,
    severity      text NOT NULL,
    began_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at      timestamptz,
    unowned_since timestamptz,
    escalation    smallint NOT NULL DEFAULT 0,
    told_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    told_owned    boolean NOT NULL DEFAULT false,
    revision      integer NOT NULL DEFAULT 0,
    CONSTRAINT incident_escalation_is_known CHECK (escalation >= 0 AND escalation <= 2),
    CONSTRAINT incident_severity_is_known CHECK (severity IN ('critical', 'high', 'medium', 'low')),
    CONSTRAINT incidents_lead_case_id_fkey FOREIGN KEY (lead_case_id) REFERENCES tasker.cases (case_id)
);
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
CREATE INDEX incidents_by_time ON tasker.incidents (began_at DESC, incident_id DESC);
CREATE INDEX incidents_of_namespace ON tasker.incidents (namespace, began_at DESC, incident_id DESC);
CREATE INDEX incidents_open ON tasker.incidents (namespace, began_at DESC, incident_id DESC) WHERE ended_at IS NULL;

CREATE TABLE tasker.incident_cases (
    incident_id  uuid NOT NULL,
    case_id      uuid NOT NULL,
    joined_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    told_state   text NOT NULL,
    told_entries bigint NOT NULL,
    PRIMARY KEY (incident_id, case_id),
    CONSTRAINT incident_cases_case_id_fkey FOREIGN KEY (case_id) REFERENCES tasker.cases (case_id),
    CONSTRAINT incident_cases_incident_id_fkey FOREIGN KEY (incident_id) REFERENCES tasker.incidents (incident_id)
);
COMMENT ON TABLE tasker.incident_cases IS 'The cases of an incident, with what people were last told of each.';
COMMENT ON COLUMN tasker.incident_cases.told_entries IS 'How many of its investigations were open then, without those whose task went on by itself.';
CREATE INDEX incident_cases_by_case ON tasker.incident_cases (case_id, joined_at DESC);

CREATE TABLE tasker.messages (
    position     bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    message_uuid uuid NOT NULL DEFAULT tasker.uuid_generate_v7(),
    topic        text NOT NULL,
    subject_kind text NOT NULL,
    subject_id   uuid NOT NULL,
    incident_id  uuid,
    namespaces   text[] NOT NULL,
    dedup_key    text,
    escalation   smallint NOT NULL DEFAULT 0,
    data         jsonb NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    routed_at    timestamptz,
    PRIMARY KEY (position),
    CONSTRAINT message_subject_is_short CHECK (length(subject_kind) >= 1 AND length(subject_kind) <= 32),
    CONSTRAINT message_topic_is_short CHECK (length(topic) >= 1 AND length(topic) <= 64),
    CONSTRAINT messages_message_uuid_key UNIQUE (message_uuid),
    CONSTRAINT messages_incident_id_fkey FOREIGN KEY (incident_id) REFERENCES tasker.incidents (incident_id)
);
COMMENT ON TABLE tasker.messages IS 'What people are told of incidents, operations and the like: written in the transaction that it tells of.';
COMMENT ON COLUMN tasker.messages.subject_id IS 'What it is about: messages of one subject are sent in their order.';
COMMENT ON COLUMN tasker.messages.namespaces IS 'Of what it is about: whoever may see all of them may see it.';
COMMENT ON COLUMN tasker.messages.routed_at IS 'When the routes were asked for the sinks that get it, in tasker.message_emissions.';
CREATE INDEX messages_of_incident ON tasker.messages (incident_id, position) WHERE incident_id IS NOT NULL;
CREATE INDEX messages_of_subject ON tasker.messages (subject_id, position);
CREATE INDEX messages_to_route ON tasker.messages (position) WHERE routed_at IS NULL;

CREATE TABLE tasker.message_emissions (
    sink            text NOT NULL,
    position        bigint NOT NULL,
    subject_id      uuid NOT NULL,
    state           text NOT NULL DEFAULT 'pending',
    attempts        integer NOT NULL DEFAULT 0,
    refusals        integer NOT NULL DEFAULT 0,
    next_attempt_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_attempt_at timestamptz,
    last_error      text,
    published_at    timestamptz,
    PRIMARY KEY (sink, position),
    CONSTRAINT message_emission_published_has_its_time CHECK (state <> 'published' OR published_at IS NOT NULL),
    CONSTRAINT message_emission_state_is_known CHECK (state IN ('pending', 'published', 'set_aside')),
    CONSTRAINT message_emissions_position_fkey FOREIGN KEY (position) REFERENCES tasker.messages (position),
    CONSTRAINT message_emissions_sink_fkey FOREIGN KEY (sink) REFERENCES tasker.emission_sinks (sink)
) WITH (fillfactor=85);
COMMENT ON TABLE tasker.message_emissions IS 'What became of sending a message to a sink: one row each.';
COMMENT ON COLUMN tasker.message_emissions.refusals IS 'How often the sink refused the message itself; after some it is set aside.';
CREATE INDEX message_emissions_by_position ON tasker.message_emissions (position);
CREATE INDEX message_emissions_pending ON tasker.message_emissions (sink, subject_id, position) WHERE state = 'pending';
CREATE INDEX message_emissions_set_aside ON tasker.message_emissions (sink, position) WHERE state = 'set_aside';
