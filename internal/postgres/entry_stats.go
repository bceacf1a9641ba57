package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// EntryStats counts investigations by reason.
func (db *DB) EntryStats(ctx context.Context) (list []tasker.EntryStats, err error) {
	if scope := access.ScopeFromContext(ctx); scope.IncludesAll() {
		list, err = collect[tasker.EntryStats](ctx, db.pool, statement("selectEntryStats"))
	} else {
		list, err = collect[tasker.EntryStats](ctx, db.pool, statement("countEntryStats"), scope.List())
	}
	return list, wrapError(err, "count investigations")
}

// EntryCounts counts opened, ended and open investigations for intervals of the given width. It
// considers only the newest [tasker.MaxEntryCount].
func (db *DB) EntryCounts(ctx context.Context, since time.Time, width time.Duration) ([]tasker.EntryCount, error) {
	sql, args := statement("selectEntryCounts"), []any{since, tasker.MaxEntryCount, width}
	if scope := access.ScopeFromContext(ctx); !scope.IncludesAll() {
		sql, args = statement("selectEntryCountsOf"), append(args, scope.List())
	}
	list, err := collect[tasker.EntryCount](ctx, db.pool, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("count investigations over time: %w", err)
	}
	clearUncounted(list, tasker.MaxEntryCount)
	return list, nil
}

// clearUncounted clears the number of open investigations for intervals that are too old to be
// counted completely.
func clearUncounted(list []tasker.EntryCount, most int64) {
	var opened, ended int64
	for i := range slices.Backward(list) {
		if opened >= most || ended >= most {
			list[i].Open = nil
		}
		opened, ended = opened+list[i].Opened, ended+list[i].Ended
	}
}

// EntryTimes returns statistics about the durations of ended investigations, from the newest
// [tasker.MaxTimedEntries].
func (db *DB) EntryTimes(ctx context.Context, since time.Time) (tasker.ResolutionTimes, error) {
	sql, args := statement("selectEntryTimes"), []any{since, tasker.MaxTimedEntries, tasker.SystemActor}
	if scope := access.ScopeFromContext(ctx); !scope.IncludesAll() {
		sql, args = statement("selectEntryTimesOf"), append(args, scope.List())
	}
	type row struct {
		Phase          tasker.Phase
		Cases, Entries int64
		P50, P95       float64
	}
	rows, err := collect[row](ctx, db.pool, sql, args...)
	if err != nil {
		return tasker.ResolutionTimes{}, fmt.Errorf("read the durations of investigations: %w", err)
	}
	t := tasker.ResolutionTimes{Since: since}
	for _, phase := range tasker.Phases() {
		p := tasker.PhaseTime{Phase: phase}
		for _, r := range rows {
			if r.Phase == phase {
				p.Cases, p.P50Seconds, p.P95Seconds, t.Entries = r.Cases, secondsToDuration(r.P50).Seconds(), secondsToDuration(r.P95).Seconds(), r.Entries
			}
		}
		t.Times = append(t.Times, p)
	}
	return t, nil
}

func secondsToDuration(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// OpenEntries counts open investigations and lists the namespaces of templates, at most 1000. It
// returns Unavailable if the database is read-only.
func (db *DB) OpenEntries(ctx context.Context) (pending int64, namespaces []string, err error) {
	if err := db.CheckWritable(ctx); err != nil {
		return 0, nil, err
	}
	err = db.pool.QueryRow(ctx, statement("countOpenEntries"),
		listedNamespaces).Scan(&pending, &namespaces)
	return pending, namespaces, wrapError(err, "count open investigations")
}

const listedNamespaces = 1000

// Namespaces lists the visible namespaces that have templates, at most 1000.
func (db *DB) Namespaces(ctx context.Context) (names []string, err error) {
	sql, args := statement("namespacesWithTemplates"), []any{listedNamespaces}
	if scope := access.ScopeFromContext(ctx); !scope.IncludesAll() {
		sql, args = statement("namespacesWithTemplatesOf"), append(args, scope.List())
	}
	err = db.pool.QueryRow(ctx, sql, args...).Scan(&names)
	return names, wrapError(err, "list namespaces")
}
