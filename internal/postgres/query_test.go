package postgres

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// A statement that fails is named before its cause.
func TestErrorsNameWhatFailed(t *testing.T) {
	t.Parallel()
	db := openNew(t, Options{})
	ended, end := context.WithCancel(t.Context())
	defer end()
	for _, tt := range []struct {
		ctx  context.Context
		fail bool
	}{{t.Context(), false}, {ended, true}} {
		if tt.fail {
			end()
		}
		_, list := db.OpenHolds(tt.ctx)
		_, value := db.CountOverdue(tt.ctx, 1)
		for what, err := range map[string]error{
			"list the open holds": list, "count overdue tasks": value, "end session": db.EndSession(tt.ctx, [32]byte{}),
		} {
			if (err != nil) != tt.fail || tt.fail && (!errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), what)) {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
}
