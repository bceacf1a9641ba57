package redact

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"regexp"
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
		"api.key": true, "openai.api.key": true, "pass.word": true, "pass/word": true, "pass:word": true, "pass\tword": true,
		"pass\u00a0word": true, "tokens": true, "token_prod": true, "tokenId": true, "API_KEY_PROD": true, "apiKeys": true,
		"APIKey": true, "private_key_pem": true, "Authorization-Header": true, "cookies": true, "pwd": true, "dbpwd": true, "jwt": true,
		"userJWT": true, "bearer": true, "auth": true, "pin": true, "cardPin": true, "PIN2": true, "otp": true, "OTPCode": true,
		"session": true, "session_id": true, "cvv2": true, "iban_number": true, "dsn": true, "sentryDsn": true, "database_url": true,
		"connection_string": true, "signature": true, "webhook_signing_key": true,
		"tokens_used": false, "max_tokens": false, "token_count": false, "promptTokenCount": false, "tokenizer": false, "name": false,
		"author": false, "authored_by": false, "auth_method": false, "pinned": false, "shipping": false, "spinPair": false,
		"session_count": false, "sessions": false, "className": false, "card": false, "pass": false, "": false, "caliban": false,
		"signature_required": false, "authorization_id": false, "description": false, "opinion": false,
	} {
		if got := r.isSecretKey(key); got != want {
			t.Errorf("%q is hidden: %v, want %v", key, got, want)
		}
	}
	if (Rules{}).isSecretKey("password") {
		t.Error("the zero value hides something")
	}
}

// An empty list hides nothing, in the database as well.
func TestNothingIsHidden(t *testing.T) {
	r := rules(t, "", "")
	if r.Pattern() != "^$" || r.Document() != "" || len(r.Texts()) != 0 || r.Text("password=x") != "password=x" {
		t.Errorf("pattern %q, document %q, texts %q", r.Pattern(), r.Document(), r.Texts())
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
		{keys: "*"}, {keys: "***"}, {keys: "a(b"}, {keys: "-_"}, {keys: "!"}, {keys: "=*"},
		{paths: "$"}, {paths: "task.context"}, {paths: "$.a..b"}, {paths: "$.a[b]"}, {paths: "$.a['b]"}, {paths: "$.a[?(@.b)]"}, {paths: "$..a"}, {paths: "$.nosuch"}, {paths: "$[0].task"},
	} {
		_, err := New(tt.keys, tt.paths)
		if err == nil || !strings.Contains(err.Error(), "invalid ") {
			t.Errorf("%+v: %v", tt, err)
		}
	}
}

// A list of exceptions alone hides nothing, which its author does not expect.
func TestOnlyExceptionsAreRefused(t *testing.T) {
	if _, err := New("!tokencount", ""); err == nil || !strings.Contains(err.Error(), "must not begin with an exclamation mark") {
		t.Errorf("error %v", err)
	}
}

func TestTexts(t *testing.T) {
	r := rules(t, DefaultKeys, "")
	for text, want := range map[string]string{
		"connect to postgres://u:s3cr3t@host:5432/db failed": "connect to postgres://u:[redacted]@host:5432/db failed",
		"amqp://:p@ss@h/ and https://host:8080/a@b":          "amqp://:[redacted]@h/ and https://host:8080/a@b",
		"sent Authorization: Bearer S3CR3T.x-y":              "sent Authorization: Bearer [redacted]",
		"the bearer of this letter":                          "the bearer of this letter",
		"password=hunter2&user=ann":                          "password=[redacted]&user=ann",
		`DB_PASSWORD="two words", api-key = 'x y'; pin=1234`: `DB_PASSWORD=[redacted], api-key = [redacted]; pin=[redacted]`,
		`sent {"password":"s3cr3t", "apiKey" : 12} twice`:    `sent {"password":[redacted], "apiKey" : [redacted]} twice`,
		"password: must have 8 characters":                   "password: must have 8 characters",
		"shipping=fast tokenizer=x token_count=5":            "shipping=fast tokenizer=x token_count=5",
		"token=[redacted] postgres://u:[redacted]@h":         "token=[redacted] postgres://u:[redacted]@h",
		"": "",
	} {
		if got := r.Text(text); got != want {
			t.Errorf("%q is shown as\n%q, want\n%q", text, got, want)
		}
	}
}

