package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"mime"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/overload"
	"tasker.example/tasker/internal/payload"
)

// Limits of a request body. Documents within it have narrower limits, which the engine checks.
const (
	bodyDepth  = tasker.MaxDocumentDepth + 8 // a document and the objects around it
	bodyKeys   = 200_000                     // a thousand tasks
	bodyValues = 1_000_000
	maxFaults  = 50 // reported in one response
)

const jsonMedia = "application/json"

// read validates the body and decodes it into v.
func (x *request) read(v any) error {
	doc, _, err := x.receivedBody()
	if err != nil {
		return err
	}
	limits := payload.Limits{Bytes: len(doc), Depth: bodyDepth, Keys: bodyKeys, Values: bodyValues}
	faults, wellFormed := x.server.check(x.route.schema, doc, limits)
	switch {
	case !wellFormed:
		return tasker.Errorf(tasker.Invalid, "invalid JSON in the body: %s", faults[0]).WithDetails(faults)
	case len(faults) > 0:
		return newInvalidBodyError(faults)
	}
	if err := json.Unmarshal(doc, v); err != nil {
		return tasker.Errorf(tasker.Invalid, "invalid body: %v", err)
	}
	return nil
}

func newInvalidBodyError(faults []tasker.Fault) error {
	more := ""
	if len(faults) > 1 {
		more = fmt.Sprintf(", and %d more (see details)", len(faults)-1)
	}
	return tasker.Errorf(tasker.Invalid, "invalid body: %s%s", faults[0], more).WithDetails(faults)
}

// receivedBody is a request body, or the error that occurred while reading it.
type receivedBody struct {
	doc   []byte
	media string
	err   error
}

// receive reads the body. It keeps an error for later, so that access errors are reported first.
func (x *request) receive() {
	x.received.doc, x.received.media, x.received.err = x.readBody()
	x.received.doc = payload.TrimBOM(x.received.doc)
}

// receivedBody returns the body with its content type.
func (x *request) receivedBody() (doc []byte, media string, err error) {
	if x.received.doc == nil && x.received.err == nil { // the class of the route has no slots
		x.receive()
	}
	return x.received.doc, x.received.media, x.received.err
}

func (x *request) readBody() (doc []byte, media string, err error) {
	if media, err = x.readMedia(); err != nil {
		return nil, "", err
	}
	limit := x.route.MaxBody
	if x.r.ContentLength > limit {
		return nil, "", x.newTooLargeError()
	}
	connection := http.NewResponseController(x.w)
	deadline, _ := x.ctx.Deadline()
	_ = connection.SetReadDeadline(deadline) // an httptest recorder has none
	body := http.MaxBytesReader(x.w, x.r.Body, limit)
	doc, err = x.readAll(body)
	if err == nil {
		// The deadline would end a waiting claim. It is kept if the body broke off, because
		// net/http would wait for the rest.
		_ = connection.SetReadDeadline(time.Time{})
	}
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, "", x.newTooLargeError()
	case errors.Is(err, errNoMemory):
		return nil, "", x.rejectBody(body)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, "", statusError{http.StatusRequestTimeout, tasker.Errorf(tasker.Unavailable,
			"timeout: the body did not arrive within %s", x.route.timeout)}
	case err != nil:
		return nil, "", tasker.Errorf(tasker.Invalid, "incomplete body: %w", err)
	case len(bytes.TrimSpace(doc)) == 0:
		return nil, "", tasker.Errorf(tasker.Invalid, "missing body: send %s", strings.Join(x.route.acceptedMedia(), " or "))
	}
	return doc, media, nil
}

func (x *request) newTooLargeError() error {
	return tasker.Errorf(tasker.TooLarge, "body too large: the limit of this path is %d bytes", x.route.MaxBody)
}

func (rt *route) acceptedMedia() []string {
	if rt.Media == nil {
		return []string{jsonMedia}
	}
	return rt.Media
}

