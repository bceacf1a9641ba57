package engine_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"tasker"
	"tasker/internal/engine"
)

// How many steps a big task has; make soak tries the largest that is allowed.
var largeSteps = flag.Int("large-steps", 250, "steps of each big task")

// bigGraph makes a graph of n steps: wide, deep, or both.
func bigGraph(r *rand.Rand, n int) []tasker.StepTemplate {
	reach := 1 + r.IntN(n) // a step depends on some of the last so many
	list := make([]tasker.StepTemplate, n)
	for i := range list {
		before := map[string]bool{}
		for range r.IntN(4) {
			if i > 0 {
				before[list[i-1-r.IntN(min(i, reach))].Name] = true
			}
		}
		list[i] = attempts(1+r.IntN(3), step(fmt.Sprintf("s%d", i)))
		for name := range before {
			list[i].Dependencies = append(list[i].Dependencies, name)
		}
		list[i].Retry.BaseMS = 0
	}
	return list
}

// bigResults are results of all sizes up to the limit, and some that cannot be
// stored.
func bigResults(r *rand.Rand) json.RawMessage {
	switch r.IntN(60) {
	case 0: // the largest that is allowed, or a little larger
		return stringsOf(tasker.MaxDocumentBytes - 2_000 + r.IntN(4_000))
	case 1:
		return json.RawMessage(`["a NUL cannot be stored: \u0000"]`)
	case 2: // each is written out with 309 digits
		return json.RawMessage(`[` + strings.TrimSuffix(strings.Repeat("1e308,", r.IntN(5_000)+1), ",") + `]`)
	case 3, 4, 5:
		return stringsOf(r.IntN(100_000))
	default:
		return json.RawMessage(`"done"`)
	}
}

// stringsOf is a list of strings of about so many bytes.
func stringsOf(bytes int) json.RawMessage {
	const each = 10_000
	var b strings.Builder
	b.WriteString(`[""`)
	for b.Len() < bytes-each {
		b.WriteString(`, "` + strings.Repeat("x", each-4) + `"`)
	}
	b.WriteString(`, "` + strings.Repeat("y", max(bytes-b.Len()-5, 0)) + `"]`)
	return json.RawMessage(b.String())
}

// Tasks of hundreds of steps, with results of all sizes and some that cannot be
// stored, find their end whatever workers do.
func TestWhateverWorkersDoBigTasksFindTheirEnd(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	c := &chaos{
		house: h, seed: seed, result: bigResults, atOnce: 100,
		engines: []*engine.Engine{h.engine, engine.New(h.db, engine.Options{})},
	}
	for i := range 3 {
		name := fmt.Sprint("big", i)
		h.template(name, bigGraph(r, *largeSteps)...)
		h.create(name)
	}
	c.run()
}
