package workertest

import (
	"errors"
	"testing"
	"time"

	"tasker.example/tasker"
)

// handlerError is the error of a handler with its failure.
type handlerError struct {
	failure tasker.Failure
	err     error
}

func (f *handlerError) Error() string { return f.failure.Message }
func (f *handlerError) Unwrap() error { return f.err }

// FailureOf returns the failure that a worker reports for an error of [Run]. The test fails for
// any other error.
func FailureOf(t testing.TB, err error) tasker.Failure {
	t.Helper()
	var f *handlerError
	if !errors.As(err, &f) {
		t.Fatalf("got error %v, want a handler failure", err)
	}
	return f.failure
}

// Permanent fails the test unless the failure is permanent.
func Permanent(t testing.TB, err error) {
	t.Helper()
	if f := FailureOf(t, err); f.Retryable {
		t.Errorf("failure %q (%s): got a retryable failure, want a permanent one", f.Message, f.Type)
	}
}

// Retryable fails the test unless the failure is retried by the policy of the step.
func Retryable(t testing.TB, err error) {
	t.Helper()
	if f := FailureOf(t, err); !f.Retryable || f.RetryAfter != 0 {
		t.Errorf("failure %q (%s): got retryable %v, retry after %v; want a plain retryable failure",
			f.Message, f.Type, f.Retryable, f.RetryAfter)
	}
}

// RetryAfter fails the test unless the failure requests a delay of exactly d.
func RetryAfter(t testing.TB, err error, d time.Duration) {
	t.Helper()
	if f := FailureOf(t, err); !f.Retryable || f.RetryAfter != d {
		t.Errorf("failure %q (%s): got retryable %v, retry after %v; want a retry after %v",
			f.Message, f.Type, f.Retryable, f.RetryAfter, d)
	}
}

// Type fails the test unless the failure has this type.
func Type(t testing.TB, err error, want string) {
	t.Helper()
	if f := FailureOf(t, err); f.Type != want {
		t.Errorf("failure %q: got type %q, want %q", f.Message, f.Type, want)
	}
}
