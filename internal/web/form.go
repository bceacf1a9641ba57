package web

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
)

// Limits of a reason, in characters.
const (
	maxReason = 2000
	maxNotes  = 20_000 // of investigations and step actions
)

// formAction is an operator action with a page that explains its effect and contains a form.
type formAction interface {
	// do performs the action. Its error is shown above the form.
	do(req *request) (*view, error)
	shared() *form
}

// form is the common part of all actions.
type form struct {
	page, title, nav string

	Refused  string // why the action is impossible; replaces the form
	Problem  string // error of the submitted form
	Subject  string // signed-in caller, who is the actor
	Actor    string // as typed; initially the stored name
	Reason   string // as typed
	Back     string // page to return to
	Button   string
	Shortcut string // key of the button
	Danger   bool   // irreversible
	Command  command
}

// verb is an action on an object, named as in tasker-ctl.
type verb struct {
	Word string // path element
	Name string // link text
	Key  string
	Does string // description of the key
	Long string // description of the action
}

// button returns the name without an ellipsis.
func (v verb) button() string { return strings.TrimSuffix(v.Name, "…") }

func (v verb) word() string { return v.Word }

// link returns the link from the page of the object.
func (v verb) link(page string) link {
	return link{Name: v.Name, Path: page + "/" + v.Word, Key: v.Key, Does: v.Does}
}

func (f *form) shared() *form { return f }

func (f *form) Title() string { return f.title }

func (f *form) view(a formAction, status int) *view {
	if f.Refused != "" {
		status = http.StatusConflict
	}
	return &view{page: f.page, title: f.title, nav: f.nav, status: status, body: a}
}

// newForm returns f with the submitted actor and reason.
func (req *request) newForm(f form) form {
	f.Subject, f.Actor = req.callerSubject(), req.actor
	if req.Method == http.MethodPost && f.Subject == "" {
		f.Actor = req.trimmedField("actor")
	}
	f.Reason = req.trimmedField("reason")
	return f
}

// newRequestKey returns an idempotency key. Submitting the same form with the same texts again
// yields the same key.
func newRequestKey(form string, texts ...string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", texts))
	return "page-" + form + "-" + hex.EncodeToString(sum[:8])
}

// placeholders returns the actor and the reason for a command, or placeholders for those that are
// empty.
func (f *form) placeholders() (actor, reason string) {
	return cmp.Or(f.Actor, "you@example.com"), cmp.Or(f.Reason, "why")
}

// actorFlags returns the tasker-ctl flag that sets the actor, or nil if the API key identifies the
// actor.
func (f *form) actorFlags(flag, actor string) []string {
	if f.Subject != "" {
		return nil
	}
	return []string{flag, actor}
}

// actorInBody returns the actor for a request body, or "" if the API key identifies the actor.
func (f *form) actorInBody(actor string) string {
	if f.Subject != "" {
		return ""
	}
	return actor
}

// newActionRoutes returns the routes that show and submit the form of an action. read loads the
// action with the submitted fields.
func newActionRoutes[A formAction](s *server, path string, permission access.Permission, read func(*request) (A, error)) []route {
	show := func(req *request) (*view, error) {
		if err := s.checkMayChange(); err != nil {
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
		default: // show the current state
		}
		if a, err = read(req); err != nil {
			return nil, err
		}
		a.shared().Problem = errorMessage(refused)
		return a.shared().view(a, apiv1.Status(code)), nil
	}
	return []route{
		{method: http.MethodGet, path: path, rule: requires(permission), serve: show},
		{method: http.MethodPost, path: path, rule: requires(permission), serve: do},
	}
}

// newVerbRoutes returns the routes of the actions on an object, one pair per verb.
func newVerbRoutes[V interface{ word() string }, A formAction](s *server, path string, permission access.Permission, verbs []V, read func(*request, V) (A, error)) (list []route) {
	for _, v := range verbs {
		list = append(list, newActionRoutes(s, path+"/"+v.word(), permission, func(req *request) (A, error) { return read(req, v) })...)
	}
	return list
}

// identify validates the actor and stores it in the browser.
func (f *form) identify(req *request) error {
	if f.Subject != "" {
		return nil
	}
	if f.Actor == "" {
		return tasker.Errorf(tasker.Invalid, "your name is missing: it is recorded with the action")
	}
	if err := checkName(f.Actor); err != nil {
		return err
	}
	if f.Actor != req.actor {
		req.keepActor(f.Actor)
	}
	return nil
}

// checkReason validates the actor and the reason.
func (f *form) checkReason(req *request, most int) error {
	if err := f.identify(req); err != nil {
		return err
	}
	switch length := utf8.RuneCountInString(f.Reason); {
	case length == 0:
		return tasker.Errorf(tasker.Invalid, "the reason is missing: it is recorded in the history")
	case length > most:
		return tasker.Errorf(tasker.Invalid, "the reason has %d characters: the limit is %d", length, most)
	case checkStorable(f.Reason) != nil:
		return tasker.Errorf(tasker.Invalid, "invalid reason: %v", checkStorable(f.Reason))
	}
	return nil
}

// checkStorable returns an Invalid error if the database cannot store text.
func checkStorable(text string) error {
	if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		return tasker.Errorf(tasker.Invalid, "must be valid UTF-8 without NUL")
	}
	return nil
}

// command contains the tasker-ctl and curl commands that are equivalent to an action, for the
// template "elsewhere".
type command struct{ CLI, Curl string }

// newCommand returns the commands for an action: a tasker-ctl command line and an API request. The
// body may be nil.
func newCommand(req *request, ctl []string, method, path string, body any) command {
	origin := req.requestOrigin()
	curl := []string{"curl", "--fail-with-body", "-X", method, origin + path}
	if body != nil {
		curl = append(curl, "-H", "Content-Type: application/json", "--data-raw", compactJSON(body))
	}
	c := command{CLI: formatCommandLine(append([]string{"tasker-ctl", "--server", origin}, ctl...)),
		Curl: formatCommandLine(curl)}
	if req.callerSubject() != "" { // tasker-ctl reads the variable
		c.Curl = strings.Replace(c.Curl, "curl ", `curl -H "Authorization: Bearer $TASKER_TOKEN" `, 1)
	}
	return c
}

// buildFlags returns tasker-ctl flags from pairs of flag and value. It skips pairs with an empty
// value.
func buildFlags(pairs ...string) (list []string) {
	for p := range slices.Chunk(pairs, 2) {
		if p[1] != "" {
			list = append(list, p...)
		}
	}
	return list
}

// compactJSON encodes a value on one line without HTML escapes.
func compactJSON(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return "{}"
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// formatCommandLine joins the words of a shell command. It breaks long commands before flags.
func formatCommandLine(words []string) string {
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

// shellQuote quotes a word for a POSIX shell.
func shellQuote(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@%+,=", r)
	}
	if word != "" && !strings.ContainsFunc(word, func(r rune) bool { return !plain(r) }) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
