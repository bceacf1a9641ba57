package api_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tasker.example/tasker/internal/api"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/hostguard"
	"tasker.example/tasker/internal/pgtest"
)

func TestMain(m *testing.M) {
	code := pgtest.Run(m)
	if f := flag.Lookup("test.run"); code == 0 && f.Value.String() == "" {
		for _, route := range published().unchecked() {
			fmt.Fprintln(os.Stderr, "no test has an answer of", route, "checked against the OpenAPI document")
			code = 1
		}
	}
	os.Exit(code)
}

// A harness is the API with a real engine on a database of its own.
type harness struct {
	*enginetest.Harness
	server *httptest.Server
	stop   context.CancelFunc // the server begins to stop
}

func newHarness(t *testing.T, change ...func(*api.Options)) *harness {
	t.Helper()
	return serve(t, enginetest.New(t), change...)
}

// serve serves the API of a harness until the test has ended.
func serve(t *testing.T, e *enginetest.Harness, change ...func(*api.Options)) *harness {
	t.Helper()
	h := &harness{Harness: e}
	var looks atomic.Int64
	o := api.Options{
		DB: h.DB, Engine: h.Engine, DLQ: h.DLQ, Cases: h.Cases, Version: "1.2.3", Guard: &hostguard.Guard{LoopbackOnly: true},
		Now: func() time.Time { return time.Unix(looks.Add(1), 0) }, // readiness looks each time
		Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, f := range change {
		f(&o)
	}
	var stopping context.Context
	stopping, h.stop = context.WithCancel(t.Context())
	h.server = httptest.NewServer(h.WithCases(api.New(stopping, o)))
	t.Cleanup(h.server.Close)
	client := h.server.Client()
	client.Transport = contract{t, client.Transport}
	return h
}

// A reply is an answer that was read to its end.
type reply struct {
	status int
	header http.Header
	text   string
}

// send makes a request. A body that is no string is spelled as JSON; headers are "Name: value".
func (h *harness) send(method, path string, body any, headers ...string) reply {
	h.Helper()
	var text io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		text = strings.NewReader(b)
	default:
		doc, err := json.Marshal(b)
		h.Must(err)
		text = strings.NewReader(string(doc))
	}
	ctx, cancel := context.WithTimeout(h.Context(), 30*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, h.server.URL+path, text)
	h.Must(err)
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Set(name, value)
		if name == "Host" {
			r.Host = value
		}
	}
	answer, err := h.server.Client().Do(r)
	if err != nil {
		h.Fatalf("%s %s: %v", method, path, err)
	}
	defer answer.Body.Close()
	all, err := io.ReadAll(answer.Body)
	h.Must(err)
	return reply{status: answer.StatusCode, header: answer.Header, text: string(all)}
}

// want makes a request that must have a status, and decodes its answer.
func want[T any](h *harness, status int, method, path string, body any, headers ...string) T { //nolint:revive // argument-limit: it reads as a request
	h.Helper()
	got := h.send(method, path, body, headers...)
	if got.status != status {
		h.Fatalf("%s %s: status %d, want %d: %s", method, path, got.status, status, got.text)
	}
	var v T
	if status == http.StatusNoContent {
		return v
	}
	if err := json.Unmarshal([]byte(got.text), &v); err != nil {
		h.Fatalf("%s %s: %v in %s", method, path, err, got.text)
	}
	return v
}

// A problem is the body of an error.
type problem struct {
	Error struct {
		Code    string          `json:"code"`
		Message string          `json:"message"`
		Details json.RawMessage `json:"details"`
	} `json:"error"`
}

// wantError makes a request that must fail with a status, a code and words.
func (h *harness) wantError(status int, code, words, method, path string, body any, headers ...string) problem { //nolint:revive // argument-limit: it reads as a request
	h.Helper()
	got := h.send(method, path, body, headers...)
	var p problem
	dec := json.NewDecoder(strings.NewReader(got.text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		h.Fatalf("%s %s: status %d, %v in %q", method, path, got.status, err, got.text)
	}
	if got.status != status || p.Error.Code != code {
		h.Errorf("%s %s: got %d %s, want %d %s: %s", method, path, got.status, p.Error.Code, status, code, got.text)
	}
	if !strings.Contains(got.text, words) {
		h.Errorf("%s %s: the answer does not say %q: %s", method, path, words, got.text)
	}
	if got.header.Get("Content-Type") != "application/json" {
		h.Errorf("Content-Type %q", got.header.Get("Content-Type"))
	}
	return p
}

// fingerprint returns a digest of the database.
func (h *harness) fingerprint() string {
	h.Helper()
	h.FindCases()
	return h.Contents()
}

const chain = `
namespace_name: shop
name: order
version: 1.0.0
description: two steps
input_schema: {type: object, required: [order], properties: {order: {type: integer}}}
steps:
  - {name: charge, handler: {callable: run, initialization: {currency: EUR}}, retry: {max_attempts: 1}}
  - {name: ship, handler: {callable: run}, dependencies: [charge]}
`

const waiting = `
namespace_name: shop
name: approval
version: 1.0.0
steps:
  - {name: approve, type: external}
`

func (h *harness) register(template string) {
	h.Helper()
	want[any](h, http.StatusCreated, "POST", "/v1/templates", template, "Content-Type: application/yaml")
}
