package api

import (
	"encoding/json"
	"math"
	"math/big"
	"strings"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/payload"
)

// maxMalformed is how much of an error that nobody understands is kept.
const maxMalformed = 8 << 10

// malformedError is the type of a failure whose error is not as the protocol says.
const malformedError = "malformed_error"

// readFailure makes the best of the error of a failure: a report of what went wrong
// must not be lost for its form. What decides whether and when to try again is
// either understood or left to the step's policy; doubt says what was not.
func readFailure(doc json.RawMessage) (f *tasker.Failure, doubt string) {
	if given(doc) == nil {
		return failureOf(apiv1.ResultError{}), ""
	}
	if message, ok := text(doc); ok {
		return &tasker.Failure{Message: message, Type: malformedError, Retryable: true}, ""
	}
	if payload.KindOf(doc) != payload.Object {
		return malformed(apiv1.ResultError{}, doc), ""
	}
	var e apiv1.ResultError
	wellFormed, said := true, map[string]string{}
	for _, m := range readMembers(payload.NewTolerantReader(doc)) {
		wrong, ok := "", false
		switch m.key {
		case "message":
			e.Message, ok = text(m.value)
			wellFormed = wellFormed && ok
		case "type":
			e.Type, ok = text(m.value)
			wellFormed = wellFormed && (ok || given(m.value) == nil)
		case "context":
			e.Context = given(m.value)
		case "retryable":
			e.Retryable, wrong = readRetryable(m.value)
		case "retry_after_ms":
			e.RetryAfterMS, wrong = readRetryAfter(m.value)
		}
		if _, twice := said[m.key]; twice && (m.key == "retryable" || m.key == "retry_after_ms") {
			wrong = "the key is there twice"
		}
		said[m.key] = wrong
		if wrong != "" && doubt == "" {
			doubt = ".error." + m.key + ": " + wrong
		}
	}
	if said["retryable"] != "" {
		e.Retryable = nil
	}
	if said["retry_after_ms"] != "" {
		e.RetryAfterMS = 0
	}
	if !wellFormed || doubt != "" {
		return malformed(e, doc), doubt
	}
	return failureOf(e), ""
}

// malformed keeps the document of an error as the evidence of a failure.
func malformed(e apiv1.ResultError, doc json.RawMessage) *tasker.Failure {
	f := failureOf(e)
	f.Type = malformedError
	f.Context = payload.CleanJSON(doc, payload.Limits{})
	if f.Message == "" {
		f.Message = payload.CleanText(string(doc), maxMalformed)
	}
	return f
}

func readRetryable(doc json.RawMessage) (*bool, string) {
	if given(doc) == nil {
		return nil, ""
	}
	yes := string(doc) == "true"
	if !yes && string(doc) != "false" {
		return nil, "must be true or false, not " + string(payload.KindOf(doc))
	}
	return &yes, ""
}

func readRetryAfter(doc json.RawMessage) (int64, string) {
	if given(doc) == nil {
		return 0, ""
	}
	text := string(doc)
	if payload.KindOf(doc) != payload.Number {
		return 0, "must be a number, not " + string(payload.KindOf(doc))
	}
	if payload.NumberFault(text, payload.Limits{}) != "" {
		return 0, "must be a whole number of milliseconds, at most 9223372036854775807"
	}
	ms, ok := new(big.Rat).SetString(text)
	switch {
	case !ok || !ms.IsInt() || !ms.Num().IsInt64():
		return 0, "must be a whole number of milliseconds, at most 9223372036854775807, not " + shorten(text)
	case strings.HasPrefix(text, "-") && ms.Sign() < 0:
		return 0, "must be at least 0, not " + shorten(text)
	}
	return ms.Num().Int64(), ""
}

// maxRetryAfter bounds how long a failure may make a step rest.
const maxRetryAfter = 365 * 24 * time.Hour

func failureOf(e apiv1.ResultError) *tasker.Failure {
	retryAfter := min(max(e.RetryAfterMS, 0), int64(math.MaxInt64/time.Millisecond))
	return &tasker.Failure{
		Message: e.Message, Type: e.Type, Retryable: e.Retryable == nil || *e.Retryable,
		RetryAfter: min(time.Duration(retryAfter)*time.Millisecond, maxRetryAfter), Context: given(e.Context),
	}
}
