package postgres

import (
	"cmp"
	"context"
	"crypto/md5"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/notice"
)

// NewMessage describes a notification to store. Routes assign its sinks afterwards.
type NewMessage struct {
	Topic       string
	SubjectKind string
	SubjectID   tasker.ID // messages of one subject are delivered in order
	IncidentID  *tasker.ID
	Namespaces  []string // namespaces of the subject
	DedupKey    string   // the default is derived from the subject
	Escalation  int
	Data        tasker.NotificationData
}

const insertMessage = `
INSERT INTO tasker.messages (topic, subject_kind, subject_id, incident_id, namespaces, dedup_key, escalation, data)
VALUES ($1, $2, $3, $4, $5, nullif($6, ''), $7, $8::text::jsonb)
RETURNING position`

// CreateNotification enqueues a message. The caller holds a lock on the subject, which orders its
// messages.
func (tx *Tx) CreateNotification(ctx context.Context, m NewMessage) (position int64, err error) {
	doc, err := json.Marshal(m.Data)
	if err != nil {
		return 0, fmt.Errorf("write a message: %w", err)
	}
	slices.Sort(m.Namespaces)
	err = tx.QueryRow(ctx, insertMessage, m.Topic, m.SubjectKind, m.SubjectID, m.IncidentID, m.Namespaces, m.DedupKey, m.Escalation, string(doc)).Scan(&position)
	return position, wrap(err, "write a message")
}

// maxNotifiedCases bounds the cases of a namespace, and the incidents, that one pass reads.
const maxNotifiedCases = 5000

// selectNotificationState selects important cases, cases of open incidents and cases of due digests.
const selectNotificationState = `
WITH ` + openHead + openMembers + `true` + openTail + `,
current AS MATERIALIZED (
    SELECT ic.case_id, i.incident_id, ic.told_state, ic.told_entries, i.told_at
    FROM tasker.incidents i
    JOIN tasker.incident_cases ic ON ic.incident_id = i.incident_id
    WHERE i.ended_at IS NULL
),
known AS MATERIALIZED (
    SELECT c.*, u.incident_id, u.told_state, u.told_entries, u.told_at
    FROM current u JOIN tasker.cases c ON c.case_id = u.case_id
    UNION ALL
    SELECT c.*, NULL, NULL, NULL, (SELECT max(i.told_at) FROM tasker.incident_cases ic JOIN tasker.incidents i ON i.incident_id = ic.incident_id WHERE ic.case_id = c.case_id)
    FROM tasker.cases c
    WHERE c.state <> 'resolved' AND c.merged_into IS NULL AND NOT EXISTS (SELECT FROM current u WHERE u.case_id = c.case_id)
),
judged AS MATERIALIZED (
    SELECT c.*, ` + countColumns + `, ` + harm + ` AS harm, tasker.dlq_severity(c.dlq_reason, c.detail_code) AS severity,
        c.told_at IS NOT NULL AND EXISTS (
            SELECT FROM tasker.case_history h
            WHERE h.case_id = c.case_id AND h.event = 'state_changed' AND h.metadata ->> 'to' = 'regressed' AND h.changed_at > c.told_at
        ) AS again,
        CASE WHEN c.dlq_reason = 'manual_dlq' THEN 0 ELSE coalesce(o.entries - o.recovered, 0) END AS stuck
    FROM known c
    LEFT JOIN open o ON o.case_id = c.case_id
),
sized AS (
    SELECT c.*, l.large, s.small, s.small AND c.oldest <= now() - $2::interval AND coalesce(c.digested_at < c.oldest, true) AS digest,
        coalesce(sum(c.stuck) FILTER (WHERE s.small AND c.oldest > now() - $5::interval) OVER (PARTITION BY c.namespace), 0) >= $6 AS many
    FROM judged c
    CROSS JOIN LATERAL (SELECT c.state <> 'resting' AND (c.stuck >= $1 OR c.stuck > 0 AND (c.severity = 'critical' OR c.again)) AS large) l
    CROSS JOIN LATERAL (
        SELECT c.incident_id IS NULL AND NOT l.large AND c.entries > c.recovered AND c.state <> 'resting' AND coalesce(c.owned_until <= now(), true) AS small
    ) s
),
ranked AS (
    SELECT c.*, row_number() OVER (PARTITION BY c.namespace ORDER BY c.large DESC, c.incident_id IS NULL, c.harm DESC, c.case_id) AS place
    FROM sized c
    WHERE c.incident_id IS NOT NULL OR c.large
       OR c.small AND c.many AND c.stuck > 0 AND c.oldest > now() - $5::interval
       OR c.digest AND NOT EXISTS (
           SELECT FROM tasker.messages m WHERE m.subject_id = md5('digest ' || c.namespace)::uuid AND m.created_at > now() - $3::interval
       )
)
SELECT ` + caseColumns + `, c.entries, c.waiting, c.proving, c.failed_again, c.recovered, c.recent, c.oldest, c.newest, NULL::uuid AS entry_uuid, NULL::uuid AS case_key,
    c.harm, c.severity, c.incident_id, c.again, coalesce(c.told_state, '') AS told_state, coalesce(c.told_entries, 0) AS told_stuck,
    c.digest AND NOT (c.many AND c.stuck > 0 AND c.oldest > now() - $5::interval) AS digest
FROM ranked c
WHERE c.place <= $4
ORDER BY c.namespace, c.place`

