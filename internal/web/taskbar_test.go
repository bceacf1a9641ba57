package web

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// after is an instant so many seconds after noon.
func after(seconds float64) time.Time { return noon.Add(time.Duration(seconds * float64(time.Second))) }

func TestBarAxisSpansTheTask(t *testing.T) {
	t.Parallel()
	soon, later := after(10), after(1000)
	for _, tt := range []struct {
		name     string
		task     tasker.Task
		from, to float64
		length   string
	}{
		{"of one under way, until now", tasker.Task{State: tasker.TaskStepsInProcess}, 0, 100, "1 min"},
		{"of one that stands still, until now", tasker.Task{State: tasker.TaskError, StateSince: after(5)}, 0, 100, "1 min"},
		{"of a complete one, until its end", tasker.Task{State: tasker.TaskComplete, StateSince: after(5)}, 0, 5, "5.0 s"},
		{"of a cancelled one, until its end", tasker.Task{State: tasker.TaskCancelled, StateSince: after(0.25)}, 0, 0.25, "250 ms"},
		{"of one that started later, from its start", tasker.Task{State: tasker.TaskStepsInProcess, StartAt: &soon}, 10, 100, "1 min"},
		{"of one that has not started, from its creation", tasker.Task{State: tasker.TaskPending, StartAt: &later}, 0, 100, "1 min"},
		{"of one that ended as it began", tasker.Task{State: tasker.TaskComplete, StateSince: noon}, 0, 0.001, "1 ms"},
		{"of one whose clock is ahead", tasker.Task{State: tasker.TaskComplete, StateSince: after(-3)}, 0, 0.001, "1 ms"},
		{"of one cancelled before its start", tasker.Task{State: tasker.TaskCancelled, StateSince: after(5), StartAt: &soon}, 0, 5, "5.0 s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.task.CreatedAt = noon
			a := newAxis(tt.task, nil, after(100))
			if !a.From.Equal(after(tt.from)) || !a.To.Equal(after(tt.to)) || a.Length != tt.length {
				t.Errorf("from %s to %s, %s", a.From, a.To, a.Length)
			}
		})
	}
}

// Of a history that is cut, the axis and the words begin where it does.
func TestBarAxisBeginsWithATruncatedHistory(t *testing.T) {
	t.Parallel()
	step := tasker.Step{UUID: tasker.NewID(), CreatedAt: noon, State: tasker.StepComplete}
	history := make([]tasker.Transition, maxHistory)
	for i := range history {
		history[i] = tasker.Transition{CreatedAt: after(float64(4000 - i))}
	}
	oldest := &history[len(history)-1]
	oldest.StepUUID, oldest.From, oldest.To = &step.UUID, "in_progress", "complete"
	idle := tasker.Step{UUID: tasker.NewID(), CreatedAt: noon, State: tasker.StepEnqueued}
	a := newAxis(tasker.Task{CreatedAt: noon, State: tasker.TaskStepsInProcess}, history, after(4001))
	if !a.From.Equal(oldest.CreatedAt) {
		t.Errorf("from %s, want %s", a.From, oldest.CreatedAt)
	}
	bars := a.newBars([]tasker.Step{step, idle}, history)
	if got := bars[step.UUID].Words; got != "" {
		t.Errorf("what came before is said: %s", got)
	}
	if got := bars[idle.UUID].Words; got != "waited 33 min" {
		t.Errorf("it %s, longer than the axis is", got)
	}
}

// moved is a move of a step, so many seconds after noon.
func moved(step tasker.ID, seconds float64, from, to string) tasker.Transition {
	return tasker.Transition{StepUUID: &step, CreatedAt: after(seconds), From: from, To: to}
}

