// Package incidentreport builds the post-incident report of a case, an incident or a time range.
package incidentreport

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/postgres"
)

// Build returns the report for a query. It returns NotFound if the case or incident does not exist,
// and TooLarge if there are too many investigations.
func Build(ctx context.Context, db *postgres.DB, q tasker.IncidentReportQuery) (tasker.IncidentReport, error) {
	r, err := db.ReadReport(ctx, q)
	if err != nil {
		return r, err
	}
	convertToUTC(&r)
	r.Digest, err = Digest(r)
	return r, err
}

// Digest returns the SHA-256, in hex, of a report encoded as JSON with an empty digest and without
// white space.
func Digest(r tasker.IncidentReport) (string, error) {
	r.Digest = ""
	doc, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("encode a report: %w", err)
	}
	sum := sha256.Sum256(doc)
	return hex.EncodeToString(sum[:]), nil
}

// convertToUTC converts all times to UTC, so that the digest does not depend on the time zone of
// the database.
func convertToUTC(r *tasker.IncidentReport) {
	r.AsOf, r.Began = r.AsOf.UTC(), toUTC(r.Began)
	for i, a := range r.Actions {
		r.Actions[i].First, r.Actions[i].Last = a.First.UTC(), a.Last.UTC()
	}
	for i, o := range r.Operations {
		r.Operations[i].StartedAt, r.Operations[i].EndedAt = toUTC(o.StartedAt), toUTC(o.EndedAt)
		for j, w := range o.Waves {
			o.Waves[j].From, o.Waves[j].To = w.From.UTC(), toUTC(w.To)
		}
	}
	for i, m := range r.Messages {
		r.Messages[i].At = m.At.UTC()
	}
	for _, list := range [][]tasker.ReportMember{r.Unproved, r.Open} {
		for i, m := range list {
			list[i].OpenedAt, list[i].EndedAt = m.OpenedAt.UTC(), toUTC(m.EndedAt)
		}
	}
	for i, e := range r.Timeline {
		r.Timeline[i].At = e.At.UTC()
	}
}

func toUTC(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}
