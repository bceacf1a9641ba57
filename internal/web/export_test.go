package web

import (
	"net/http"
	"net/netip"
	"time"

	"tasker.example/tasker/internal/access"
)

// EndedOf introduces counts of ended investigations.
var EndedOf = formatEnded

// A Route is a line of the route table.
type Route struct {
	Method, Path   string // below [Root]
	Needs          access.Permission
	Anyone, Public bool
	Of             access.Kind
}

// Routes returns the route table.
func Routes() []Route {
	var list []Route
	for _, rt := range (&server{}).routes() {
		rt.check()
		of, _ := rt.rule.ResourceParameter()
		list = append(list, Route{Method: rt.method, Path: rt.path, Needs: rt.rule.Needs, Anyone: rt.rule.Anyone, Public: rt.rule.Public, Of: of})
	}
	return list
}

// CheckRoute panics as [New] does for a route that does not say who may use it.
func CheckRoute(r Route) {
	rt := route{method: r.Method, path: r.Path, rule: access.Rule{Needs: r.Needs, Anyone: r.Anyone, Public: r.Public}}
	rt.check()
}

// Refreshes reports whether a request is one that a page sends by itself.
func Refreshes(r *http.Request) bool { return (&request{Request: r}).isRefresh() }

// Failures counts failed attempts to sign in.
type Failures struct{ f signInFailures }

// Take counts an attempt.
func (f *Failures) Take(from netip.Addr, now time.Time) (time.Duration, bool) {
	return f.f.take(from, now)
}

// Addresses returns how many addresses are remembered.
func (f *Failures) Addresses() int { return len(f.f.of) }

// The bounds of failed attempts.
const (
	MaxFailures  = maxFailures
	MaxAddresses = maxAddresses
	MaxSignIns   = maxSignIns
)
