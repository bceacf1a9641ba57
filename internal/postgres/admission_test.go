package postgres

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
)

var enqueued = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// parseCandidates reads candidates such as "b 1 old due=2 x=3 y": namespace, priority, and the keys with
// weights other than 1. Each was enqueued a second after the one before.
func parseCandidates(t *testing.T, text string) (list []*candidate) {
	t.Helper()
	for i, line := range strings.Split(text, ", ") {
		c := &candidate{StateSince: enqueued.Add(time.Duration(i) * time.Second)}
		c.StepUUID[0] = byte(i)
		words := strings.Fields(line)
		c.Namespace = words[0]
		if _, err := fmt.Sscan(words[1], &c.Priority); err != nil {
			t.Fatal(err)
		}
		for _, word := range words[2:] {
			key, value, _ := strings.Cut(word, "=")
			n := 1
			if value != "" {
				if _, err := fmt.Sscan(value, &n); err != nil {
					t.Fatal(err)
				}
			}
			switch key {
			case "old":
				c.Old = true
			case "due":
				c.DueAt = new(enqueued.Add(time.Duration(n) * time.Hour))
			case "bytes":
				c.Bytes = n
			default:
				c.Needs = append(c.Needs, neededSlots{int64(key[0]), n})
			}
		}
		list = append(list, c)
	}
	return list
}

func slotsOf(free ...int) map[int64]keySlots {
	keys := map[int64]keySlots{}
	for i, n := range free {
		keys[int64('x')+int64(i)] = keySlots{free: n, most: 4}
	}
	return keys
}

func TestAdmission(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, candidates string
		admission        admission
		admitted         string
		refused          string // with the keys
		unlocked, old    bool
	}{
		{name: "most urgent first", candidates: "a 0 x, a 1 x, a 0 x", admission: admission{limit: 2, keys: slotsOf(9)}, admitted: "1 0"},
		{name: "full key", candidates: "a 0 x, a 0 y, a 0 x y", admission: admission{limit: 9, keys: slotsOf(0, 1)}, admitted: "1", refused: "0x 2x"},
		{name: "key filled by a more urgent step", candidates: "a 0 x, a 0 x, a 0 y", admission: admission{limit: 9, keys: slotsOf(1, 1)}, admitted: "0 2", refused: "1x"},
		{name: "due times within a priority", candidates: "a 0, a 0 due=2, a 0 due=1, a 1", admission: admission{limit: 9}, admitted: "3 2 1 0"},
		{name: "old steps", candidates: "a 1, a 0 old, a 1", admission: admission{limit: 2}, admitted: "1 0", old: true},
		{name: "old step that is as urgent", candidates: "a 0 old, a 0", admission: admission{limit: 9}, admitted: "0 1"},
		{name: "heavy step reserves", candidates: "a 1 x=3, a 0 x", admission: admission{limit: 9, keys: slotsOf(2)}, refused: "0x 1x"},
		{name: "more urgent than the heavy step", candidates: "a 1 x=3, a 2 x", admission: admission{limit: 9, keys: slotsOf(2)}, admitted: "1", refused: "0x"},
		{name: "heavy step with another full key", candidates: "a 1 x=3 y, a 0 x", admission: admission{limit: 9, keys: slotsOf(2, 0)}, admitted: "1", refused: "0x"},
		{name: "weight above the maximum", candidates: "a 1 x=9", admission: admission{limit: 9, keys: slotsOf(4)}, admitted: "0"},
		{name: "lowered limit", candidates: "a 1 x", admission: admission{limit: 9, keys: slotsOf(-2)}, refused: "0x"},
		{name: "key that is not locked", candidates: "a 1 x z, a 0 x", admission: admission{limit: 9, keys: slotsOf(1)}, admitted: "1", unlocked: true},
		{name: "size of inputs", candidates: "a 0 bytes=5, a 0 bytes=6, a 0 bytes=1", admission: admission{limit: 9, budget: 10}, admitted: "0"},
		{name: "turns", candidates: "a 0, a 0, a 0, b 0, b 0, b 0", admission: admission{limit: 4, turns: map[string]namespaceTurn{"a": {0, 1}, "b": {0, 0.5}}}, admitted: "0 3 4 1"},
		{name: "later turn", candidates: "a 0, a 0, b 0", admission: admission{limit: 3, turns: map[string]namespaceTurn{"a": {5, 1}, "b": {0, 1}}}, admitted: "2 0 1"},
		{name: "refused steps take no turn", candidates: "a 0 x, a 0, b 0", admission: admission{limit: 2, keys: slotsOf(0)}, admitted: "1 2", refused: "0x"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.admission.budget == 0 {
				tt.admission.budget = 100
			}
			v := tt.admission.decide(parseCandidates(t, tt.candidates))
			var admitted, refused []string
			for _, c := range v.admitted {
				admitted = append(admitted, fmt.Sprint(c.StepUUID[0]))
			}
			for _, s := range v.refused {
				refused = append(refused, fmt.Sprintf("%d%c", s.StepUUID[0], rune(s.key)))
			}
			slices.Sort(refused)
			if got := strings.Join(admitted, " "); got != tt.admitted {
				t.Errorf("admitted %q, want %q", got, tt.admitted)
			}
			if got := strings.Join(refused, " "); got != tt.refused {
				t.Errorf("refused %q, want %q", got, tt.refused)
			}
			if v.unlocked != tt.unlocked || v.old != tt.old {
				t.Errorf("unlocked %v, old %v, want %v, %v", v.unlocked, v.old, tt.unlocked, tt.old)
			}
		})
	}
}

