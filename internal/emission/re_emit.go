package emission

import (
	"context"
	"slices"
	"strings"
	"unicode/utf8"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/postgres"
)

// MaxReEmitted bounds the events that one request sends again.
const MaxReEmitted = 10_000

// A ReEmission is a request to resend one event or a range of positions, ends included.
type ReEmission struct {
	Event         *tasker.ID // nil means the range
	From, To      int64
	Sinks         []string // empty means all that are known
	Actor, Reason string
	Key           string // by which the same request is recognised; empty means not at all
}

// ReEmitted is what a request sends again.
type ReEmitted struct {
	Events    int
	Emissions int      // events, counted once for each sink; 0 for a request that took effect before
	Sinks     []string // in the order of their names
	Next      *int64   // position from which the rest of the range is to be requested; nil if that is all
}

// Sinks lists the current and former sinks. It returns a Conflict without any.
func Sinks(ctx context.Context, db *postgres.DB) ([]string, error) {
	known, err := db.EventSinks(ctx)
	if err == nil && len(known) == 0 {
		err = tasker.Errorf(tasker.Conflict, "events are sent nowhere: no server was configured with a sink yet (emission.sinks)")
	}
	return known, err
}

// ReEmit resends events, with the same limit and errors for all surfaces.
func ReEmit(ctx context.Context, db *postgres.DB, r ReEmission) (ReEmitted, error) {
	if r.Event != nil {
		e, err := db.Event(ctx, *r.Event)
		if err != nil {
			return ReEmitted{}, err
		}
		r.From, r.To = e.Position, e.Position
	}
	if r.From > r.To {
		return ReEmitted{}, tasker.Errorf(tasker.Invalid, "from_position %d is after to_position %d", r.From, r.To).
			WithDetails([]tasker.Fault{{Path: "from_position", Message: "is after to_position"}})
	}
	sinks, err := chooseSinks(ctx, db, r.Sinks)
	if err != nil {
		return ReEmitted{}, err
	}
	part, err := db.OutboxStats(ctx, r.From, r.To, MaxReEmitted)
	if err != nil {
		return ReEmitted{}, err
	}
	out := ReEmitted{Events: part.Events, Sinks: sinks, Next: part.Next}
	if part.Events == 0 {
		return out, nil
	}
	by := postgres.Operator{Actor: strings.TrimSpace(r.Actor), Reason: strings.TrimSpace(r.Reason)}
	// An event of the range that becomes visible only now is sent as well.
	out.Emissions, err = db.ReEmit(ctx, postgres.ReEmission{
		Sinks: sinks, Of: postgres.Span{From: r.From, To: part.Last}, By: by,
		Once: postgres.OperatorRequest{Key: r.Key, Action: "dlq.re_emit", Payload: []any{sinks, r.From, r.To, by}},
	}, 2*MaxReEmitted)
	return out, err
}

// chooseSinks returns the sinks that a request names, all if it names none.
func chooseSinks(ctx context.Context, db *postgres.DB, named []string) ([]string, error) {
	known, err := Sinks(ctx, db)
	if err != nil || len(named) == 0 {
		return known, err
	}
	for _, name := range named {
		if !slices.Contains(known, name) {
			return nil, tasker.Errorf(tasker.Invalid, "there is no sink %q; there are %s", shorten(name), strings.Join(known, ", ")).
				WithDetails([]tasker.Fault{{Path: "sinks", Message: "must be some of " + strings.Join(known, ", ")}})
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(named))), nil
}

// shorten makes a name fit for an error.
func shorten(name string) string {
	const most = 100
	if utf8.RuneCountInString(name) > most {
		name = string([]rune(name)[:most]) + "…"
	}
	return strings.ToValidUTF8(name, "\uFFFD")
}
