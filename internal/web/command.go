package web

import (
	"bytes"
	"encoding/json"
	"net/url"
	"strings"
)

// A command is one call, as somebody would make it from a terminal: for the
// template "elsewhere".
type command struct{ CLI, Curl string }

// commandOf is a call of tasker-ctl with these words and of the API with this body.
func commandOf(x *exchange, ctl []string, method, path string, body any) command {
	origin := x.origin()
	words := append([]string{"tasker-ctl", "--server", origin}, ctl...)
	return command{
		CLI: commandLine(words),
		Curl: commandLine([]string{
			"curl", "--fail-with-body", "-X", method, origin + path, "-H", "Content-Type: application/json", "--data-raw", compactJSON(body),
		}),
	}
}

// origin is where the browser finds this server.
func (x *exchange) origin() string {
	u := url.URL{Scheme: "http", Host: x.Host}
	if x.secure() {
		u.Scheme = "https"
	}
	return u.String()
}

// compactJSON spells a value on one line, as a person would type it.
func compactJSON(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return "{}"
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// commandLine joins words so that a shell takes them apart again, with a new line
// before each flag where it gets long.
func commandLine(words []string) string {
	const wide = 100
	var b strings.Builder
	width := 0
	for i, w := range words {
		q := shellQuote(w)
		switch {
		case i == 0:
		case width+len(q) > wide && (strings.HasPrefix(w, "-") || width > wide):
			b.WriteString(" \\\n  ")
			width = 0
		default:
			b.WriteByte(' ')
		}
		b.WriteString(q)
		width += len(q) + 1
	}
	return b.String()
}

// shellQuote spells a word so that a shell takes it as it is: between single quotes
// nothing has a meaning but their end.
func shellQuote(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@%+,=", r)
	}
	if word != "" && !strings.ContainsFunc(word, func(r rune) bool { return !plain(r) }) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// typed is what somebody typed into a field, with the line ends of a shell and not
// those of a form.
func (x *exchange) typed(name string) string {
	return strings.ReplaceAll(x.PostFormValue(name), "\r\n", "\n")
}
