package cases_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tasker.example/tasker"
)

var acts = flag.Int("acts", 120, "acts of the model test")

// modelCauses are messages of three causes; each gets the number of a task.
var modelCauses = []string{"HTTP 503 from https://pay.example/charge/ORDER-%d", "HTTP 404 from https://pay.example/charge/ORDER-%d", "stock of order %d is empty"}

// A modelTask is a task with an open investigation.
type modelTask struct {
	cause    int
	progress tasker.Progress
	done     bool // its step is complete
}

// A model is what cases must be, told plainly.
type model struct {
	*harness
	random *rand.Rand
	tasks  map[tasker.ID]*modelTask
	ids    map[int]tasker.ID // the case that a cause had first
	of     map[int]int       // the cause whose case a cause belongs to
	merged map[int]int
	n      int
	told   []string
}

// Whatever people and workers do, in whatever order, the counts of cases are those of a
// plain model, and a case is resolved when nothing of it is open.
func TestCasesAgreeWithAModel(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	m := &model{
		harness: newHarness(t), random: rand.New(rand.NewPCG(seed, 0)),
		tasks: map[tasker.ID]*modelTask{}, ids: map[int]tasker.ID{}, of: map[int]int{}, merged: map[int]int{},
	}
	for range *acts {
		m.act()
		m.findTwice()
		if diff := cmp.Diff(m.want(), m.got()); diff != "" {
			t.Fatalf("seed %d, after %q: %s", seed, m.told[max(0, len(m.told)-12):], diff)
		}
	}
}

// findTwice has two servers find the cases at once.
func (m *model) findTwice() {
	m.Helper()
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			if _, err := m.Cases.Classify(m.Context()); err != nil {
				m.Error(err)
			}
			if err := m.Cases.UpdateStates(m.Context()); err != nil {
				m.Error(err)
			}
		})
	}
	both.Wait()
	m.FindCases() // what one left to the other
}

func (m *model) say(format string, args ...any) {
	m.told = append(m.told, fmt.Sprintf(format, args...))
}

// any returns a task that fits, or nothing.
func (m *model) any(fits func(*modelTask) bool) (tasker.ID, *modelTask) {
	for id, task := range m.tasks {
		if fits(task) {
			return id, task
		}
	}
	return tasker.ID{}, nil
}

func (m *model) act() {
	m.Helper()
	switch m.random.IntN(10) {
	case 0, 1, 2:
		m.create()
	case 3, 4:
		if id, task := m.any(func(t *modelTask) bool { return t.progress != tasker.Proving }); task != nil {
			m.say("reset %s", id)
			m.operate(id, tasker.ResetForRetry)
			task.progress = tasker.Proving
		}
	case 5, 6:
		m.work()
	case 7:
		if id, task := m.any(func(t *modelTask) bool { return t.done }); task != nil {
			m.say("end %s", id)
			m.end(id)
			delete(m.tasks, id)
		}
	case 8:
		m.merge()
	case 9:
		m.unmerge()
	}
}

func (m *model) message() (cause int, text string) {
	m.n++
	cause = m.random.IntN(len(modelCauses))
	return cause, fmt.Sprintf(modelCauses[cause], 10_000+m.n)
}

// create has a new task fail. What is enqueued besides is done first, so that the claim is of it.
func (m *model) create() {
	m.Helper()
	for m.work() {
	}
	id := m.Create("order")
	cause, text := m.message()
	m.say("create %s, cause %d", id, cause)
	m.failed(m.claim(1)[0], text)
	m.tasks[id] = &modelTask{cause: cause, progress: tasker.Waiting}
	if _, ok := m.ids[cause]; !ok {
		m.FindCases()
		m.remember(cause, id)
	}
}

