package workertest

import (
	"errors"
	"testing"
	"time"

	"tasker.example/tasker"
)

// failed is a handler's error with what would be reported of it.
type failed struct {
	failure tasker.Failure
	err     error
}

func (f *failed) Error() string { return f.failure.Message }
func (f *failed) Unwrap() error { return f.err }

// FailureOf returns what a worker reports for an error that [Run] returned. The
// test fails for any other error.
func FailureOf(t testing.TB, err error) tasker.Failure {
	t.Helper()
	var f *failed
	if !errors.As(err, &f) {
		t.Fatalf("got error %v, want the failure of a handler", err)
	}
	return f.failure
}

// Permanent expects a failure that is not retried.
func Permanent(t testing.TB, err error) {
	t.Helper()
	if f := FailureOf(t, err); f.Retryable {
		t.Errorf("failure %q (%s) is retryable, want a permanent one", f.Message, f.Type)
	}
}

// Retryable expects a failure that is tried again by the step's own policy.
func Retryable(t testing.TB, err error) {
	t.Helper()
	if f := FailureOf(t, err); !f.Retryable || f.RetryAfter != 0 {
		t.Errorf("failure %q (%s) has retryable %v, retry after %v; want a plain retryable one",
			f.Message, f.Type, f.Retryable, f.RetryAfter)
	}
}

// RetryAfter expects a failure that asks for a rest of just d before it is
// tried again.
func RetryAfter(t testing.TB, err error, d time.Duration) {
	t.Helper()
	if f := FailureOf(t, err); !f.Retryable || f.RetryAfter != d {
		t.Errorf("failure %q (%s) has retryable %v, retry after %v; want to be tried again after %v",
			f.Message, f.Type, f.Retryable, f.RetryAfter, d)
	}
}

// Type expects a failure of that type.
func Type(t testing.TB, err error, want string) {
	t.Helper()
	if f := FailureOf(t, err); f.Type != want {
		t.Errorf("failure %q has type %q, want %q", f.Message, f.Type, want)
	}
}
