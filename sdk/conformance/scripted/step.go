package scripted

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"tasker.example/tasker/apiv1"
)

// Step is a step that workers claim. Set the exported fields before [Server.Enqueue].
type Step struct {
	Handler        string
	Name           string            // default: the handler
	Context        any               // default: an empty object
	Initialization any               // default: an empty object
	Results        map[string]any    // of dependencies, inline
	Refs           map[string]string // documents of dependencies, by reference
	Item           any               // of a map step, if Index is set
	Index          *int
	Omitted        []string      // JSON Pointers of omitted parts of the context
	Whole          any           // context that context_href returns
	MaxAttempts    int           // default: 1
	Timeout        time.Duration // sets the deadline of each attempt, unless 0
	Token          string        // prefix of the lease tokens

	UUID string // set by Enqueue
	Task string // set by Enqueue

	server *Server
	// The mutex of the server guards the fields below.
	state      state
	attempt    int
	token      string
	holder     string // UUID of the worker that holds the lease
	expires    time.Time
	grants     []Grant
	accepted   *Outcome // first accepted outcome of the last attempt
	completed  int      // accepted successes
	expired    int      // attempts that ended because their lease expired
	released   int
	checkpoint json.RawMessage
	refs       map[string]string // UUID by dependency name
}

type state int

const (
	ready state = iota
	leased
	waiting // for the next attempt
	done
)

// Grant is an assignment of a step to a worker.
type Grant struct {
	At      time.Duration
	Attempt int
	Token   string
	Worker  string
}

// Outcome is an outcome that a worker reported for a step.
type Outcome struct {
	apiv1.Result

	At time.Duration
}

// Enqueue makes a step claimable and returns it.
func (s *Server) Enqueue(step Step) *Step {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &step
	p.server, p.UUID, p.Task = s, newID(), newID()
	p.refs = map[string]string{}
	for name := range p.Refs {
		p.refs[name] = newID()
	}
	if p.Name == "" {
		p.Name = p.Handler
	}
	p.MaxAttempts = max(p.MaxAttempts, 1)
	s.steps = append(s.steps, p)
	s.notify()
	return p
}

func newID() string { return uuid.Must(uuid.NewV7()).String() }

// Accepted returns the accepted outcome of the last attempt, or nil.
func (p *Step) Accepted() *Outcome {
	p.server.mu.Lock()
	defer p.server.mu.Unlock()
	return p.accepted
}

// Done reports whether the step has ended: it is complete, or no further attempt follows.
func (p *Step) Done() bool {
	p.server.mu.Lock()
	defer p.server.mu.Unlock()
	return p.state == done
}

// Completed returns the number of accepted successes.
func (p *Step) Completed() int {
	p.server.mu.Lock()
	defer p.server.mu.Unlock()
	return p.completed
}

// Expired returns the number of attempts that ended because their lease expired.
func (p *Step) Expired() int {
	p.server.mu.Lock()
	defer p.server.mu.Unlock()
	return p.expired
}

// Released returns how often the step was released.
func (p *Step) Released() int {
	p.server.mu.Lock()
	defer p.server.mu.Unlock()
	return p.released
}

// Grants returns the assignments of the step so far.
func (p *Step) Grants() []Grant {
	p.server.mu.Lock()
	defer p.server.mu.Unlock()
	return slices.Clone(p.grants)
}

// Reports returns the outcomes of the step in all reports so far.
func (p *Step) Reports() []Outcome {
	var found []Outcome
	for _, q := range p.server.Requests(Report) {
		for _, r := range q.Results() {
			if r.StepUUID == p.UUID {
				found = append(found, Outcome{Result: r, At: q.At})
			}
		}
	}
	return found
}

// Ref returns the UUID of the step that a dependency refers to.
func (p *Step) Ref(name string) string { return p.refs[name] }

// Revoke ends the current lease, as an operator does who resets the step. The step becomes
// claimable again if again is true.
func (p *Step) Revoke(again bool) {
	p.server.mu.Lock()
	defer p.server.mu.Unlock()
	p.token, p.holder, p.state = "", "", done
	if again {
		p.state = ready
	}
	p.server.notify()
}

// Assignment returns the current assignment of the step, as in the response to a claim.
func (p *Step) Assignment() map[string]any {
	p.server.mu.Lock()
	defer p.server.mu.Unlock()
	return p.server.assignment(p)
}

// grant leases the step to a worker. The caller holds the mutex.
func (s *Server) grant(p *Step, worker string) map[string]any {
	s.tokens++
	p.attempt++
	p.state, p.holder, p.accepted = leased, worker, nil
	p.token = fmt.Sprintf("%stoken-%d-of-%s", p.Token, s.tokens, p.UUID[:8])
	p.expires = time.Now().Add(s.Lease)
	p.grants = append(p.grants, Grant{At: time.Since(s.began), Attempt: p.attempt, Token: p.token, Worker: worker})
	s.watch(p, p.token)
	return s.assignment(p)
}

// watch ends the lease of the token when it expires. The caller holds the mutex.
func (s *Server) watch(p *Step, token string) {
	s.later(time.Until(p.expires)+time.Millisecond, func() {
		if p.token != token || p.state != leased {
			return
		}
		if time.Now().Before(p.expires) {
			s.watch(p, token)
			return
		}
		p.expired++
		p.token, p.holder, p.state = "", "", done
		if p.attempt < p.MaxAttempts {
			p.state = ready
		}
	})
}

// assignment returns the step as in the response to a claim. The caller holds the mutex.
func (s *Server) assignment(p *Step) map[string]any {
	var deadline any
	if p.Timeout > 0 {
		deadline = s.stamp(time.Now().Add(p.Timeout))
	}
	a := map[string]any{
		"step_uuid": p.UUID, "task_uuid": p.Task, "namespace": "conformance", "task_name": "conformance", "task_version": "1.0.0",
		"name": p.Name, "handler": p.Handler, "attempt": p.attempt, "max_attempts": p.MaxAttempts, "lease_token": p.token,
		"lease_expires_at": s.stamp(p.expires), "deadline": deadline, "correlation_id": p.Task,
		"context": orObject(p.Context), "initialization": orObject(p.Initialization), "dependency_results": map[string]any{},
	}
	if p.Results != nil {
		a["dependency_results"] = p.Results
	}
	if p.Index != nil {
		a["item"], a["index"] = p.Item, *p.Index
	}
	if p.Omitted != nil {
		a["context_omitted"], a["context_href"] = p.Omitted, "/v1/tasks/"+p.Task+"/context"
	}
	if p.checkpoint != nil {
		a["checkpoint"] = p.checkpoint
	}
	if len(p.Refs) > 0 {
		refs := map[string]any{}
		for name, doc := range p.Refs {
			href := "/v1/tasks/" + p.Task + "/results/" + p.refs[name]
			refs[name] = map[string]any{"step_uuid": p.refs[name], "bytes": len(doc), "href": href}
		}
		a["dependency_result_refs"] = refs
	}
	return a
}

// stamp formats a time by the clock of the server.
func (s *Server) stamp(t time.Time) string {
	return t.Add(s.ClockAhead).UTC().Format("2006-01-02T15:04:05.000000Z")
}

func orObject(v any) any {
	if v == nil {
		return map[string]any{}
	}
	return v
}
