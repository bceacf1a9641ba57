package web

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
)

// Bounds of a reason, in characters.
const (
	maxReason = 2000   // to cancel a task, to send an event again
	maxNotes  = 20_000 // of an investigation and of a step action
)

// An action is something that an operator does on a page: the page says what will
// happen, and has a form to do it.
type action interface {
	// do does what was sent. Its error is shown above the form.
	do(req *request) (*view, error)
	shared() *form
}

// A form holds what the pages of all actions have in common.
type form struct {
	page, title, nav string

	Refused  string // why the action is not possible now; there is no form then
	Problem  string // why what was sent was not done
	Subject  string // who has signed in, and is the actor; empty where nobody is asked
	Actor    string // as typed; at first the name that the browser keeps
	Reason   string // as typed
	Back     string // the page that the action was chosen on
	Button   string
	Shortcut string // the key that presses the button
	Danger   bool   // the action cannot be undone
	Command  command
}

func (f *form) shared() *form { return f }

// Title returns the title of the page.
func (f *form) Title() string { return f.title }

func (f *form) view(a action, status int) *view {
	if f.Refused != "" {
		status = http.StatusConflict
	}
	return &view{page: f.page, title: f.title, nav: f.nav, status: status, body: a}
}

// formOf reads what was typed into a form.
func (req *request) formOf(f form) form {
	f.Subject, f.Actor = req.subject(), req.actor
	if req.Method == http.MethodPost && f.Subject == "" {
		f.Actor = strings.TrimSpace(req.PostFormValue("actor"))
	}
	f.Reason = strings.TrimSpace(req.typed("reason"))
	return f
}

// requestKey is the key of the request that a form with this key makes with these texts, however
// often it is sent. Other texts are another request.
func requestKey(form string, texts ...string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", texts))
	return "page-" + form + "-" + hex.EncodeToString(sum[:8])
}

// placeholders returns the actor and the reason for a command, with words to be
// replaced where nothing was typed.
func (f *form) placeholders() (actor, reason string) {
	return cmp.Or(f.Actor, "you@example.com"), cmp.Or(f.Reason, "why")
}

// by returns the flag of tasker-ctl that names the actor: none where the key says who
// acts.
func (f *form) by(flag, actor string) []string {
	if f.Subject != "" {
		return nil
	}
	return []string{flag, actor}
}

// byInBody returns the actor for the body of a request: none where the key says who acts.
func (f *form) byInBody(actor string) string {
	if f.Subject != "" {
		return ""
	}
	return actor
}

// actionRoutes serves an action that needs a permission: read loads its page, with what
// was typed.
func actionRoutes[A action](s *server, path string, permission access.Permission, read func(*request) (A, error)) []route {
	show := func(req *request) (*view, error) {
		if err := s.mayChange(); err != nil {
			return nil, err
		}
		a, err := read(req)
		if err != nil {
			return nil, err
		}
		return a.shared().view(a, http.StatusOK), nil
	}
	do := func(req *request) (*view, error) {
		a, err := read(req)
		if err != nil {
			return nil, err
		}
		if a.shared().Refused != "" {
			return a.shared().view(a, http.StatusConflict), nil
		}
		if err := req.checkQuery(); err != nil {
			return nil, err
		}
		v, refused := a.do(req)
		code := tasker.CodeOf(refused)
		switch code {
		case "":
			return v, nil
		case tasker.Internal, tasker.Unavailable, tasker.NotFound:
			return nil, refused
		default: // somebody may have been faster: the page shows what is there now
		}
		if a, err = read(req); err != nil {
			return nil, err
		}
		a.shared().Problem = messageOf(refused)
		return a.shared().view(a, apiv1.Status(code)), nil
	}
	return []route{
		{method: http.MethodGet, path: path, rule: needs(permission), serve: show},
		{method: http.MethodPost, path: path, rule: needs(permission), serve: do},
	}
}

// identify checks the name in the form and keeps it for the next one.
func (f *form) identify(req *request) error {
	if f.Subject != "" {
		return nil
	}
	if f.Actor == "" {
		return tasker.Errorf(tasker.Invalid, "give your name: it is recorded with what you do")
	}
	if err := nameFault(f.Actor); err != nil {
		return err
	}
	if f.Actor != req.actor {
		req.keepActor(f.Actor)
	}
	return nil
}

// check checks the name and the reason in the form.
func (f *form) check(req *request, most int) error {
	if err := f.identify(req); err != nil {
		return err
	}
	switch length := utf8.RuneCountInString(f.Reason); {
	case length == 0:
		return tasker.Errorf(tasker.Invalid, "give a reason: it is recorded in the history")
	case length > most:
		return tasker.Errorf(tasker.Invalid, "the reason has %d characters; %d is the limit", length, most)
	case storable(f.Reason) != nil:
		return tasker.Errorf(tasker.Invalid, "invalid reason: %v", storable(f.Reason))
	}
	return nil
}

// storable says why the database cannot store a text.
func storable(text string) error {
	if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		return tasker.Errorf(tasker.Invalid, "it has a NUL or is not valid UTF-8, which cannot be stored")
	}
	return nil
}

// A command is one call, as an operator would make it from a terminal: for the
// template "elsewhere".
type command struct{ CLI, Curl string }

// commandOf returns a call of tasker-ctl with these words and of the API with this
// body, which may be nil.
func commandOf(req *request, ctl []string, method, path string, body any) command {
	origin := req.origin()
	curl := []string{"curl", "--fail-with-body", "-X", method, origin + path}
	if body != nil {
		curl = append(curl, "-H", "Content-Type: application/json", "--data-raw", compactJSON(body))
	}
	c := command{CLI: commandLine(append([]string{"tasker-ctl", "--server", origin}, ctl...)), Curl: commandLine(curl)}
	if req.subject() != "" { // tasker-ctl reads the variable itself
		c.Curl = strings.Replace(c.Curl, "curl ", `curl -H "Authorization: Bearer $TASKER_TOKEN" `, 1)
	}
	return c
}

// compactJSON encodes a value on one line, as a person would type it.
func compactJSON(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return "{}"
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// commandLine joins words so that a shell splits them again, with a new line before
// each flag where the line gets long.
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

// shellQuote quotes a word for a shell: between single quotes only their end has a
// meaning.
func shellQuote(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@%+,=", r)
	}
	if word != "" && !strings.ContainsFunc(word, func(r rune) bool { return !plain(r) }) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
