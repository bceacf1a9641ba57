package web

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
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
	// check validates the actor and the reason.
	check() error
	// do performs the action. Its error is shown above the form.
	do(req *request) (*view, error)
	shared() *form
}

// form is the common part of all actions.
type form struct {
	*server
	req *request

	page, title, nav string
	maxReason        int // characters; 0 makes the reason optional

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

type verb struct {
	Word     string // path element
	Name     string // link text
	Key      string
	Does     string // description of the key
	Long     string // description of the action
	Done     string // past participle
	endpoint described

	Action  tasker.StepAction       // on a step
	Final   bool                    // irreversible
	InPlace bool                    // a button on the page of the object
	from    []tasker.OperationState // states that accept it
}

// button returns the name without an ellipsis.
func (v verb) button() string { return strings.TrimSuffix(v.Name, "…") }

// link returns the link from the page of the object.
func (v verb) link(page string) link {
	return link{Name: v.Name, Path: page + "/" + v.Word, Key: v.Key, Does: v.Does}
}

// linkVerbs returns the links of the actions for which refuse returns no reason.
func linkVerbs(page string, verbs []verb, refuse func(verb) string) (links []link) {
	for _, v := range verbs {
		if refuse(v) == "" {
			links = append(links, v.link(page))
		}
	}
	return links
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
	f.server, f.req = req.server, req
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

// newActionRoutes returns the routes that show and submit the form of an action. read loads the
// action with the submitted fields.
func newActionRoutes[A formAction](
	s *server, path string, permission access.Permission, read func(*request) A,
) []route {
	show := func(req *request) (*view, error) {
		if err := s.checkMayChange(); err != nil {
			return nil, err
		}
		a := read(req)
		return a.shared().view(a, http.StatusOK), nil
	}
	do := func(req *request) (*view, error) {
		a := read(req)
		if err := req.err(); err != nil {
			return nil, err
		}
		if a.shared().Refused != "" {
			return a.shared().view(a, http.StatusConflict), nil
		}
		if err := req.checkQuery(); err != nil {
			return nil, err
		}
		var v *view
		refused := a.check()
		if refused == nil {
			v, refused = a.do(req)
		}
		code := tasker.CodeOf(refused)
		switch code {
		case "":
			return v, nil
		case tasker.Internal, tasker.Unavailable, tasker.NotFound:
			return nil, refused
		default: // show the current state
		}
		a = read(req)
		a.shared().Problem = errorMessage(refused)
		return a.shared().view(a, apiv1.Status(code)), nil
	}
	return []route{
		{method: http.MethodGet, path: path, rule: requires(permission), serve: show},
		{method: http.MethodPost, path: path, rule: requires(permission), serve: do},
	}
}

// newVerbRoutes returns the routes of the actions on an object, one pair per verb.
func newVerbRoutes[A formAction](
	s *server, path string, permission access.Permission, verbs []verb, read func(*request, verb) A,
) (list []route) {
	for _, v := range verbs {
		list = append(list, newActionRoutes(s, path+"/"+v.Word, permission, func(req *request) A {
			return read(req,
				v)
		})...)
	}
	return list
}

// check validates the actor and the reason, and stores the actor in the browser.
func (f *form) check() error {
	if f.Subject == "" {
		if f.Actor == "" {
			return tasker.Errorf(tasker.Invalid, "your name is missing: it is recorded with the action")
		}
		if err := checkName(f.Actor); err != nil {
			return err
		}
		if f.Actor != f.req.actor {
			f.req.keepActor(f.Actor)
		}
	}
	if f.maxReason == 0 {
		return nil
	}
	switch length := utf8.RuneCountInString(f.Reason); {
	case length == 0:
		return tasker.Errorf(tasker.Invalid, "the reason is missing: it is recorded in the history")
	case length > f.maxReason:
		return tasker.Errorf(tasker.Invalid, "the reason has %d characters: the limit is %d", length, f.maxReason)
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

// refuse records why the plan of the action failed. Other errors fail the page.
func (f *form) refuse(err error) {
	switch tasker.CodeOf(err) {
	case tasker.Conflict, tasker.NotFound, tasker.Invalid:
		f.Refused = errorMessage(err)
	default:
		f.req.fail(err)
	}
}