const selectOpenIncidents = `
SELECT incident_id AS id, namespace, lead_case_id AS lead, dedup_key, severity, began_at, told_at, unowned_since, escalation, told_owned, revision
FROM tasker.incidents
WHERE ended_at IS NULL
ORDER BY namespace, began_at DESC
LIMIT $1`

// notifiedCase is a case with its notification state.
type notifiedCase struct {
	tasker.Case
	Severity   tasker.Severity
	IncidentID *tasker.ID
	Again      bool
	ToldState  tasker.CaseState
	ToldStuck  int64
	Digest     bool
}

func (r notifiedCase) notice() notice.Case {
	return notice.Case{Case: r.Case, Severity: r.Severity, IncidentID: r.IncidentID, Regressed: r.Again, NotifiedState: r.ToldState, ToldStuck: r.ToldStuck}
}

// CreateDueNotifications stores due messages about cases and updates their incidents. It returns the
// topics of the messages, or none while another server runs it. The installation is part of each
// incident key.
func (db *DB) CreateDueNotifications(ctx context.Context, installation string) (topics []string, err error) {
	err = db.InTx(ctx, func(tx *Tx) error {
		topics = nil
		if free, err := lockCases(ctx, tx); err != nil || !free {
			return err
		}
		t, err := readNotificationState(ctx, tx)
		if err != nil {
			return err
		}
		t.installation = installation
		namespaces := slices.AppendSeq(slices.Collect(maps.Keys(t.cases)), maps.Keys(t.small))
		slices.Sort(namespaces)
		for _, namespace := range slices.Compact(namespaces) {
			for _, d := range notice.Decide(t.now, t.incidents[namespace], t.cases[namespace]) {
				if err := t.write(ctx, d); err != nil {
					return err
				}
			}
			if err := t.digest(ctx, namespace); err != nil {
				return err
			}
		}
		topics = t.topics
		return nil
	})
	return topics, wrap(err, "notify of cases")
}

// notificationPass is the state of one [DB.CreateDueNotifications], by namespace.
type notificationPass struct {
	tx           *Tx
	now          time.Time
	installation string
	incidents    map[string][]notice.Incident
	cases        map[string][]notice.Case
	small        map[string][]notice.Case // for the digest
	topics       []string
}

func readNotificationState(ctx context.Context, tx *Tx) (*notificationPass, error) {
	t := &notificationPass{tx: tx, incidents: map[string][]notice.Incident{}, cases: map[string][]notice.Case{}, small: map[string][]notice.Case{}}
	if err := tx.QueryRow(ctx, `SELECT now()`).Scan(&t.now); err != nil {
		return nil, err
	}
	rows, err := collect[notifiedCase](ctx, tx, selectNotificationState, notice.Members, notice.DigestAfter, notice.DigestEvery, maxNotifiedCases, notice.Recent, notice.Many)
	if err != nil {
		return nil, fmt.Errorf("read the cases: %w", err)
	}
	for _, r := range rows {
		cases := t.cases
		if r.Digest {
			cases = t.small
		}
		cases[r.Namespace] = append(cases[r.Namespace], r.notice())
	}
	open, err := collect[notice.Incident](ctx, tx, selectOpenIncidents, maxNotifiedCases)
	if err != nil {
		return nil, fmt.Errorf("read the incidents: %w", err)
	}
	for _, i := range open {
		t.incidents[i.Namespace] = append(t.incidents[i.Namespace], i)
	}
	return t, nil
}

const insertIncident = `
INSERT INTO tasker.incidents (incident_id, namespace, lead_case_id, dedup_key, severity, began_at, unowned_since, escalation, told_at, told_owned)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`

// updateIncident compares the revision, so only one of several servers updates the incident.
const updateIncident = `
UPDATE tasker.incidents
SET severity = $3, unowned_since = $4, escalation = $5, told_at = $6, told_owned = $7, ended_at = CASE WHEN $8 THEN clock_timestamp() END, lead_case_id = $9,
    revision = revision + 1
WHERE incident_id = $1 AND revision = $2 AND ended_at IS NULL`

