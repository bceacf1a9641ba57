package demo

import (
	"encoding/json"
	"errors"
	"net/http"

	"tasker.example/tasker"
)

// maxFault limits the body of a request, in bytes.
const maxFault = 4 << 10

// Handler returns a handler for paths that begin with prefix, such as /demo/faults. GET prefix
// lists the active faults, PUT prefix/{handler} sets one, DELETE prefix/{handler} clears one and
// DELETE prefix clears all. It does not authenticate callers: serve it on loopback only.
func (f *Faults) Handler(prefix string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+prefix, func(w http.ResponseWriter, _ *http.Request) { f.respond(w, nil) })
	mux.HandleFunc("DELETE "+prefix, func(w http.ResponseWriter, _ *http.Request) {
		f.Clear()
		f.respond(w, nil)
	})
	mux.HandleFunc("DELETE "+prefix+"/{handler}", func(w http.ResponseWriter, r *http.Request) {
		f.respond(w, f.Set(r.PathValue("handler"), Fault{}))
	})
	mux.HandleFunc("PUT "+prefix+"/{handler}", func(w http.ResponseWriter, r *http.Request) {
		fault := GatewayTimeout()
		d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxFault))
		d.DisallowUnknownFields()
		if err := d.Decode(&fault); err != nil {
			f.respond(w, tasker.Errorf(tasker.Invalid,
				"invalid fault, must be {every, calls, permanent, type, message}: %w", err))
			return
		}
		f.respond(w, f.Set(r.PathValue("handler"), fault))
	})
	return mux
}

// respond writes the active faults, or an error.
func (f *Faults) respond(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "application/json")
	var body any = f.List()
	if err != nil {
		status := http.StatusBadRequest
		if tasker.CodeOf(err) == tasker.NotFound {
			status = http.StatusNotFound
		}
		w.WriteHeader(status)
		e := &tasker.Error{Code: tasker.Internal, Message: "internal error"}
		errors.As(err, &e)
		body = map[string]any{"error": map[string]any{"code": e.Code, "message": e.Message}}
	}
	_ = json.NewEncoder(w).Encode(body) // the client may have disconnected
}
