package scripted

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// Answer is a response.
type Answer struct {
	Status int
	Header map[string]string
	Body   []byte
}

// Action answers a request in another way than the protocol does.
type Action func(x *Exchange)

// Exchange is a request that an [Action] answers.
type Exchange struct {
	*Request

	server *Server
	writer http.ResponseWriter
	ctx    context.Context //nolint:containedctx // of the request, which the exchange represents
}

// rule applies an action to some requests.
type rule struct {
	match func(Request) bool
	left  int // remaining requests; negative: unlimited
	act   Action
}

// Forever is the number of times of a rule without a limit.
const Forever = -1

// On applies the action to the next requests to the route, as many as times. Rules apply in the
// order of their creation. It returns a function that removes the rule.
func (s *Server) On(route Route, times int, act Action) (remove func()) {
	return s.When(func(q Request) bool { return q.Route == route }, times, act)
}

// When is like [Server.On] for the requests that match.
func (s *Server) When(match func(Request) bool, times int, act Action) (remove func()) {
	r := &rule{match: match, left: times, act: act}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = append(s.rules, r)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		r.left = 0
	}
}

// match returns the action of the first rule that matches a request, or nil.
func (s *Server) match(q *Request) Action {
	s.mu.Lock()
	rules := slices.Clone(s.rules)
	s.mu.Unlock()
	for _, r := range rules {
		if r.match(*q) && s.use(r) {
			return r.act
		}
	}
	return nil
}

// use counts a use of the rule. It returns false if none is left.
func (s *Server) use(r *rule) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.left == 0 {
		return false
	}
	if r.left > 0 {
		r.left--
	}
	return true
}

// Apply applies the request by the protocol and returns the answer without sending it.
func (x *Exchange) Apply() Answer { return x.server.apply(x.ctx, x.Request) }

// Send sends an answer.
func (x *Exchange) Send(a Answer) {
	if x.server.ExtraKeys {
		a.Body = withExtraKeys(a.Body)
	}
	x.done(a.Status, a.Body)
	for name, value := range a.Header {
		x.writer.Header().Set(name, value)
	}
	if x.writer.Header().Get("Content-Type") == "" && len(a.Body) > 0 {
		x.writer.Header().Set("Content-Type", "application/json")
	}
	x.writer.WriteHeader(a.Status)
	_, _ = x.writer.Write(a.Body) // the worker may have gone
}

func (x *Exchange) done(status int, body []byte) {
	x.server.mu.Lock()
	defer x.server.mu.Unlock()
	x.Status, x.Reply = status, body
	x.server.notify()
}

func (x *Exchange) note(text string) {
	x.server.mu.Lock()
	defer x.server.mu.Unlock()
	x.Note = text
}

// hijack returns the connection of the request, or nil if the worker has gone.
func (x *Exchange) hijack() net.Conn {
	c, _, err := http.NewResponseController(x.writer).Hijack()
	if err != nil {
		return nil
	}
	return c
}

// Lose applies the request and closes the connection without an answer.
func Lose(x *Exchange) {
	x.note("applied, then the connection was closed without an answer")
	a := x.Apply()
	x.done(0, a.Body)
	if c := x.hijack(); c != nil {
		c.Close()
	}
}

// Reset closes the connection with a TCP reset and does not apply the request.
func Reset(x *Exchange) {
	x.note("not applied, connection reset")
	if c := x.hijack(); c != nil {
		reset(c)
	}
}

// Truncate applies the request and sends half of the body of the answer.
func Truncate(x *Exchange) {
	x.note("applied, the body of the answer was cut in half")
	a := x.Apply()
	x.done(a.Status, a.Body)
	c := x.hijack()
	if c == nil {
		return
	}
	defer c.Close()
	fmt.Fprintf(c, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		a.Status, http.StatusText(a.Status), len(a.Body), a.Body[:len(a.Body)/2])
}

// Hang does not answer until the worker closes the connection.
func Hang(x *Exchange) {
	x.note("not applied, never answered")
	<-x.ctx.Done()
}

// Page returns an action that answers with the page of a proxy. The request is not applied.
func Page(status int) Action {
	return func(x *Exchange) {
		x.note("the page of a proxy, not applied")
		x.Send(page(status))
	}
}

// PageAfter is like [Page], but the request is applied.
func PageAfter(status int) Action {
	return func(x *Exchange) {
		x.note("applied, then the page of a proxy")
		x.Apply()
		x.Send(page(status))
	}
}

func page(status int) Answer {
	text := fmt.Sprintf("<html><head><title>%d</title></head><body><h1>Please sign in</h1></body></html>", status)
	return Answer{Status: status, Header: map[string]string{"Content-Type": "text/html"}, Body: []byte(text)}
}

// Body returns an action that answers with a JSON document. The request is not applied.
func Body(status int, document string) Action {
	return func(x *Exchange) {
		x.note("scripted answer, not applied")
		x.Send(Answer{Status: status, Body: []byte(document)})
	}
}

// Refuse returns an action that answers with an error of the API. The request is not applied.
func Refuse(status int, code, message string) Action {
	return func(x *Exchange) {
		x.note("scripted error, not applied")
		x.Send(refusal(status, code, message))
	}
}

// RetryAfter returns an action that answers with an error of the API and the header Retry-After.
func RetryAfter(status, seconds int) Action {
	return func(x *Exchange) {
		x.note("scripted error with Retry-After, not applied")
		a := refusal(status, "UNAVAILABLE", "the server is overloaded: retry later")
		a.Header = map[string]string{"Retry-After": strconv.Itoa(seconds)}
		x.Send(a)
	}
}

// Slow returns an action that applies the request and answers after d.
func Slow(d time.Duration) Action {
	return func(x *Exchange) {
		x.note(fmt.Sprintf("answered after %s", d))
		a := x.Apply()
		rest(x.ctx, d)
		x.Send(a)
	}
}

// Change returns an action that applies the request and changes the object in its answer.
func Change(f func(q Request, answer map[string]any)) Action {
	return func(x *Exchange) {
		x.note("changed answer")
		a := x.Apply()
		var object map[string]any
		if json.Unmarshal(a.Body, &object) == nil {
			f(*x.Request, object)
			a.Body = encode(object)
		}
		x.Send(a)
	}
}

// InsteadOf returns an action that does not apply the request and answers with an object.
func InsteadOf(f func(q Request) any) Action {
	return func(x *Exchange) {
		x.note("scripted answer, not applied")
		x.Send(Answer{Status: http.StatusOK, Body: encode(f(*x.Request))})
	}
}

func refusal(status int, code, message string) Answer {
	body := map[string]any{"error": map[string]any{"code": code, "message": message}}
	return Answer{Status: status, Body: encode(body)}
}

func encode(v any) []byte {
	doc, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("encode a scripted document: %v", err)) // a mistake in a case
	}
	return doc
}

// withExtraKeys adds an unknown key to each object of a document, except inside of inputs.
func withExtraKeys(doc []byte) []byte {
	var value any
	if json.Unmarshal(doc, &value) != nil {
		return doc
	}
	return encode(extended(value))
}

// inputs are the keys whose values belong to the user.
var inputs = map[string]bool{"context": true, "initialization": true, "dependency_results": true, "item": true, "checkpoint": true}

func extended(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, element := range v {
			if !inputs[key] && key != "dependency_result_refs" {
				v[key] = extended(element)
			}
		}
		v["key_of_a_newer_server"] = map[string]any{"nested": []any{1, "two", nil}}
	case []any:
		for i, element := range v {
			v[i] = extended(element)
		}
	}
	return value
}
