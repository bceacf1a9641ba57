package postgres

import (
	"flag"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var claimRounds = flag.Int("claim-rounds", 60, "claims of each kind that TestClaimsThatNothingHolds times")

// The check for holds costs next to nothing without holds. It compares 10th percentiles; for an exact
// ratio run go test ./internal/postgres -run TestClaimsThatNothingHolds -v -args -claim-rounds=3000.
func TestClaimsThatNothingHolds(t *testing.T) {
	const steps = 3000
	for _, queues := range []int{1, 3} {
		y := newYard(t, queues, steps)
		for _, limit := range []int{1, 10} {
			c := y.claimant(queues)
			asks, args := y.claimSQL(c, limit, nil)
			without := strings.Replace(asks, "EXISTS (SELECT FROM tasker.claim_conditions)", "$7::uuid[] IS NULL", 1)
			without = regexp.MustCompile(`AND NOT \(c.held AND tasker.is_held\(.*\)\)`).ReplaceAllString(without, "")
			if without == asks {
				t.Fatal("the claim does not ask for holds")
			}
			// Other load slows the higher percentiles, and the minimum is rare. Under much load, more rounds help.
			var took [2][]time.Duration
			ratio := 0.0
			for again := 0; again == 0 || ratio > 1.2 && again < 5; again++ {
				for round := range 2 * (*claimRounds + 20) {
					which := (round/2 + round) % 2 // in pairs, alternately first
					d := y.timed([]string{asks, without}[which], args, limit)
					if round >= 40 { // both have generic plans
						took[which] = append(took[which], d)
					}
				}
				slices.Sort(took[0])
				slices.Sort(took[1])
				asking, not := took[0][len(took[0])/10], took[1][len(took[1])/10]
				ratio = float64(asking) / float64(not)
				t.Logf("%d queues, %d steps: %s, without asking %s, ratio %.3f", queues, limit, asking, not, ratio)
			}
			if ratio > 1.2 {
				t.Errorf("to ask for holds makes a claim of %d steps of %d queues %.2f times as long", limit, queues, ratio)
			}
		}
	}
}

// timed runs a claim in a transaction, and rolls it back.
func (y *yard) timed(sql string, args []any, want int) time.Duration {
	y.Helper()
	tx, err := y.db.pool.Begin(y.Context())
	if err != nil {
		y.Fatal(err)
	}
	defer func() { _ = tx.Rollback(y.Context()) }()
	begun := time.Now()
	rows, err := collect[claimRow](y.Context(), tx, sql, args...)
	took := time.Since(begun)
	if err != nil {
		y.Fatal(err)
	}
	if n := len(newClaimResult(rows).Steps); n != want {
		y.Fatalf("%d steps are handed out, want %d", n, want)
	}
	return took
}
