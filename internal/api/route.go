package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"tasker.example/tasker"
)

// A route is one line of the table: how it is reached, what it takes and gives,
// and who serves it.
type route struct {
	method, path string
	id           string // its name in generated clients
	tag          string
	summary      string
	about        string
	params       []param       // of the query
	body         any           // a value of the type that the body is decoded into; nil means none
	media        []string      // content types of the body; nil means JSON
	answers      map[int]any   // a value of the type of each answer that is no error; nil means no content
	gives        string        // content type of the answer; "" means JSON
	maxBody      int64         // 0 means the server's limit
	wait         time.Duration // that it may take beyond the server's timeout
	keyed        bool          // a header Idempotency-Key makes it safe to repeat
	quiet        bool          // its requests are logged for debugging only
	unmetered    bool          // its bodies do not wait for room in memory
	serve        func(*request) error

	schema  *huma.Schema  // of the body
	timeout time.Duration // all in all
}

// A param is one parameter of a query.
type param struct {
	name     string
	about    string
	schema   *huma.Schema
	fallback string // its value when the query has none
}

// A request is one HTTP request on the way to its response.
type request struct {
	w       http.ResponseWriter
	r       *http.Request
	ctx     context.Context // ends with the request or its time
	route   *route
	server  *server
	query   map[string]string // checked, with defaults
	quietly bool              // nothing happened that a log should tell
	room    reservation       // of the body
}

// run serves a request whose route is known.
func (s *server) run(w http.ResponseWriter, r *http.Request, rt *route) {
	ctx, cancel := context.WithTimeout(r.Context(), rt.timeout)
	defer cancel()
	x := &request{w: w, r: r, ctx: ctx, route: rt, server: s, quietly: rt.quiet}
	if !rt.unmetered {
		x.room.of = s.inflight
	}
	defer x.room.release()
	note := requestLogOf(ctx)
	note.route = rt.path
	var err error
	if x.query, err = rt.readQuery(r.URL.RawQuery); err == nil {
		err = rt.serve(x)
	}
	note.quiet = x.quietly
	if err != nil {
		note.err = x.timed(err)
		respondError(w, r, note.err)
	}
}

// timed says of an error that came of the end of the request's time that it did.
func (x *request) timed(err error) error {
	if x.ctx.Err() == nil || x.r.Context().Err() != nil || tasker.CodeOf(err) != tasker.Internal {
		return err
	}
	return &tasker.Error{
		Code: tasker.Unavailable, Err: err,
		Message: "the request took longer than " + x.route.timeout.String() + " and was given up; try again",
	}
}