func TestBarShowsTheStepHistory(t *testing.T) {
	t.Parallel()
	id := tasker.NewID()
	at := func(seconds float64, from, to string) tasker.Transition { return moved(id, seconds, from, to) }
	retry := after(120)
	for _, tt := range []struct {
		name  string
		state tasker.StepState
		retry *time.Time
		moves []tasker.Transition // oldest first
		spans string              // kind, from–to in seconds of a hundred
		fails string
		words string
	}{
		{"waits for others", tasker.StepPending, nil, nil, "", "", ""},
		{"is in the queue", tasker.StepEnqueued, nil, []tasker.Transition{at(10, "pending", "enqueued")}, "idle 10–100", "", "waited 1 min"},
		{
			"runs", tasker.StepInProgress, nil, []tasker.Transition{at(10, "pending", "enqueued"), at(20, "enqueued", "in_progress")},
			"idle 10–20, busy 20–100", "", "waited 10 s, ran 1 min",
		},
		{
			"is complete", tasker.StepComplete, nil,
			[]tasker.Transition{at(10, "pending", "enqueued"), at(20, "enqueued", "in_progress"), at(25, "in_progress", "complete")},
			"idle 10–20, busy 20–25", "", "waited 10 s, ran 5.0 s",
		},
		{
			"failed for good", tasker.StepError, nil,
			[]tasker.Transition{at(10, "pending", "enqueued"), at(20, "enqueued", "in_progress"), at(25, "in_progress", "error")},
			"idle 10–20, busy 20–25", "25", "waited 10 s, ran 5.0 s, 1 failed attempt",
		},
		{
			"is tried again later", tasker.StepError, &retry,
			[]tasker.Transition{at(0, "pending", "enqueued"), at(0, "enqueued", "in_progress"), at(50, "in_progress", "error")},
			"idle 0–1, busy 0–50, warn 50–100", "50", "ran 50 s, waited for retries 50 s, 1 failed attempt",
		},
		{
			"worked at the third attempt", tasker.StepComplete, nil,
			[]tasker.Transition{
				at(10, "pending", "enqueued"), at(20, "enqueued", "in_progress"), at(30, "in_progress", "error"),
				at(40, "error", "enqueued"), at(45, "enqueued", "in_progress"), at(50, "in_progress", "error"),
				at(60, "error", "enqueued"), at(65, "enqueued", "in_progress"), at(80, "in_progress", "complete"),
			},
			"idle 10–20, busy 20–30, warn 30–40, idle 40–45, busy 45–50, warn 50–60, idle 60–65, busy 65–80", "30 50",
			"waited 20 s, ran 30 s, waited for retries 20 s, 2 failed attempts",
		},
		{
			"was reported and waits to be taken up", tasker.StepEnqueuedForOrchestration, nil,
			[]tasker.Transition{at(10, "pending", "enqueued"), at(20, "enqueued", "in_progress"), at(25, "in_progress", "enqueued_for_orchestration")},
			"idle 10–20, busy 20–25, idle 25–100", "", "waited 1 min, ran 5.0 s",
		},
		{
			"was cancelled", tasker.StepCancelled, nil,
			[]tasker.Transition{at(10, "pending", "enqueued"), at(20, "enqueued", "cancelled")}, "idle 10–20", "", "waited 10 s",
		},
		{"was resolved before it began", tasker.StepResolvedManually, nil, []tasker.Transition{at(10, "pending", "resolved_manually")}, "", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a := newAxis(tasker.Task{CreatedAt: noon, State: tasker.TaskStepsInProcess}, nil, after(100))
			newest := slices.Clone(tt.moves)
			slices.Reverse(newest)
			step := tasker.Step{UUID: id, CreatedAt: noon, State: tt.state, NextRetryAt: tt.retry}
			b := a.newBars([]tasker.Step{step}, append(newest, moved(tasker.NewID(), 1, "enqueued", "error")))[id]
			var spans, fails []string
			for _, s := range b.Spans {
				spans = append(spans, fmt.Sprintf("%s %.0f–%.0f", s.Kind, 100*s.X/barWidth, 100*(s.X+s.Width)/barWidth))
			}
			for _, x := range b.Failed {
				fails = append(fails, fmt.Sprintf("%.0f", 100*x/barWidth))
			}
			if got := strings.Join(spans, ", "); got != tt.spans {
				t.Errorf("spans %s, want %s", got, tt.spans)
			}
			if got := strings.Join(fails, " "); got != tt.fails {
				t.Errorf("failed at %s, want %s", got, tt.fails)
			}
			if b.Words != tt.words {
				t.Errorf("it says %q, want %q", b.Words, tt.words)
			}
		})
	}
}

// However short something was, or wherever a clock stood, it is seen and stays inside.
func TestSpansStayInTheBar(t *testing.T) {
	t.Parallel()
	id := tasker.NewID()
	a := newAxis(tasker.Task{CreatedAt: noon, State: tasker.TaskComplete, StateSince: after(100)}, nil, after(100))
	for _, from := range []float64{-50, 0, 0.001, 50, 99.9999, 100, 150} {
		history := []tasker.Transition{moved(id, from+0.0001, "in_progress", "error"), moved(id, from, "enqueued", "in_progress")}
		b := a.newBars([]tasker.Step{{UUID: id, CreatedAt: noon, State: tasker.StepError}}, history)[id]
		for _, s := range b.Spans {
			if s.X < 0 || s.Width < leastBar || s.X+s.Width > barWidth+1e-9 || s.Y < 0 || s.Y+s.Height > barHeight {
				t.Errorf("after %v s: %+v", from, s)
			}
		}
		for _, x := range b.Failed {
			if x < 0 || x > barWidth {
				t.Errorf("after %v s: failed at %v", from, x)
			}
		}
		if strings.Contains(b.Words, "-") {
			t.Errorf("after %v s: it says %q", from, b.Words)
		}
	}
}