// recordNotifiedCases stores the reported state of cases. The next message reports cases that joined
// later.
const recordNotifiedCases = `
INSERT INTO tasker.incident_cases AS ic (incident_id, case_id, told_state, told_entries)
SELECT $1, u.case_id, u.state, u.entries
FROM unnest($2::uuid[], $3::text[], $4::bigint[]) AS u (case_id, state, entries)
ON CONFLICT (incident_id, case_id) DO UPDATE SET told_state = excluded.told_state, told_entries = excluded.told_entries`

// write stores a decision and its message, unless another server has changed the incident.
func (t *notificationPass) write(ctx context.Context, d notice.Decision) error {
	if d.New {
		d.ID = tasker.NewID()
		d.DedupKey = notice.Key(t.installation, tasker.IncidentSubject, d.ID)
		_, err := t.tx.Exec(ctx, insertIncident, d.ID, d.Namespace, d.Lead, d.DedupKey, d.Severity, d.BeganAt, d.UnownedSince, d.Escalation, d.ToldAt, d.ToldOwned)
		if err != nil {
			return fmt.Errorf("open an incident: %w", err)
		}
	} else {
		tag, err := t.tx.Exec(ctx, updateIncident, d.ID, d.Revision, d.Severity, d.UnownedSince, d.Escalation, d.ToldAt, d.ToldOwned, d.Ended, d.Lead)
		if err != nil {
			return fmt.Errorf("change incident %s: %w", d.ID, err)
		}
		if tag.RowsAffected() == 0 {
			return nil
		}
	}
	var ids []tasker.ID
	var states []string
	var stuck []int64
	for _, c := range d.Cases {
		if d.Topic == "" && !slices.Contains(d.Joined, c.ID) {
			continue
		}
		state, n := string(c.State), c.Stuck()
		if d.Topic == "" {
			state, n = "", 0
		}
		ids, states, stuck = append(ids, c.ID), append(states, state), append(stuck, n)
	}
	if _, err := t.tx.Exec(ctx, recordNotifiedCases, d.ID, ids, states, stuck); err != nil {
		return fmt.Errorf("store the notified cases of incident %s: %w", d.ID, err)
	}
	if d.Topic == "" {
		return nil
	}
	t.topics = append(t.topics, d.Topic)
	_, err := t.tx.CreateNotification(ctx, NewMessage{
		Topic: d.Topic, SubjectKind: tasker.IncidentSubject, SubjectID: d.ID, IncidentID: &d.ID, Namespaces: []string{d.Namespace}, DedupKey: d.DedupKey,
		Escalation: d.Escalation, Data: d.Data(),
	})
	return err
}

// digest enqueues the digest of the small unowned cases of a namespace. It returns a Conflict if
// another server has enqueued it.
func (t *notificationPass) digest(ctx context.Context, namespace string) error {
	cases := t.small[namespace]
	if len(cases) == 0 {
		return nil
	}
	slices.SortFunc(cases, func(a, b notice.Case) int { return cmp.Compare(b.Harm, a.Harm) })
	ids := mapped(cases, func(c notice.Case) tasker.ID { return c.ID })
	tag, err := t.tx.Exec(ctx, `UPDATE tasker.cases SET digested_at = now() WHERE case_id = ANY ($1) AND coalesce(digested_at < now() - $2::interval, true)`, ids, time.Minute)
	if err != nil {
		return fmt.Errorf("record a digest: %w", err)
	}
	if int(tag.RowsAffected()) < len(ids) {
		return tasker.Errorf(tasker.Conflict, "another server has sent the digest of %s", namespace)
	}
	t.topics = append(t.topics, tasker.DigestTopic)
	id := tasker.ID(md5.Sum([]byte("digest " + namespace)))
	_, err = t.tx.CreateNotification(ctx, NewMessage{
		Topic: tasker.DigestTopic, SubjectKind: tasker.DigestSubject, SubjectID: id, Namespaces: []string{namespace},
		DedupKey: notice.Key(t.installation, tasker.DigestSubject, id), Data: notice.Digest(t.now, cases),
	})
	return err
}

// CreateTestNotification enqueues a message that tests the routes, and audits the request.
func (db *DB) CreateTestNotification(ctx context.Context, data tasker.NotificationData, actor string) (tasker.ID, error) {
	id := tasker.NewID()
	err := db.InTx(ctx, func(tx *Tx) error {
		if err := tx.audit(ctx, actor, "message.test", id.String()); err != nil {
			return err
		}
		_, err := tx.CreateNotification(ctx, NewMessage{Topic: tasker.TestTopic, SubjectKind: tasker.TestSubject, SubjectID: id, Namespaces: []string{data.Namespace}, Data: data})
		return err
	})
	return id, err
}
