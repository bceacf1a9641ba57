package polling_test

import (
	"context"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/examples/patterns/polling"
	"tasker.example/tasker/taskertest"
	"tasker.example/tasker/worker"
)

func TestMain(m *testing.M) { taskertest.Main(m) }

// A studio answers as often as it is asked, and is done at the last answer.
type studio struct{ answers []string }

func (*studio) Order(_ context.Context, _, title string) (string, error) { return "job-" + title, nil }

func (s *studio) Status(context.Context, string) (url string, err error) {
	if len(s.answers) == 0 {
		return "", polling.ErrUnknownJob
	}
	url, s.answers = s.answers[0], s.answers[1:]
	return url, nil
}

func render(t *testing.T, s *studio) (*taskertest.Workflow, *taskertest.Task) {
	t.Helper()
	w := worker.New(nil, worker.Options{})
	polling.Register(w, s)
	wf := taskertest.New(t, taskertest.Options{Templates: []string{"template.yaml"}, Worker: w})
	task := wf.Start(`{"title": "dunes"}`)
	return wf, task
}

func TestAFilmIsAskedForUntilItIsThere(t *testing.T) {
	t.Parallel()
	wf, task := render(t, &studio{answers: []string{"", "", "", "https://films.example/dunes"}})
	wf.Advance(29 * time.Minute)
	task.AssertState(tasker.TaskWaitingForRetry)
	wf.Advance(2 * time.Minute)
	task.AssertComplete()
	task.Step("fetch").AssertResult(`"https://films.example/dunes"`)
	task.AssertNoInvestigation()
}

func TestAFilmThatIsLostIsAnInvestigation(t *testing.T) {
	t.Parallel()
	wf, task := render(t, &studio{answers: []string{""}})
	wf.Advance(11 * time.Minute)
	task.AssertState(tasker.TaskError)
	task.Investigation()
}

func TestAFilmThatTakesTooLongIsAnInvestigation(t *testing.T) {
	t.Parallel()
	wf, task := render(t, &studio{answers: make([]string, 48)})
	wf.Advance(7*time.Hour + 45*time.Minute)
	task.AssertNoInvestigation()
	wf.Advance(10 * time.Minute)
	task.AssertState(tasker.TaskError)
	if f := task.Step("fetch").Failure(); f.Type != "not_ready" || f.Attempt != 48 {
		t.Errorf("the failure is %+v", f)
	}
}
