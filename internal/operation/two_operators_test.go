package operation_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"tasker.example/tasker"
)

// A meeting is two operators who act on the same three steps.
type meeting struct {
	*harness
	tasks []tasker.ID
	plans map[string]tasker.Operation // the newest that each of them has planned
}

// of returns the operation on which an operator acts: the own one, or else that of the other.
func (m *meeting) of(who string) tasker.Operation {
	if o, ok := m.plans[who]; ok {
		return o
	}
	return m.plans[other(who)]
}

func other(who string) string {
	return map[string]string{"ann": "bob", "bob": "ann"}[who]
}

// do does what an operator wants, and returns the refusal and what it has to name.
func (m *meeting) do(who, verb string) (names []string, err error) {
	m.Helper()
	o := m.of(who)
	names = []string{o.UUID.String()}
	switch verb {
	case "plan":
		p := inWaves(1)
		p.Actor, p.Selection = who, tasker.OperationSelection{IDs: m.tasks}
		var planned tasker.Operation
		if planned, _, err = m.ops.Plan(m.Context(), p); err == nil {
			m.plans[who] = planned
		}
		names = []string{m.plans[other(who)].UUID.String(), "planned by " + other(who)}
	case "start":
		_, err = m.ops.Start(m.Context(), o.UUID, o.PlanDigest, who)
	case "pause":
		_, err = m.ops.Pause(m.Context(), o.UUID, who)
	case "resume":
		_, err = m.ops.Resume(m.Context(), o.UUID, who, tasker.ResumeOptions{})
	case "abort":
		_, err = m.ops.Abort(m.Context(), o.UUID, who)
	case "hand": // the first step, by itself
		_, err = m.Engine.OperateStep(m.Context(), m.tasks[0], *m.Entry(m.tasks[0]).StepUUID, tasker.ActionRequest{Action: tasker.ResetForRetry, Actor: who, Reason: "by hand"})
		names = []string{"enqueued"}
	default:
		m.Fatalf("what is %q?", verb)
	}
	return names, err
}

// serve has servers do what they would do by themselves.
func (m *meeting) serve() {
	m.Helper()
	m.due()
	m.release()
	m.look()
}

// The orders in which two operators may plan, start, pause, resume, abort and act by hand on the same steps. "!" is a
// refusal, "servers" is a pass of servers, "workers" is what workers do and servers make of it, to the end.
var meetings = []struct {
	order string
	want  string // the items of the operations, by the order in which they were planned
}{
	{"ann.plan bob.plan!", "planned 3"},
	{"ann.plan bob.hand ann.start workers", "skipped 1 verified 2"},
	{"ann.plan ann.start bob.plan! workers", "verified 3"},
	{"ann.plan ann.start servers bob.hand! workers", "verified 3"},
	{"ann.plan bob.start workers", "verified 3"},
	{"ann.plan ann.start bob.start workers", "verified 3"},
	{"ann.plan bob.pause! ann.start workers", "verified 3"},
	{"ann.plan bob.resume! ann.start workers", "verified 3"},
	{"ann.plan bob.abort ann.start!", "aborted 3"},
	{"ann.plan bob.abort bob.plan ann.start! bob.start workers", "aborted 3, verified 3"},
	{"ann.plan ann.start bob.pause workers ann.resume workers", "verified 3"},
	{"ann.plan ann.start bob.pause ann.pause bob.resume workers", "verified 3"},
	{"ann.plan ann.start bob.abort ann.resume!", "aborted 3"},
	{"ann.plan ann.start bob.abort ann.pause!", "aborted 3"},
	{"ann.plan ann.start bob.abort ann.abort", "aborted 3"},
	{"ann.plan ann.start bob.pause bob.abort ann.resume!", "aborted 3"},
	{"ann.plan ann.start servers bob.pause bob.hand! ann.resume workers", "verified 3"},
	{"ann.plan ann.start bob.pause bob.hand ann.resume workers", "skipped 1 verified 2"},
	{"ann.plan ann.start servers bob.pause bob.plan! ann.resume workers", "verified 3"},
	{"ann.plan ann.start servers bob.abort workers", "aborted 2 verified 1"},
	{"ann.plan ann.start workers bob.pause!", "verified 3"},
	{"ann.plan ann.start workers bob.resume!", "verified 3"},
	{"ann.plan ann.start workers bob.abort!", "verified 3"},
	{"bob.hand ann.plan ann.start bob.hand! workers", "verified 2"},
	{"ann.plan ann.start servers ann.abort bob.plan bob.start ann.resume! workers", "aborted 2 verified 1, verified 2"},
	{"bob.plan ann.plan! bob.abort ann.plan ann.start bob.start! workers", "aborted 3, verified 3"},
}

// However two operators meet, what one of them may not do is a Conflict that names what stands in the way, no step is
// released twice, the items add up, and no task is left without its investigation.
func TestConcurrentOperators(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	for _, tt := range meetings {
		m := &meeting{harness: h, tasks: h.stuck(3), plans: map[string]tasker.Operation{}}
		var planned []tasker.Operation
		for word := range strings.FieldsSeq(tt.order) {
			m.step(tt.order, word)
			for _, who := range slices.Sorted(maps.Keys(m.plans)) {
				h.consistent(m.plans[who])
				if o := m.plans[who]; !slices.ContainsFunc(planned, func(p tasker.Operation) bool { return p.UUID == o.UUID }) {
					planned = append(planned, o)
				}
			}
		}
		var got []string
		for _, o := range planned {
			got = append(got, h.sums(o))
		}
		if text := strings.Join(got, ", "); text != tt.want {
			t.Errorf("%s: the items are %s, want %s", tt.order, text, tt.want)
		}
		if n := h.Count(`SELECT count(*) FROM tasker.tasks t WHERE t.state = 'error' AND NOT EXISTS (
			SELECT FROM tasker.tasks_dlq d WHERE d.task_uuid = t.task_uuid AND d.resolution_status = 'pending')`); n != 0 {
			t.Errorf("%s: %d tasks are stuck without an investigation", tt.order, n)
		}
		for _, o := range planned { // the next meeting is about other steps
			if now := h.now(o); now.EndedAt == nil {
				_, err := h.ops.Abort(t.Context(), o.UUID, "ann")
				h.Must(err)
			}
		}
		h.work(100, succeeds)
		h.look()
	}
}

// step is one word of a meeting.
func (m *meeting) step(order, word string) {
	m.Helper()
	switch word {
	case "servers":
		m.serve()
		return
	case "workers":
		for range 4 { // a wave of one, and the rest
			m.serve()
			m.work(100, succeeds)
			m.look()
		}
		return
	}
	act, refused := strings.CutSuffix(word, "!")
	who, verb, _ := strings.Cut(act, ".")
	names, err := m.do(who, verb)
	if refused {
		m.WantCode(err, tasker.Conflict, names...)
	} else if err != nil {
		m.Fatalf("%s: %s: %v", order, word, err)
	}
}

// sums tells how many items of an operation are in each state.
func (h *harness) sums(o tasker.Operation) string {
	h.Helper()
	now := h.now(o)
	var words []string
	for _, s := range slices.Sorted(maps.Keys(now.Counts)) {
		if n := now.Counts[s]; n > 0 {
			words = append(words, string(s)+" "+string(rune('0'+n)))
		}
	}
	return strings.Join(words, " ")
}
