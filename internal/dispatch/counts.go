package dispatch

import (
	"context"
	"time"
)

// Outcomes lists the outcomes of dead letters.
func Outcomes() []string {
	return []string{LetterExpired, LetterAgain, LetterMoved, LetterInvalid, LetterForeign, LetterRetried}
}

// Counts receives the counts of a Service.
type Counts interface {
	// Announced counts announced steps by whether the broker confirmed them.
	Announced(ctx context.Context, confirmed, failed int)
	// Reannounced counts steps whose announcement was lost.
	Reannounced(ctx context.Context, steps int)
	// DeadLetter counts a dead letter by outcome, with the time since its death; 0 if unknown.
	DeadLetter(ctx context.Context, outcome string, latency time.Duration)
}

type uncounted struct{}

func (uncounted) Announced(context.Context, int, int)               {}
func (uncounted) Reannounced(context.Context, int)                  {}
func (uncounted) DeadLetter(context.Context, string, time.Duration) {}
