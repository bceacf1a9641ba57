package operation

import (
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/postgres"
)

func TestGuards(t *testing.T) {
	t.Parallel()
	const known, other, third = "known", "other", "third"
	failed := func(cause string, n int) postgres.FailureCount {
		return postgres.FailureCount{Cause: cause, Items: n, FailedAgain: n, Text: cause}
	}
	retried := func(cause string, n int) postgres.FailureCount {
		return postgres.FailureCount{Cause: cause, Items: n, Text: cause}
	}
	rest := len(tasker.DefaultWaves())
	for _, tt := range []struct {
		name      string
		tolerate  string
		wave      int
		released  int
		planned   int
		tolerated []string
		failures  []postgres.FailureCount
		want      tasker.PauseReason
	}{
		{"the canary is strict", "2%", 0, 1, 1, nil, []postgres.FailureCount{failed(known, 1)}, tasker.PausedWaveFailed},
		{"the canary may be retried", "2%", 0, 1, 1, nil, []postgres.FailureCount{retried(known, 1)}, ""},
		{"ten are strict", "2%", 1, 10, 10, nil, []postgres.FailureCount{failed(known, 1)}, tasker.PausedWaveFailed},
		{"ten, one new cause", "2%", 1, 10, 10, nil, []postgres.FailureCount{retried(other, 1)}, tasker.PausedNewCause},
		{"one of a hundred", "2%", 2, 100, 100, nil, []postgres.FailureCount{failed(known, 1)}, ""},
		{"one new cause of a hundred", "2%", 2, 100, 100, nil, []postgres.FailureCount{failed(other, 1)}, ""},
		{"two of a hundred", "2%", 2, 100, 100, nil, []postgres.FailureCount{failed(known, 1), failed(other, 1)}, ""},
		{"three of a hundred", "2%", 2, 100, 100, nil, []postgres.FailureCount{failed(known, 3)}, tasker.PausedSameCause},
		{"three new ones of a hundred", "2%", 2, 100, 100, nil, []postgres.FailureCount{failed(other, 2), failed(third, 1)}, tasker.PausedNewCause},
		{"three of several causes", "2%", 2, 100, 100, nil, []postgres.FailureCount{failed(known, 2), failed(other, 1)}, tasker.PausedWaveFailed},
		{"a wave that is not released yet", "2%", 2, 10, 100, nil, []postgres.FailureCount{failed(known, 1)}, ""},
		{"a wave that the end cuts short", "2%", 2, 30, 9, nil, []postgres.FailureCount{failed(known, 1)}, tasker.PausedWaveFailed},
		{"four of the first of the rest", "2%", rest, 20, 1, nil, []postgres.FailureCount{failed(known, 4)}, ""},
		{"five of the first of the rest", "2%", rest, 20, 1, nil, []postgres.FailureCount{failed(known, 5)}, tasker.PausedSameCause},
		{"1 % of the rest", "2%", rest, 3389, 1, nil, []postgres.FailureCount{failed(known, 34)}, ""},
		{"more than 2 % of the rest", "2%", rest, 1000, 1, nil, []postgres.FailureCount{failed(known, 21)}, tasker.PausedSameCause},
		{"the rest, each another known cause, nothing to release", "2%", rest, 20, 0, nil, []postgres.FailureCount{failed(known, 4), failed(known+"2", 4)}, ""},
		{"nothing is tolerated", "0", rest, 500, 1, nil, []postgres.FailureCount{failed(known, 1)}, tasker.PausedWaveFailed},
		{"a number", "50", 2, 100, 100, nil, []postgres.FailureCount{failed(known, 50)}, ""},
		{"more than a number", "50", 2, 100, 100, nil, []postgres.FailureCount{failed(known, 51)}, tasker.PausedSameCause},
		{"one step of a wave must succeed", "50", 1, 10, 10, nil, []postgres.FailureCount{failed(known, 10)}, tasker.PausedSameCause},
		{"also the canary", "100%", 0, 1, 1, nil, []postgres.FailureCount{failed(known, 1)}, tasker.PausedWaveFailed},
		{"a tolerated cause", "2%", 1, 10, 10, []string{known}, []postgres.FailureCount{failed(known, 10)}, ""},
		{"a tolerated new cause", "2%", 1, 10, 10, []string{other}, []postgres.FailureCount{failed(other, 10)}, ""},
		{"another cause beside a tolerated one", "2%", 1, 10, 10, []string{known}, []postgres.FailureCount{failed(known, 5), failed(other, 1)}, tasker.PausedNewCause},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tolerate, err := tasker.ParseTolerance(tt.tolerate)
			if err != nil {
				t.Fatal(err)
			}
			o := &postgres.RunningOperation{RunState: postgres.RunState{Causes: []string{known, known + "2"}}}
			o.Waves, o.Wave, o.Guards.Tolerate, o.Tolerated = tasker.DefaultWaves(), tt.wave, &tolerate, tt.tolerated
			got := checkGuards(o, postgres.RoundFailures{Causes: tt.failures, Released: tt.released, Planned: tt.planned})
			if got == nil {
				got = &tasker.OperationPause{}
			}
			if got.For != tt.want || tt.want != "" && (got.Failures == 0 || len(got.Causes) == 0 || got.FailureText == "") {
				t.Errorf("paused for %+v, want %q", got, tt.want)
			}
		})
	}
}
