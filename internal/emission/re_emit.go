package emission

import (
	"context"
	"slices"
	"strings"
	"unicode/utf8"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/postgres"
)

// MaxReEmitted limits how many events one request resends.
const MaxReEmitted = 10_000

// A ReEmission is a request to resend one event or all events in an inclusive range of positions.
type ReEmission struct {
	Event         *tasker.ID // if nil, the range applies
	From, To      int64
	Sinks         []string // default: all known sinks
	Actor, Reason string
	Key           string // optional idempotency key
}

// ReEmitted describes which events were resent.
type ReEmitted struct {
	Events    int
	Emissions int      // number of deliveries: events times sinks; 0 for a repeated request
	Sinks     []string // sorted by name
	Next      *int64   // first position of the remaining range, or nil
}

// ListSinks returns the names of all sinks, current and former, that receive investigation events.
// It returns a Conflict if there are none.
func ListSinks(ctx context.Context, db *postgres.DB) ([]string, error) {
	known, err := db.EventSinks(ctx)
	if err == nil && len(known) == 0 {
		err = tasker.Errorf(tasker.Conflict, "no sinks exist: configure a sink on a server first (emission.sinks)")
	}
	return known, err
}

// ReEmit resends events. It also enforces the limit, since the API, the CLI and the web pages all
// use it.
func ReEmit(ctx context.Context, db *postgres.DB, r ReEmission) (ReEmitted, error) {
	if r.Event != nil {
		e, err := db.Event(ctx, *r.Event)
		if err != nil {
			return ReEmitted{}, err
		}
		r.From, r.To = e.Position, e.Position
	}
	if r.From > r.To {
		return ReEmitted{}, tasker.Errorf(tasker.Invalid,
			"invalid from_position %d: must not be after to_position %d", r.From, r.To).
			WithDetails([]tasker.Fault{{Path: "from_position", Message: "must not be after to_position"}})
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
	// This includes events in the range that have become visible in the meantime.
	out.Emissions, err = db.ReEmit(ctx, postgres.ReEmission{
		Sinks: sinks, Of: postgres.Span{From: r.From, To: part.Last}, By: by,
		Once: postgres.OperatorRequest{Key: r.Key, Action: "dlq.re_emit", Payload: []any{sinks, r.From, r.To, by}},
	}, 2*MaxReEmitted)
	return out, err
}

// chooseSinks returns the requested sinks, or all known ones if the request names none.
func chooseSinks(ctx context.Context, db *postgres.DB, named []string) ([]string, error) {
	known, err := ListSinks(ctx, db)
	if err != nil || len(named) == 0 {
		return known, err
	}
	for _, name := range named {
		if !slices.Contains(known, name) {
			return nil, tasker.Errorf(tasker.Invalid, "unknown sink %q: must be one of %s", truncate(name), strings.Join(known, ", ")).
				WithDetails([]tasker.Fault{{Path: "sinks", Message: "must contain only " + strings.Join(known, ", ")}})
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(named))), nil
}

// truncate truncates a name for an error message.
func truncate(name string) string {
	const limit = 100
	if utf8.RuneCountInString(name) > limit {
		name = string([]rune(name)[:limit]) + "…"
	}
	return strings.ToValidUTF8(name, "\uFFFD")
}