func (x *request) readMedia() (string, error) {
	given := x.r.Header.Get("Content-Type")
	media, params, err := mime.ParseMediaType(given)
	if err != nil || !slices.Contains(x.route.acceptedMedia(), media) {
		return "", tasker.Errorf(tasker.Unsupported, "unsupported Content-Type %q: send %s",
			truncate(given), strings.Join(x.route.acceptedMedia(), " or "))
	}
	if set := params["charset"]; set != "" && !strings.EqualFold(set, "utf-8") {
		return "", tasker.Errorf(tasker.Unsupported, "unsupported charset %q: send utf-8", truncate(set))
	}
	if coding := x.r.Header.Get("Content-Encoding"); coding != "" && coding != "identity" {
		return "", tasker.Errorf(tasker.Unsupported, "unsupported Content-Encoding %q: send the body uncompressed", truncate(coding))
	}
	return media, nil
}

// idempotencyKey returns the idempotency key of the request.
func (x *request) idempotencyKey() string { return x.r.Header.Get(idempotencyHeader) }

const idempotencyHeader = "Idempotency-Key"

func (x *request) checkIdempotencyKey() error {
	if given := x.r.Header.Values(idempotencyHeader); x.route.Keyed && (len(given) > 1 || len(given) == 1 && payload.IsBlank(given[0])) {
		return tasker.Errorf(tasker.Invalid, "invalid header %s: must be set once and not be empty", idempotencyHeader)
	}
	return nil
}

// checkPath validates the path parameters.
func (x *request) checkPath() error {
	for _, match := range pathParamRegexp.FindAllStringSubmatch(x.route.Path, -1) {
		check := x.checkPathText
		if match[2] != "" {
			check = func(name string) error {
				_, err := x.parsePathUUID(name)
				return err
			}
		}
		if err := check(match[1]); err != nil {
			return err
		}
	}
	return nil
}

// pathParamRegexp matches a path parameter. The second group is empty unless the parameter is a UUID.
var pathParamRegexp = regexp.MustCompile(`\{(\w*?(uuid|\bid|_id)?)\}`)

// pathUUID returns a UUID from the path, which checkPath has validated.
func (x *request) pathUUID(name string) tasker.ID {
	id, _ := x.parsePathUUID(name)
	return id
}

func (x *request) parsePathUUID(name string) (tasker.ID, error) {
	text := x.r.PathValue(name)
	id, err := parseID(text)
	if err != nil {
		return id, tasker.Errorf(tasker.Invalid, "%s in the path must be a UUID such as 0192f0c1-7a3e-7c4d-9b1e-2f5a6c7d8e9f, not %q",
			name, truncate(text)).WithDetails([]tasker.Fault{{Path: name, Message: "must be a UUID"}})
	}
	return id, nil
}

var errNotUUID = errors.New("must be a UUID such as 0192f0c1-7a3e-7c4d-9b1e-2f5a6c7d8e9f")

// parseID parses a UUID in its canonical form.
func parseID(text string) (tasker.ID, error) {
	if len(text) != len("00000000-0000-0000-0000-000000000000") {
		return tasker.ID{}, errNotUUID
	}
	id, err := uuid.Parse(text)
	if err != nil {
		return tasker.ID{}, errNotUUID
	}
	return id, nil
}

// pathText returns a path parameter, which checkPath has validated.
func (x *request) pathText(name string) string { return x.r.PathValue(name) }

func (x *request) checkPathText(name string) error {
	const most = 128
	if wrong := checkText(x.pathText(name), most); wrong != "" {
		return tasker.Errorf(tasker.Invalid, "%s in the path %s", name, wrong).
			WithDetails([]tasker.Fault{{Path: name, Message: wrong}})
	}
	return nil
}

