package web

import (
	"net/http"
	"net/url"
	"strconv"

	"tasker.example/tasker"
)

func (s *server) auditRoutes() []route {
	return []route{{http.MethodGet, "/audit", s.audit}}
}

// auditPage is what happened to Tasker itself, the newest first.
type auditPage struct {
	Action string // empty means any
	Events []tasker.AuditEvent
	Pager  pager
}

// maxAction bounds what is looked for; no action has a longer name.
const maxAction = 128

func (s *server) audit(x *exchange) (*view, error) {
	action, err := x.word("action")
	if err != nil {
		return nil, err
	}
	if len(action) > maxAction {
		return nil, tasker.Errorf(tasker.Invalid, "action has at most %d bytes", maxAction)
	}
	before, err := x.position("before")
	if err != nil {
		return nil, err
	}
	list, more, err := s.DB.AuditEvents(x.Context(), action, before, pageRows)
	if err != nil {
		return nil, err
	}
	p := auditPage{Action: action, Events: list}
	if more {
		p.Pager = x.goesOn(list[len(list)-1].ID)
	}
	return &view{page: "audit", title: "Audit log", nav: "Emissions", body: p}, nil
}

// maxPosition is beyond every position and every id that the database counts.
const maxPosition = 1 << 53

// position reads where a list goes on, which is before an element.
func (x *exchange) position(name string) (int64, error) {
	n, err := x.number(name, 0, 1, maxPosition)
	return int64(n), err
}

// goesOn is the pager of a list that goes on before an element. It knows no way
// back but the browser's.
func (x *exchange) goesOn(last int64) pager {
	q := x.URL.Query()
	q.Set("before", strconv.FormatInt(last, 10))
	u := url.URL{Path: x.URL.Path, RawQuery: q.Encode()}
	return pager{After: u.String()}
}