// For random candidates, an admission exceeds no key, leaves out no step that fits and admits no step
// before a more urgent one with the same needs.
func TestAdmissionProperties(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 1))
		keys := map[int64]keySlots{}
		for k := range int64(4) {
			if r.IntN(8) > 0 {
				keys[k] = keySlots{free: r.IntN(6) - 1, most: 1 + r.IntN(4)}
			}
		}
		var list []*candidate
		for range r.IntN(20) {
			c := &candidate{StepRef: tasker.StepRef{StepUUID: tasker.NewID()}, Priority: r.IntN(3), StateSince: enqueued.Add(time.Duration(r.IntN(9)) * time.Second)}
			c.Namespace, c.Bytes, c.Old = []string{"a", "b"}[r.IntN(2)], r.IntN(3), r.IntN(5) == 0
			for k := range int64(4) {
				if r.IntN(3) == 0 {
					c.Needs = append(c.Needs, neededSlots{k, 1 + r.IntN(3)/2*2})
				}
			}
			list = append(list, c)
		}
		a := admission{limit: 1 + r.IntN(15), budget: 5 + r.IntN(20), keys: keys}
		if why := checkVerdict(a, list, a.decide(list)); why != "" {
			t.Fatalf("seed %d: %s", seed, why)
		}
	}
}

// checkVerdict returns what is wrong with a verdict.
func checkVerdict(a admission, list []*candidate, v verdict) string {
	used, size := map[int64]int{}, 0
	for _, c := range v.admitted {
		for _, n := range c.Needs {
			used[n.key] += a.weight(n)
		}
		size += c.Bytes
	}
	for k, n := range used {
		if slots, locked := a.keys[k]; !locked || n > slots.free {
			return fmt.Sprintf("admitted %d of %+v slots of key %d", n, slots, k)
		}
	}
	if len(v.admitted) > a.limit || size > a.budget {
		return "admitted too many steps"
	}
	// blocked reports whether a step does not fit, or a more urgent heavy step waits for one of its keys.
	blocked := func(c *candidate) bool {
		return a.isUnlocked(c) || slices.ContainsFunc(c.Needs, func(n neededSlots) bool {
			return a.keys[n.key].free-used[n.key] < a.weight(n) || slices.ContainsFunc(v.refused, func(o refusedStep) bool {
				return compareUrgency(o.candidate, c) < 0 && slices.ContainsFunc(o.Needs, func(m neededSlots) bool { return m.key == n.key && a.weight(m) > 1 })
			})
		})
	}
	ended := len(v.admitted) == a.limit
	for _, c := range list {
		admitted := slices.Contains(v.admitted, c)
		ended = ended || size+c.Bytes > a.budget
		for _, o := range list {
			same := c.Namespace == o.Namespace && slices.Equal(c.Needs, o.Needs)
			if same && admitted && !slices.Contains(v.admitted, o) && compareCandidates(o, c) < 0 {
				return fmt.Sprintf("admitted %+v before %+v", c, o)
			}
		}
	}
	for _, c := range list {
		if !ended && !slices.Contains(v.admitted, c) && !blocked(c) {
			return fmt.Sprintf("left out %+v of %+v, used %v", c, a.keys, used)
		}
	}
	return ""
}