// Secrets are hidden in the forms in which the languages of workers, shells and protocols print them.
func TestFormsOfSecrets(t *testing.T) {
	r := rules(t, DefaultKeys, "")
	document := regexp.MustCompile(r.Document())
	for text, want := range map[string]string{
		"request with header Authorization: Basic dXNlcjpodW50ZXIycGFzcw== was refused":                      "request with header Authorization: Basic [redacted] was refused",
		"curl --token hunter2pass https://x.example.com failed":                                              "curl --token [redacted] https://x.example.com failed",
		"DefaultEndpointsProtocol=https;AccountName=a;AccountKey=aHVudGVyMnBhc3M=;EndpointSuffix=x":          "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=[redacted];EndpointSuffix=x",
		`bad config {:password=>"hunter2pass", :port=>1}`:                                                    `bad config {:password=>[redacted], :port=>1}`,
		"bad config {User:ann Password:hunter2pass Port:1}":                                                  "bad config {User:ann Password:[redacted] Port:1}",
		"bad key -----BEGIN RSA PRIVATE KEY-----\naHVudGVyMnBhc3M=\nQUJD\n-----END RSA PRIVATE KEY----- end": "bad key -----BEGIN RSA PRIVATE KEY-----[redacted]-----END RSA PRIVATE KEY----- end",
		"cut -----BEGIN OPENSSH PRIVATE KEY-----\naHVudGVyMnBhc3M=":                                          "cut -----BEGIN OPENSSH PRIVATE KEY-----[redacted]",
		"[… 9 bytes are left out …]\naHVudGVyMnBhc3M=\nQUJD\n-----END RSA PRIVATE KEY-----":                  "[… 9 bytes are left out …][redacted]-----END RSA PRIVATE KEY-----",
		"GET / Proxy-Authorization: Negotiate aHVudGVyMnBhc3M=":                                              "GET / Proxy-Authorization: Negotiate [redacted]",
		`Authorization: Digest username="ann", realm="x", response="hunter2pass"`:                            "Authorization: Digest [redacted]",
		"Cookie: sid=hunter2pass; lang=de":                                                                   "Cookie: [redacted]",
		"X-Api-Key: hunter2pass was refused":                                                                 "X-Api-Key: [redacted] was refused",
		"db.password: hunter2pass\nport: 1":                                                                  "db.password: [redacted]\nport: 1",
		`password: "two words"`:                                                                              `password: [redacted]`,
		"export PGPASSWORD=hunter2pass":                                                                      "export PGPASSWORD=[redacted]",
		"<password>hunter2pass</password>":                                                                   "<password>[redacted]</password>",
		"<ns:api-key type=\"x\">hunter2pass</ns:api-key>":                                                    "<ns:api-key type=\"x\">[redacted]</ns:api-key>",
		`<db password="hunter2pass"/>`:                                                                       `<db password=[redacted]/>`,
		"Config(password='hunter2pass', port=1)":                                                             "Config(password=[redacted], port=1)",
		"{'client_secret': b'hunter2pass'}":                                                                  "{'client_secret': [redacted]}",
		`{\"password\":\"hunter2pass\",\"port\":1}`:                                                          `{\"password\":[redacted],\"port\":1}`,
		"Array ( [password] => hunter2pass )":                                                                "Array ( [password] => [redacted] )",
		"curl -u ann:hunter2pass https://x.example.com":                                                      "curl -u ann:[redacted] https://x.example.com",
		"https://hunter2passhunter2pass@git.example.com/x":                                                   "https://[redacted]@git.example.com/x",
		"bad token eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln here":                                           "bad token [redacted] here",
		"Server=x;Password=hunter2pass;Port=1":                                                               "Server=x;Password=[redacted];Port=1",
		`password="hunter2pass without an end`:                                                               `password=[redacted]`,
	} {
		if got := r.Text(text); got != want {
			t.Errorf("%q is shown as\n%q, want\n%q", text, got, want)
		}
		if doc, _ := json.Marshal(map[string]string{"message": text}); !document.Match(doc) {
			t.Errorf("%s is not searched", doc)
		}
	}
	for _, text := range []string{
		"password is wrong", "token expired", "author: Ann", "key: order-1", "password: must have 8 characters", "token: expired", "invalid token at position 7", "Basic authentication failed",
		"cookie: must not be blank", "authorization: header is missing", "authorized by Ann", "tokens_used: 1200", "pinned: 17", "--verbose run", "<b>bold</b>", "-----BEGIN CERTIFICATE-----\nQUJD",
	} {
		if got := r.Text(text); got != text {
			t.Errorf("%q is shown as %q", text, got)
		}
	}
}

func TestLogs(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{ReplaceAttr: rules(t, DefaultKeys, "").Attr}))
	log.Info("said", "token", "s3cret", "count", 3, "err", errors.New("wrong password"),
		"doc", json.RawMessage(`{"a": [{"API_key": "s3cret"}], "n": null}`),
		"plain", map[string]any{"x": 1}, "why", "postgres://u:s3cret@h", "failed", errors.New("token=s3cret is refused"),
		"env", []map[string]string{{"name": "DB_PASSWORD", "value": "s3cret"}, {"name": "x", "value": "y"}}, "texts", []string{"Bearer S3cret1"},
		"struct", struct{ Password string }{"s3cret"},
		slog.Group("g", "cookie", "s3cret", "b", []string{"x"}))
	text := out.String()
	if strings.Contains(strings.ToLower(text), "s3cret") {
		t.Errorf("a secret is in the log: %s", text)
	}
	for _, want := range []string{
		`"token":"[redacted]"`, `"count":3`, `"err":"wrong password"`, `"API_key":"[redacted]"`, `"n":null`,
		`"x":1`, `"Password":"[redacted]"`, `"cookie":"[redacted]"`, `"b":["x"]`, `"level":"INFO"`,
		`"why":"postgres://u:[redacted]@h"`, `"failed":"token=[redacted] is refused"`, `{"name":"DB_PASSWORD","value":"[redacted]"}`,
		`{"name":"x","value":"y"}`, `"texts":["Bearer [redacted]"]`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is not in %s", want, text)
		}
	}
}
