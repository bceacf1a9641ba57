package redact

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func rules(t *testing.T, keys, paths string) Rules {
	t.Helper()
	r, err := New(keys, paths)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestKeys(t *testing.T) {
	r := rules(t, DefaultKeys, "")
	for key, want := range map[string]bool{
		"password": true, "Password": true, "db_password": true, "passwordHash": true, "PASS-WORD": true, "client secret": true,
		"access_token": true, "token": true, "X-Api-Key": true, "aws_secret_access_key": true, "Authorization": true, "IBAN": true,
		"Set-Cookie": true, "ssn": true,
		"tokens_used": false, "name": false, "session": false, "className": false, "card": false, "pass": false, "": false, "caliban": false,
	} {
		if got := r.hides(key); got != want {
			t.Errorf("%q is hidden: %v, want %v", key, got, want)
		}
	}
	if (Rules{}).hides("password") {
		t.Error("the zero value hides something")
	}
}

// What the database looks for first must be part of every key that is hidden.
func TestWords(t *testing.T) {
	r := rules(t, "*pass*word*, API-Key, token, *token", "")
	if diff := cmp.Diff([]string{"pass", "apikey", "token"}, r.Words()); diff != "" {
		t.Error(diff)
	}
	if got := r.Pattern(); got != "^(.*pass.*word.*|apikey|token|.*token)$" {
		t.Errorf("pattern %s", got)
	}
	if got := (Rules{}).Pattern(); got != "^$" || len((Rules{}).Words()) != 0 {
		t.Errorf("pattern of nothing: %s", got)
	}
}

func TestPaths(t *testing.T) {
	r := rules(t, "", "$.task.context.a_b, $.steps[*].results['x, y'].*,$.template.c-d")
	want := [][]string{{"task", "context", "a_b"}, {"steps", "*", "results", "x, y", "*"}, {"template", "c-d"}}
	if diff := cmp.Diff(want, r.Paths()); diff != "" {
		t.Error(diff)
	}
}

func TestWhatIsRefused(t *testing.T) {
	for _, tt := range []struct{ keys, paths string }{
		{keys: "*"}, {keys: "***"}, {keys: "pass.word"}, {keys: "a(b"}, {keys: "-_"},
		{paths: "$"}, {paths: "task.context"}, {paths: "$.a..b"}, {paths: "$.a[b]"}, {paths: "$.a['b]"}, {paths: "$.a[?(@.b)]"}, {paths: "$..a"}, {paths: "$.nosuch"}, {paths: "$[0].task"},
	} {
		_, err := New(tt.keys, tt.paths)
		if err == nil || !strings.Contains(err.Error(), "is no ") && !strings.Contains(err.Error(), "hides nothing: a snapshot has no") {
			t.Errorf("%+v: %v", tt, err)
		}
	}
}

func TestLogs(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{ReplaceAttr: rules(t, DefaultKeys, "").Attr}))
	log.Info("said", "token", "s3cret", "count", 3, "err", errors.New("wrong password"),
		"doc", json.RawMessage(`{"a": [{"API_key": "s3cret"}], "n": null}`),
		"plain", map[string]any{"x": 1},
		"struct", struct{ Password string }{"s3cret"},
		slog.Group("g", "cookie", "s3cret", "b", []string{"x"}))
	text := out.String()
	if strings.Contains(text, "s3cret") {
		t.Errorf("a secret is in the log: %s", text)
	}
	for _, want := range []string{
		`"token":"[redacted]"`, `"count":3`, `"err":"wrong password"`, `"API_key":"[redacted]"`, `"n":null`,
		`"x":1`, `"Password":"[redacted]"`, `"cookie":"[redacted]"`, `"b":["x"]`, `"level":"INFO"`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is not in %s", want, text)
		}
	}
}
