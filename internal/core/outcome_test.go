package core

import (
	"testing"
	"time"

	"tasker.example/tasker"
)

func TestBackoff(t *testing.T) {
	t.Parallel()
	policy := func(b tasker.Backoff, jitter bool) tasker.Retry {
		return tasker.Retry{Backoff: b, BaseMS: 1000, MaxBackoffMS: 30_000, Jitter: jitter}
	}
	for name, tt := range map[string]struct {
		policy   tasker.Retry
		attempts int
		jitter   float64
		want     time.Duration
	}{
		"exponential, first":        {policy(tasker.ExponentialBackoff, false), 1, 0, time.Second},
		"exponential, fourth":       {policy(tasker.ExponentialBackoff, false), 4, 0, 8 * time.Second},
		"exponential, at its bound": {policy(tasker.ExponentialBackoff, false), 6, 0, 30 * time.Second},
		"exponential, very many":    {policy(tasker.ExponentialBackoff, false), 10_000, 0, 30 * time.Second},
		"linear":                    {policy(tasker.LinearBackoff, false), 4, 0, 4 * time.Second},
		"constant":                  {policy(tasker.ConstantBackoff, false), 4, 0, time.Second},
		"no attempt":                {policy(tasker.LinearBackoff, false), 0, 0, time.Second},
		"jitter":                    {policy(tasker.ConstantBackoff, true), 4, 0.5, 1125 * time.Millisecond},
		"jitter, at most":           {policy(tasker.ConstantBackoff, true), 3, 1, 1250 * time.Millisecond},
		"a base of zero":            {tasker.Retry{Backoff: tasker.ConstantBackoff, MaxBackoffMS: 30_000}, 3, 0, 0},
		"a very large base":         {tasker.Retry{Backoff: tasker.ExponentialBackoff, BaseMS: 86_400_000, MaxBackoffMS: 30_000}, 1000, 0, 30 * time.Second},
		"jitter is off":             {policy(tasker.ConstantBackoff, false), 4, 0.5, time.Second},
		"jitter above the bound":    {policy(tasker.ExponentialBackoff, true), 6, 1, 37500 * time.Millisecond},
	} {
		if got := Backoff(tt.policy, tt.attempts, tt.jitter); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

// fail returns a step whose attempt has failed with the outcome.
func fail(t *testing.T, s Step, o Outcome) *Step {
	t.Helper()
	s.ID, s.State, s.Fence = tasker.ID{1}, tasker.StepInProgress, 3
	s.MarkLoaded()
	c := Begin(&Task{Steps: []*Step{&s}, Whole: true}, time.Unix(0, 0))
	o.StepUUID, o.From, o.Fence, o.Event = s.ID, tasker.StepInProgress, 3, Fail
	if !c.Conclude(o) || c.Err() != nil {
		t.Fatalf("the failure was refused: %v", c.Err())
	}
	return &s
}

func TestRetries(t *testing.T) {
	t.Parallel()
	retry := tasker.Retry{Retryable: true, MaxAttempts: 3, Backoff: tasker.ConstantBackoff, BaseMS: 1000, MaxBackoffMS: 1000}
	never := retry
	never.Retryable = false
	for name, tt := range map[string]struct {
		step     Step
		outcome  Outcome
		after    time.Duration // 0: not retried
		attempts int
	}{
		"retryable":                          {Step{Retry: retry, Attempts: 2}, Outcome{Retryable: true}, time.Second, 2},
		"later, as the handler asks":         {Step{Retry: retry, Attempts: 1}, Outcome{Retryable: true, RetryAfter: time.Minute}, time.Minute, 1},
		"not before its backoff":             {Step{Retry: retry, Attempts: 1}, Outcome{Retryable: true, RetryAfter: time.Millisecond}, time.Second, 1},
		"permanent":                          {Step{Retry: retry, Attempts: 1}, Outcome{}, 0, 1},
		"the last attempt":                   {Step{Retry: retry, Attempts: 3}, Outcome{Retryable: true}, 0, 3},
		"a step that is never retried":       {Step{Retry: never, Attempts: 1}, Outcome{Retryable: true}, 0, 1},
		"the last attempt, which counts not": {Step{Retry: retry, Attempts: 3}, Outcome{Retryable: true, Uncounted: true}, time.Second, 2},
	} {
		s := fail(t, tt.step, tt.outcome)
		if retried := s.RetryAt != nil; retried != (tt.after > 0) || retried && s.RetryAt.Sub(time.Unix(0, 0)) != tt.after || s.Attempts != tt.attempts || s.FailedForGood() == retried {
			t.Errorf("%s: retried at %v after %d attempts, want after %s and %d", name, s.RetryAt, s.Attempts, tt.after, tt.attempts)
		}
	}
}

func TestFailuresHaveTheirAttempt(t *testing.T) {
	t.Parallel()
	if got, want := string(fail(t, Step{Attempts: 7}, Outcome{Body: []byte(`{"message":"no"}`)}).Stored.Error), `{"message":"no","attempt":7}`; got != want {
		t.Errorf("the stored failure is %s, want %s", got, want)
	}
}

func TestRestingState(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		counts Counts
		phase  tasker.TaskPhase
		want   tasker.TaskState
	}{
		"all done":             {Counts{}, "", tasker.TaskComplete},
		"all undone":           {Counts{}, tasker.Compensating, tasker.TaskCancelled},
		"one active, one lost": {Counts{Open: 2, Active: 1, Failed: 1}, "", tasker.TaskStepsInProcess},
		"a retry, one lost":    {Counts{Open: 2, Retrying: 1, Failed: 2}, "", tasker.TaskWaitingForRetry},
		"one lost":             {Counts{Open: 2, Failed: 1}, "", tasker.TaskError},
		"an undo has failed":   {Counts{Open: 1, Failed: 1}, tasker.Compensating, tasker.TaskError},
		"one waits":            {Counts{Open: 1}, "", tasker.TaskWaitingForDependencies},
	} {
		if got := tt.counts.RestingState(tt.phase); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

func TestRestingStateOfReadSteps(t *testing.T) {
	t.Parallel()
	now := time.Now()
	failed, waits := tasker.Step{State: tasker.StepError}, tasker.Step{State: tasker.StepPending}
	mapStep := func(n tasker.ItemCounts) []tasker.Step {
		return []tasker.Step{{State: tasker.StepPending, Items: &n}, failed}
	}
	for name, tt := range map[string]struct {
		steps []tasker.Step
		want  tasker.TaskState
	}{
		"a retry":              {[]tasker.Step{failed, {State: tasker.StepError, NextRetryAt: &now}}, tasker.TaskWaitingForRetry},
		"a decision is due":    {[]tasker.Step{failed, {State: tasker.StepPending, DecisionDue: true}}, tasker.TaskStepsInProcess},
		"an item is enqueued":  {mapStep(tasker.ItemCounts{Enqueued: 1}), tasker.TaskStepsInProcess},
		"an item is retried":   {mapStep(tasker.ItemCounts{Retrying: 1}), tasker.TaskWaitingForRetry},
		"an item has failed":   {mapStep(tasker.ItemCounts{}), tasker.TaskError},
		"a step waits":         {[]tasker.Step{{State: tasker.StepComplete}, waits}, tasker.TaskWaitingForDependencies},
		"a step was undone":    {[]tasker.Step{{State: tasker.StepCancelled}, {State: tasker.StepComplete, Name: "undo:a"}}, tasker.TaskCancelled},
		"all steps have ended": {[]tasker.Step{{State: tasker.StepSkipped}, {State: tasker.StepResolvedManually}}, tasker.TaskComplete},
	} {
		if got := RestingState(tt.steps); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

// A large task is settled without a count of its steps as long as a loaded step is active.
func TestCountOfALargeTask(t *testing.T) {
	t.Parallel()
	done, queued := &Step{State: tasker.StepComplete}, &Step{State: tasker.StepEnqueued}
	if _, known := (&Task{Steps: []*Step{done}}).Count(); known {
		t.Error("nothing is active, but the other steps do not matter")
	}
	if n, known := (&Task{Steps: []*Step{done, queued}}).Count(); !known || n.RestingState("") != tasker.TaskStepsInProcess {
		t.Errorf("counted %+v, known: %v", n, known)
	}
}