// remember learns which case a cause has that is seen for the first time.
func (m *model) remember(cause int, task tasker.ID) {
	m.Helper()
	var id tasker.ID
	m.Must(m.Admin().QueryRow(m.Context(), `
		SELECT f.home_case_id FROM tasker.tasks_dlq d JOIN tasker.case_members m USING (dlq_entry_uuid) JOIN tasker.case_fingerprints f USING (fingerprint)
		WHERE d.task_uuid = $1 AND d.resolution_status = 'pending'`, task).Scan(&id))
	m.ids[cause], m.of[cause] = id, cause
}

// work has a worker do the next step, which fails or not, and reports whether there was one.
func (m *model) work() bool {
	m.Helper()
	list := m.claim(1)
	if len(list) == 0 {
		return false
	}
	a := list[0]
	task := m.tasks[a.TaskUUID]
	if a.Name != "charge" || task == nil || m.random.IntN(2) == 0 {
		m.say("complete %s of %s", a.Name, a.TaskUUID)
		m.report(tasker.Outcome{Lease: a.Lease(), Success: true, Result: []byte(`{}`)})
		if task != nil {
			task.done = true
		}
		return true
	}
	cause, text := m.message()
	m.say("fail %s again, cause %d", a.TaskUUID, cause)
	m.failed(a, text)
	task.cause, task.progress = cause, tasker.FailedAgain
	if _, ok := m.ids[cause]; !ok {
		m.FindCases()
		m.remember(cause, a.TaskUUID)
	}
	return true
}

func (m *model) merge() {
	m.Helper()
	from, into := m.random.IntN(len(modelCauses)), m.random.IntN(len(modelCauses))
	_, knowsFrom := m.ids[from]
	_, knowsInto := m.ids[into]
	_, fromMerged := m.merged[from]
	_, intoMerged := m.merged[into]
	if from == into || !knowsFrom || !knowsInto || fromMerged || intoMerged {
		return
	}
	m.say("merge %d into %d", from, into)
	m.Must(m.Cases.Merge(m.Context(), m.ids[from], m.ids[into], "ann", "one"))
	m.merged[from] = into
	for cause, of := range m.of {
		if of == from {
			m.of[cause] = into
		}
	}
}

func (m *model) unmerge() {
	m.Helper()
	for cause := range m.merged {
		m.say("unmerge %d", cause)
		m.Must(m.Cases.Unmerge(m.Context(), m.ids[cause], "ann", "two"))
		delete(m.merged, cause)
		for other := range m.of {
			if m.root(other) == cause {
				m.of[other] = cause
			}
		}
		return
	}
}

// root is the cause whose case a cause belongs to by the merges that were not taken back.
func (m *model) root(cause int) int {
	for {
		into, merged := m.merged[cause]
		if !merged {
			return cause
		}
		cause = into
	}
}

// want and got are the counts of the open cases: waiting, proving, failed again.
func (m *model) want() map[tasker.ID][3]int64 {
	all := map[tasker.ID][3]int64{}
	for _, task := range m.tasks {
		id := m.ids[m.of[task.cause]]
		c := all[id]
		switch task.progress {
		case tasker.Waiting:
			c[0]++
		case tasker.Proving:
			c[1]++
		case tasker.FailedAgain:
			c[2]++
		case tasker.Recovered: // nothing here stands still
		}
		all[id] = c
	}
	return all
}

func (m *model) got() map[tasker.ID][3]int64 {
	m.Helper()
	all := map[tasker.ID][3]int64{}
	for _, c := range m.list(tasker.CaseFilter{}) {
		all[c.ID] = [3]int64{c.Waiting, c.Proving, c.FailedAgain}
		if c.State == tasker.CaseResolved || c.Entries != c.Waiting+c.Proving+c.FailedAgain+c.Recovered {
			m.Errorf("case %+v", c)
		}
	}
	for _, c := range m.list(tasker.CaseFilter{CaseState: tasker.CaseResolved}) {
		if _, open := all[c.ID]; open {
			m.Errorf("case %s is resolved and open", c.ID)
		}
	}
	return all
}
