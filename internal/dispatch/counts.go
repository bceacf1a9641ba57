package dispatch

import (
	"context"
	"time"
)

// Outcomes are all that may become of a dead letter.
func Outcomes() []string {
	return []string{LetterExpired, LetterAgain, LetterMoved, LetterInvalid, LetterForeign, LetterRetried}
}

// Counts is who wants to know.
type Counts interface {
	// Announced counts steps that were announced, and those that the broker did not
	// confirm.
	Announced(ctx context.Context, confirmed, failed int)
	// Reannounced counts steps whose announcement was lost.
	Reannounced(ctx context.Context, steps int)
	// DeadLetter counts a dead letter by what became of it, and how long it waited;
	// 0 means that this is not known.
	DeadLetter(ctx context.Context, outcome string, latency time.Duration)
}

type uncounted struct{}

func (uncounted) Announced(context.Context, int, int)               {}
func (uncounted) Reannounced(context.Context, int)                  {}
func (uncounted) DeadLetter(context.Context, string, time.Duration) {}
