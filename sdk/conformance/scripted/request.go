package scripted

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"tasker.example/tasker/apiv1"
)

// Route is a request of the worker protocol.
type Route string

// Routes of the worker protocol.
const (
	Register   Route = "register"
	Claim      Route = "claims"
	Beat       Route = "heartbeat"
	Report     Route = "results"
	Release    Route = "release"
	Drain      Route = "drain"
	Checkpoint Route = "checkpoint"
	Leave      Route = "leave"
	Context    Route = "context"
	Result     Route = "result"
	Unknown    Route = "unknown"
)

// Request is a request that the server received, and its answer.
type Request struct {
	At     time.Duration // since the start of the server
	Route  Route
	Method string
	Path   string
	Worker string // UUID in the path, if any
	Key    string // in the Authorization header, if any
	Body   []byte
	Status int    // of the answer; 0 if there is none yet or the connection was closed
	Reply  []byte // body of the answer
	Note   string // how a rule changed the answer

	media string
}

// Results returns the outcomes of a report.
func (q Request) Results() []apiv1.Result {
	var r apiv1.ReportResults
	_ = json.Unmarshal(q.Body, &r) // malformed requests are violations already
	return r.Results
}

// Leases returns the leases of a heartbeat or a release.
func (q Request) Leases() []apiv1.Lease {
	var l apiv1.Leases
	_ = json.Unmarshal(q.Body, &l) // malformed requests are violations already
	return l.Leases
}

// Claims returns how many steps a claim, or a report that claims, requests, and how long it waits.
func (q Request) Claims() (limit int, wait time.Duration) {
	var c apiv1.ClaimSteps
	if q.Route == Report {
		var r apiv1.ReportResults
		_ = json.Unmarshal(q.Body, &r) // malformed requests are violations already
		if r.Claim != nil {
			c = *r.Claim
		}
	} else {
		_ = json.Unmarshal(q.Body, &c) // malformed requests are violations already
	}
	return c.Max, time.Duration(c.WaitMS) * time.Millisecond
}

// Names reports whether the request contains the UUID of the step.
func (q Request) Names(step *Step) bool {
	return strings.Contains(string(q.Body), step.UUID) || strings.Contains(q.Path, step.UUID)
}

// record adds a request to the log.
func (s *Server) record(r *http.Request, body []byte) *Request {
	q := &Request{
		At: time.Since(s.began), Method: r.Method, Path: r.URL.Path, Body: body, media: r.Header.Get("Content-Type"),
	}
	q.Key, _ = strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	q.Route, q.Worker = routeOf(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, q)
	if len(body) > 0 && !strings.HasPrefix(q.media, "application/json") {
		s.violate(fmt.Sprintf("%s %s has Content-Type %q; it must be application/json", q.Method, q.Path, q.media))
	}
	s.notify()
	return q
}

func routeOf(r *http.Request) (route Route, worker string) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if len(parts) < 2 || parts[0] != "v1" {
		return Unknown, ""
	}
	switch {
	case parts[1] == "workers" && len(parts) == 2 && r.Method == http.MethodPost:
		return Register, ""
	case parts[1] == "workers" && len(parts) == 3 && r.Method == http.MethodDelete:
		return Leave, parts[2]
	case parts[1] == "workers" && len(parts) == 4 && r.Method == http.MethodPost:
		switch route := Route(parts[3]); route {
		case Claim, Beat, Report, Release, Drain, Checkpoint:
			return route, parts[2]
		default:
		}
	case parts[1] == "tasks" && len(parts) == 4 && parts[3] == "context" && r.Method == http.MethodGet:
		return Context, ""
	case parts[1] == "tasks" && len(parts) == 5 && parts[3] == "results" && r.Method == http.MethodGet:
		return Result, ""
	}
	return Unknown, ""
}

// Requests returns copies of the requests to the routes so far, or of all requests without routes.
func (s *Server) Requests(routes ...Route) []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []Request
	for _, q := range s.log {
		if len(routes) == 0 || slices.Contains(routes, q.Route) {
			found = append(found, *q)
		}
	}
	return found
}

// Now returns the time since the start of the server, as in [Request].At.
func (s *Server) Now() time.Duration { return time.Since(s.began) }

// Limits of a transcript.
const (
	shownBody     = 400 // bytes of a body
	shownRequests = 80
)

// Transcript returns a text with the last requests and their answers.
func (s *Server) Transcript() string {
	log := s.Requests()
	var b strings.Builder
	if skipped := len(log) - shownRequests; skipped > 0 {
		fmt.Fprintf(&b, "(%d earlier requests)\n", skipped)
		log = log[skipped:]
	}
	for _, q := range log {
		fmt.Fprintf(&b, "%7.3fs > %s %s %s\n", q.At.Seconds(), q.Method, q.Path, shorten(q.Body))
		answer := "no answer yet"
		if q.Status != 0 {
			answer = fmt.Sprintf("%d %s", q.Status, shorten(q.Reply))
		}
		if q.Note != "" {
			answer += " [" + q.Note + "]"
		}
		fmt.Fprintf(&b, "         < %s\n", answer)
	}
	if n := s.Refused(); n > 0 {
		fmt.Fprintf(&b, "%d connections were refused\n", n)
	}
	return b.String()
}

func shorten(body []byte) string {
	text := strings.ToValidUTF8(string(body), "�")
	if len(text) > shownBody {
		return fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(text[:shownBody], ""), len(body))
	}
	return strings.TrimSpace(text)
}