// checkText describes what is wrong with a string from the path or the query, or returns "".
func checkText(s string, most int) string {
	switch {
	case !utf8.ValidString(s) || strings.ContainsRune(s, 0):
		return "contains NUL or is not valid UTF-8"
	case utf8.RuneCountInString(s) > most:
		return fmt.Sprintf("has %d characters; the limit is %d", utf8.RuneCountInString(s), most)
	}
	return ""
}

// nullToNil returns doc, or nil if it is null.
func nullToNil(doc json.RawMessage) json.RawMessage {
	if string(bytes.TrimSpace(doc)) == "null" {
		return nil
	}
	return doc
}

// statusError is an error with a more specific HTTP status than that of its code.
type statusError struct {
	status int
	error
}

// Unwrap implements errors.Unwrap.
func (r statusError) Unwrap() error { return r.error }

const (
	defaultRetryAfter = time.Second
	// statusClientClosedRequest is the status that is logged if the client disconnected, as nginx does.
	statusClientClosedRequest = 499
)

// respondError sends an error. Errors other than [tasker.Error] are only logged.
func respondError(w http.ResponseWriter, r *http.Request, err error) {
	code := tasker.CodeOf(err)
	if code == tasker.Internal && r.Context().Err() != nil {
		return // the client disconnected
	}
	status := apiv1.Status(code)
	if status == http.StatusInternalServerError {
		code = tasker.Internal
	}
	if narrower, ok := errors.AsType[statusError](err); ok {
		status = narrower.status
	}
	if overloaded, ok := errors.AsType[overload.Refusal](err); ok {
		status = overloaded.Status()
	}
	body := apiv1.ErrorBody{Code: string(code)}
	var known *tasker.Error
	if errors.As(err, &known) && code != tasker.Internal {
		body.Message, body.Details = known.Message, known.Details
	} else {
		id := requestLogFromContext(r.Context()).requestID
		body.Message = fmt.Sprintf("internal error: see request_id %s in the log of the server", id)
		body.Details = map[string]string{"request_id": id}
	}
	if code == tasker.Unavailable {
		w.Header().Set("Retry-After", apiv1.RetryAfter(err, defaultRetryAfter))
	}
	if err := respond(w, status, apiv1.Error{Error: body}); err != nil {
		// The only possible cause is that the details cannot be encoded.
		requestLogFromContext(r.Context()).err = errors.Join(requestLogFromContext(r.Context()).err, err)
		w.WriteHeader(http.StatusInternalServerError)
	}
}

// respond sends a small JSON document.
func respond(w http.ResponseWriter, status int, body any) error {
	doc, err := encode(body)
	if err != nil {
		return err
	}
	writeHeader(w, status, jsonMedia, len(doc))
	_, _ = w.Write(doc) // the client may be disconnected
	return nil
}

func encode(body any) ([]byte, error) {
	var doc bytes.Buffer
	enc := json.NewEncoder(&doc)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(body); err != nil {
		return nil, fmt.Errorf("encode response: %w", err)
	}
	return doc.Bytes(), nil
}

func writeHeader(w http.ResponseWriter, status int, media string, size int) {
	h := w.Header()
	h.Set("Content-Type", media)
	h.Set("Content-Length", strconv.Itoa(size))
	w.WriteHeader(status)
}

// convert converts each element of a list. The result is never nil.
func convert[T, U any](list []T, one func(T) U) []U {
	out := make([]U, len(list))
	for i, v := range list {
		out[i] = one(v)
	}
	return out
}

// orEmpty returns list, or an empty list instead of nil.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// nextCursor returns the position of the last element of a page, or nil if no page follows.
func nextCursor[T, P any](list []T, more bool, position func(T) P) *P {
	if !more {
		return nil
	}
	return new(position(list[len(list)-1]))
}

// newPagination returns the pagination of a response.
func newPagination(limit, offset, count int, more bool) apiv1.Pagination {
	return apiv1.Pagination{Limit: limit, Offset: offset, Count: count, HasMore: more}
}

// malformedError is the failure type if a worker reports an error that violates the protocol.
const malformedError = "malformed_error"

