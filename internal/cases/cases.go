// Package cases groups investigations with the same cause into cases and maintains the state of each
// case.
//
// An investigation belongs to the case of its fingerprint. The fingerprint is computed from the newest
// failure, shortly after the failure, so that it delays no step. Counts are never stored: each read
// counts the open investigations in one snapshot. The state of a case depends on the clock and these counts,
// and each change of state is recorded in its history.
package cases

import (
	"cmp"
	"context"
	"crypto/md5"
	"log/slog"
	"slices"
	"strings"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/fingerprint"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/payload"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/internal/version"
)

// Options configures a Service. The zero value uses the defaults.
type Options struct {
	Log *slog.Logger
}

// Service assigns investigations to cases. Its methods may be called concurrently, in any number of
// processes: the database serializes them.
type Service struct {
	db   *postgres.DB
	log  *slog.Logger
	wake chan struct{}
	next time.Time // time of the next state update; used only by the loop
}

// New returns a service on a database with the current schema.
func New(db *postgres.DB, o Options) *Service {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Service{db: db, log: o.Log, wake: make(chan struct{}, 1)}
}

// States are updated at most once per stateInterval. An update may use at most 1/stateLoad of the
// time, because counting all open investigations is expensive.
const (
	interval      = 5 * time.Second // delay before an investigation gets its case if a notification is lost
	batch         = 500
	deadline      = 30 * time.Second
	stateInterval = 2 * time.Second
	stateLoad     = 20
)

// Retention of messages about cases and tasks.
const (
	keepMessages = 90 * 24 * time.Hour
	pruneBatch   = 1000
)

// Loops returns the background loops. One assigns investigations to cases, the other removes old
// messages, also in programs that deliver none.
func (s *Service) Loops() []*loop.Loop {
	return []*loop.Loop{
		{Name: "cases", Interval: interval, Timeout: deadline, Wake: s.wake, Pass: s.pass, Log: s.log},
		{Name: "tidy up messages", Interval: time.Minute, Timeout: deadline, Optional: true, Pass: s.pruneMessages, Log: s.log},
	}
}

// pruneMessages removes messages that are older than 90 days.
func (s *Service) pruneMessages(ctx context.Context) (time.Duration, error) {
	p, err := s.db.PruneMessages(ctx, keepMessages, pruneBatch)
	if p.Unsent > 0 {
		s.log.WarnContext(ctx, "removed messages that some sinks had not accepted within 90 days", "unsent", p.Unsent)
	}
	if err == nil && p.Removed == pruneBatch {
		return loop.AtOnce, nil
	}
	return 0, err
}

// Wake starts a pass of the background loop. It does not block.
func (s *Service) Wake() { loop.Wake(s.wake) }

func (s *Service) pass(ctx context.Context) (time.Duration, error) {
	n, err := s.Classify(ctx)
	if err != nil {
		return 0, err
	}
	if now := time.Now(); now.After(s.next) {
		if err := s.UpdateStates(ctx); err != nil {
			return 0, err
		}
		s.next = time.Now().Add(max(stateInterval, stateLoad*time.Since(now)))
	} else if n > 0 { // update the states of cases with new investigations soon, too
		return time.Until(s.next), nil
	}
	return 0, nil
}

// Classify assigns cases to open investigations that have none or whose failure has changed. It
// returns how many it assigned.
func (s *Service) Classify(ctx context.Context) (all int, err error) {
	for {
		split, err := s.db.ApplySplit(ctx, batch)
		if err != nil {
			return all, err
		}
		n, err := s.db.Classify(ctx, fingerprint.Version, batch, ComputeFingerprint, version.Older)
		if all += n; err != nil || n < batch && split == 0 {
			return all, err
		}
	}
}

// UpdateStates updates the states of all cases and logs the changes.
func (s *Service) UpdateStates(ctx context.Context) error {
	moved, err := s.db.UpdateCaseStates(ctx)
	if err != nil {
		return err
	}
	for _, m := range moved {
		s.log.InfoContext(ctx, "case state changed", "case", m.CaseID, "namespace", m.Namespace, "from", m.From, "to", m.To, "open", m.Entries)
	}
	return nil
}

// ComputeFingerprint returns the fingerprint of a failure. Failures with the same place, reason and
// cause have the same one. If the handler supplied a cause, it is used unchanged.
func ComputeFingerprint(m postgres.MemberFailure) postgres.Fingerprint {
	cause := fingerprint.Normalize(fingerprint.Failure{Type: m.ErrorType, Message: m.ErrorMessage, Given: m.ErrorFingerprint})
	parts := []string{m.Namespace, m.TaskName, tasker.TemplateName(m.StepName), string(m.Reason), m.DetailCode, cause.Key}
	sum := md5.Sum([]byte(strings.Join(parts, "\x1f")))
	return postgres.Fingerprint{Key: sum, ErrorType: m.ErrorType, Pattern: cause.Pattern}
}

