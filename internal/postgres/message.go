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

// NewMessage describes a notification to store. Its sinks are chosen later by the routes.
type NewMessage struct {
	Topic       string
	SubjectKind string
	SubjectID   tasker.ID // messages about the same subject are delivered in order
	IncidentID  *tasker.ID
	Namespaces  []string // namespaces of the subject
	DedupKey    string   // if empty, the key is derived from the subject
	Escalation  int
	Data        tasker.NotificationData
}

// CreateNotification stores a message to be sent. The caller must hold a lock on the subject, so
// that messages about it are in order.
func (tx *Tx) CreateNotification(ctx context.Context, m NewMessage) (position int64, err error) {
	doc, err := json.Marshal(m.Data)
	if err != nil {
		return 0, fmt.Errorf("write a message: %w", err)
	}
	slices.Sort(m.Namespaces)
	err = tx.QueryRow(ctx, statement("insertMessage"), m.Topic, m.SubjectKind, m.SubjectID, m.IncidentID, m.Namespaces, m.DedupKey, m.Escalation, string(doc)).Scan(&position)
	return position, wrapError(err, "write a message")
}

// maxNotifiedCases limits how many cases of a namespace, and how many incidents, one pass reads.
const maxNotifiedCases = 5000

// notifiedCase is a case and the state of the notifications about it.
type notifiedCase struct {
	tasker.Case
	Severity   tasker.Severity
	IncidentID *tasker.ID
	Again      bool
	ToldState  tasker.CaseState
	ToldStuck  int64
	Digest     bool
}

func (r notifiedCase) toNotice() notice.Case {
	return notice.Case{Case: r.Case, Severity: r.Severity, IncidentID: r.IncidentID, Regressed: r.Again, NotifiedState: r.ToldState, ToldStuck: r.ToldStuck}
}

// CreateDueNotifications stores messages about cases that are due and updates the incidents of
// these cases. It returns the topics of the messages, or nil while another server does the same.
// The key of each incident includes the installation.
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
				if err := t.store(ctx, d); err != nil {
					return err
				}
			}
			if err := t.storeDigest(ctx, namespace); err != nil {
				return err
			}
		}
		topics = t.topics
		return nil
	})
	return topics, wrapError(err, "notify of cases")
}

// notificationPass holds the state of one call of [DB.CreateDueNotifications], by namespace.
type notificationPass struct {
	tx           *Tx
	now          time.Time
	installation string
	incidents    map[string][]notice.Incident
	cases        map[string][]notice.Case
	small        map[string][]notice.Case // cases for the digest
	topics       []string
}

func readNotificationState(ctx context.Context, tx *Tx) (*notificationPass, error) {
	t := &notificationPass{tx: tx, incidents: map[string][]notice.Incident{}, cases: map[string][]notice.Case{}, small: map[string][]notice.Case{}}
	if err := tx.QueryRow(ctx, statement("transactionTime")).Scan(&t.now); err != nil {
		return nil, err
	}
	rows, err := collect[notifiedCase](ctx, tx, statement("selectNotificationState"), notice.Members, notice.DigestAfter, notice.DigestEvery, maxNotifiedCases, notice.Recent, notice.Many)
	if err != nil {
		return nil, fmt.Errorf("read the cases: %w", err)
	}
	for _, r := range rows {
		cases := t.cases
		if r.Digest {
			cases = t.small
		}
		cases[r.Namespace] = append(cases[r.Namespace], r.toNotice())
	}
	open, err := collect[notice.Incident](ctx, tx, statement("selectOpenIncidents"), maxNotifiedCases)
	if err != nil {
		return nil, fmt.Errorf("read the incidents: %w", err)
	}
	for _, i := range open {
		t.incidents[i.Namespace] = append(t.incidents[i.Namespace], i)
	}
	return t, nil
}

// store stores a decision and its message. It does nothing if another server has changed the
// incident.
func (t *notificationPass) store(ctx context.Context, d notice.Decision) error {
	if d.New {
		d.ID = tasker.NewID()
		d.DedupKey = notice.Key(t.installation, tasker.IncidentSubject, d.ID)
		_, err := t.tx.Exec(ctx, statement("insertIncident"), d.ID, d.Namespace, d.Lead, d.DedupKey, d.Severity, d.BeganAt, d.UnownedSince, d.Escalation, d.ToldAt, d.ToldOwned)
		if err != nil {
			return fmt.Errorf("open an incident: %w", err)
		}
	} else {
		tag, err := t.tx.Exec(ctx, statement("updateIncident"), d.ID, d.Revision, d.Severity, d.UnownedSince, d.Escalation, d.ToldAt, d.ToldOwned, d.Ended, d.Lead)
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
	if _, err := t.tx.Exec(ctx, statement("recordNotifiedCases"), d.ID, ids, states, stuck); err != nil {
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

// storeDigest stores the digest of the small unowned cases in a namespace. It returns a Conflict if
// another server has already done so.
func (t *notificationPass) storeDigest(ctx context.Context, namespace string) error {
	cases := t.small[namespace]
	if len(cases) == 0 {
		return nil
	}
	slices.SortFunc(cases, func(a, b notice.Case) int { return cmp.Compare(b.Harm, a.Harm) })
	ids := mapSlice(cases, func(c notice.Case) tasker.ID { return c.ID })
	tag, err := t.tx.Exec(ctx, statement("noteDigest"), ids, time.Minute)
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
		DedupKey: notice.Key(t.installation, tasker.DigestSubject, id), Data: notice.NewDigest(t.now, cases),
	})
	return err
}

// CreateTestNotification stores a message for testing the routes and records the request in the
// audit log.
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
