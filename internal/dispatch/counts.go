package dispatch

import (
	"context"
	"time"
)

// Outcomes lists all outcomes of dead letters.
func Outcomes() []string {
	return []string{LetterExpired, LetterAgain, LetterMoved, LetterInvalid, LetterForeign, LetterRetried}
}

// Counts receives the numbers that a Service counts.
type Counts interface {
	// Announced counts announced steps that the broker confirmed or failed to confirm.
	Announced(ctx context.Context, confirmed, failed int)
	// Reannounced counts steps whose announcement was lost.
	Reannounced(ctx context.Context, steps int)
	// DeadLetter counts a dead letter by outcome. latency is the time since it was dead-lettered,
	// or 0 if unknown.
	DeadLetter(ctx context.Context, outcome string, latency time.Duration)
}

type noCounts struct{}

func (noCounts) Announced(context.Context, int, int)               {}
func (noCounts) Reannounced(context.Context, int)                  {}
func (noCounts) DeadLetter(context.Context, string, time.Duration) {}