// FindDetail returns a case with its details.
func (s *Service) FindDetail(ctx context.Context, id tasker.ID) (tasker.CaseDetail, error) {
	return s.db.CaseDetail(ctx, id)
}

// Update changes a case and returns it. It returns Invalid, NotFound, or a Conflict if the case is
// not in the state that the caller expects.
func (s *Service) Update(ctx context.Context, id tasker.ID, u tasker.CaseUpdate) (tasker.Case, error) {
	if err := checkUpdate(u, time.Now()); err != nil {
		return tasker.Case{}, err
	}
	return s.db.UpdateCase(ctx, id, u)
}

// Limits of the fields that users can set on a case.
const (
	maxName    = 255
	maxReason  = 2000
	maxNotes   = 10_000
	maxLiteral = 200

	minOwnership = time.Minute
)

func checkUpdate(u tasker.CaseUpdate, now time.Time) error {
	switch {
	case u.Owner == nil && u.Snooze == nil && u.FixedIn == nil && u.Notes == nil:
		return tasker.Errorf(tasker.Invalid, "nothing to change: set owner, snooze, fixed_in or notes")
	case u.Owner == nil && u.OwnedFor != 0:
		return tasker.Errorf(tasker.Invalid, "invalid owned_for: requires owner")
	case u.OwnedFor != 0 && u.OwnedFor < minOwnership:
		return tasker.Errorf(tasker.Invalid, "invalid owned_for %s: must be at least %s", u.OwnedFor, minOwnership)
	case u.OwnedFor > tasker.MaxOwnership:
		return tasker.Errorf(tasker.Invalid, "invalid owned_for %s: must be at most %s", u.OwnedFor, tasker.MaxOwnership)
	case u.SnoozeThreshold != nil && (u.Snooze == nil || u.Snooze.IsZero()):
		return tasker.Errorf(tasker.Invalid, "invalid above: requires until")
	case u.SnoozeThreshold != nil && *u.SnoozeThreshold < 0:
		return tasker.Errorf(tasker.Invalid, "invalid above %d: must be 0 or more", *u.SnoozeThreshold)
	case u.Snooze != nil && !u.Snooze.IsZero() && !u.Snooze.After(now):
		return tasker.Errorf(tasker.Invalid, "invalid until %s: must be in the future", u.Snooze.UTC().Format(time.RFC3339))
	case u.Snooze != nil && u.Snooze.After(now.Add(tasker.MaxSnooze)):
		return tasker.Errorf(tasker.Invalid, "invalid until %s: a case can be snoozed for at "+
			"most %s", u.Snooze.UTC().Format(time.RFC3339), tasker.MaxSnooze)
	}
	for _, t := range []struct {
		name string
		text *string
		most int
	}{{"owner", u.Owner, maxName}, {"fixed_in", u.FixedIn, maxName}, {"notes", u.Notes, maxNotes}} {
		if t.text != nil {
			if err := checkText(t.name, *t.text, t.most, false); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkText(name, text string, most int, needed bool) error {
	wrong := payload.CheckText(text, most)
	switch {
	case needed && payload.IsBlank(text):
		return tasker.Errorf(tasker.Invalid, "%s is missing", name)
	case wrong != "":
		return tasker.Errorf(tasker.Invalid, "invalid %s: %s", name, wrong)
	}
	return nil
}

// Merge assigns all present and future investigations of one case to another case.
func (s *Service) Merge(ctx context.Context, from, into tasker.ID, actor, reason string) error {
	if err := checkText("reason", reason, maxReason, true); err != nil {
		return err
	}
	return s.db.MergeCases(ctx, from, into, actor, reason)
}

// Unmerge reverts a Merge.
func (s *Service) Unmerge(ctx context.Context, id tasker.ID, actor, reason string) error {
	if err := checkText("reason", reason, maxReason, true); err != nil {
		return err
	}
	return s.db.UnmergeCase(ctx, id, actor, reason)
}

// SplitFields lists the fields by which a case can be split.
func SplitFields() []string {
	return []string{"error_message", "error_type", "worker_version", "task_version"}
}

// Split moves the failures whose field contains a literal text to a case of their own. It returns
// the number of affected open investigations. The new case appears within seconds.
func (s *Service) Split(ctx context.Context, id tasker.ID, p tasker.CaseSplit) (int64, error) {
	p.Field = cmp.Or(p.Field, SplitFields()[0])
	if err := checkText("reason", p.Reason, maxReason, true); err != nil {
		return 0, err
	}
	if err := checkText("literal", p.Literal, maxLiteral, true); err != nil {
		return 0, err
	}
	if !slices.Contains(SplitFields(), p.Field) {
		return 0, tasker.Errorf(tasker.Invalid, "invalid field %q: must be one of %s", p.Field, strings.Join(SplitFields(), ", "))
	}
	n, err := s.db.SplitCase(ctx, id, p)
	if err == nil {
		s.Wake()
	}
	return n, err
}