// readFailure decodes the error of a failed attempt as far as possible, so that no failure is lost.
// It ignores invalid values of retryable and retry_after_ms; doubt describes the first of them.
func readFailure(doc json.RawMessage) (f *tasker.Failure, doubt string) {
	if nullToNil(doc) == nil {
		return toFailure(apiv1.ResultError{}), ""
	}
	if message, ok := decodeString(doc); ok {
		return &tasker.Failure{Message: message, Type: malformedError, Retryable: true}, ""
	}
	if payload.KindOf(doc) != payload.Object {
		return newMalformedFailure(apiv1.ResultError{}, doc), ""
	}
	var e apiv1.ResultError
	wellFormed, said := true, map[string]string{}
	for _, m := range readMembers(payload.NewTolerantReader(doc)) {
		wrong, ok := "", false
		switch m.key {
		case "message":
			e.Message, ok = decodeString(m.value)
			wellFormed = wellFormed && ok
		case "type":
			e.Type, ok = decodeString(m.value)
			wellFormed = wellFormed && (ok || nullToNil(m.value) == nil)
		case "context":
			e.Context = nullToNil(m.value)
		case "fingerprint":
			e.Fingerprint, _ = decodeString(m.value) // ignored unless it is a string
		case "retryable":
			e.Retryable, wrong = readRetryable(m.value)
		case "retry_after_ms":
			e.RetryAfterMS, wrong = readRetryAfter(m.value)
		}
		if _, twice := said[m.key]; twice && (m.key == "retryable" || m.key == "retry_after_ms") {
			wrong = "duplicate key"
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
		return newMalformedFailure(e, doc), doubt
	}
	return toFailure(e), ""
}

// newMalformedFailure returns a failure that contains the invalid error as its context.
func newMalformedFailure(e apiv1.ResultError, doc json.RawMessage) *tasker.Failure {
	f := toFailure(e)
	f.Type = malformedError
	f.Context = payload.CleanJSON(doc, payload.Limits{})
	if f.Message == "" {
		f.Message = string(doc)
	}
	return f
}

func readRetryable(doc json.RawMessage) (*bool, string) {
	if nullToNil(doc) == nil {
		return nil, ""
	}
	yes := string(doc) == "true"
	if !yes && string(doc) != "false" {
		return nil, "must be true or false, not " + string(payload.KindOf(doc))
	}
	return &yes, ""
}

func readRetryAfter(doc json.RawMessage) (int64, string) {
	if nullToNil(doc) == nil {
		return 0, ""
	}
	text := string(doc)
	if payload.KindOf(doc) != payload.Number {
		return 0, "must be a number, not " + string(payload.KindOf(doc))
	}
	if payload.CheckNumber(text, payload.Limits{}) != "" {
		return 0, "must be a whole number of milliseconds, at most 9223372036854775807"
	}
	ms, ok := new(big.Rat).SetString(text)
	switch {
	case !ok || !ms.IsInt() || !ms.Num().IsInt64():
		return 0, "must be a whole number of milliseconds, at most 9223372036854775807, not " + truncate(text)
	case strings.HasPrefix(text, "-") && ms.Sign() < 0:
		return 0, "must be at least 0, not " + truncate(text)
	}
	return ms.Num().Int64(), ""
}

// maxRetryAfter limits the delay that a failure can request.
const maxRetryAfter = 365 * 24 * time.Hour

func toFailure(e apiv1.ResultError) *tasker.Failure {
	retryAfter := min(max(e.RetryAfterMS, 0), int64(math.MaxInt64/time.Millisecond))
	return &tasker.Failure{
		Message: e.Message, Type: e.Type, Retryable: e.Retryable == nil || *e.Retryable,
		RetryAfter: min(time.Duration(retryAfter)*time.Millisecond, maxRetryAfter), Context: nullToNil(e.Context), Fingerprint: e.Fingerprint,
	}
}
