package sink

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/httpclient"
)

const (
	// defaultTimeout bounds one event, from the name's resolution to the answer.
	defaultTimeout = 5 * time.Second

	// bodyPatience is how long an answer's body is waited for: it says nothing
	// that decides.
	bodyPatience = time.Second

	// mostBody is how much of an answer is read, mostExcerpt how much of that is
	// shown in an error, and mostCause how much of an error of the network.
	mostBody    = 4 << 10
	mostExcerpt = 300
	mostCause   = 500

	// mostHeader is how large the head of an answer may be.
	mostHeader = 64 << 10

	// mostBuffered is how much of an answer HTTP/2 may send ahead; it is the least
	// that can be configured.
	mostBuffered = 64 << 10

	// longestWait is the longest rest that a receiver may ask for.
	longestWait = time.Hour

	// tokenLength is from which length a part of a path may be a key, and
	// valueLength a parameter of a query.
	tokenLength = 16
	valueLength = 6
)

// WebhookOptions configures a webhook. Zero fields but URL are defaults.
type WebhookOptions struct {
	URL          string        // https, or http if AllowPrivate
	Secret       string        // with blanks between several, all of which sign; none: no signature
	Timeout      time.Duration // of one event; 5 s
	AllowPrivate bool          // the receiver may be in this network, or on this machine
	Source       string        // of the events; tasker
	Version      string        // of this program, for the receiver's log
	Name         string        // of the sink; webhook
	Form         Format        // cloudevents
	Key          string        // of the form pagerduty: the routing key
	PublicURL    string        // where browsers reach this installation; none: messages have no link
}

// webhook posts events to one URL.
type webhook struct {
	o       WebhookOptions
	client  *http.Client
	signers signers
	name    string // of the receiver in errors: its URL may hold secrets, so only scheme and host
	hide    *strings.Replacer
}

// NewWebhook returns a sink that posts each event as CloudEvents JSON, or each message in
// another form, signed as Standard Webhooks has it if there is a secret. An answer 2xx confirms it. Redirects are not
// followed. Unless private addresses are allowed, only addresses of the public
// internet are connected to, with TLS; proxies of the environment are not used.
func NewWebhook(o WebhookOptions) (Sink, error) {
	o.Name = cmp.Or(o.Name, "webhook")
	switch o.Form {
	case PagerDuty:
		o.URL = cmp.Or(o.URL, pagerDutyURL)
	case Alertmanager:
		if u, err := url.Parse(o.URL); err == nil && strings.Trim(u.Path, "/") == "" {
			o.URL = u.JoinPath("/api/v2/alerts").String()
		}
	default:
	}
	u, err := readURL(o.URL, o.AllowPrivate)
	if err != nil {
		return nil, err
	}
	signers, err := newSigners(o.Secret)
	if err != nil {
		return nil, err
	}
	if o.Timeout < 0 {
		return nil, tasker.Errorf(tasker.Invalid, "the timeout of the webhook must be positive, not %s", o.Timeout)
	}
	o.URL = u.String()
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	o.Version = cmp.Or(o.Version, "dev")
	w := &webhook{
		o: o, client: newClient(o), signers: signers,
		name: u.Scheme + "://" + u.Host,
		hide: scrubbedError(u, o.Secret+" "+o.Key),
	}
	if o.Form == Alertmanager {
		return repeating{w}, nil
	}
	return w, nil
}

// repeating tells again what goes on: Alertmanager lets an alert end that it does not hear of.
type repeating struct{ *webhook }

// RepeatEvery is once a minute.
func (repeating) RepeatEvery() time.Duration { return alertEvery }

// Repeat posts the message with a new end.
func (r repeating) Repeat(ctx context.Context, e tasker.Event) error { return r.Emit(ctx, e) }

// readURL checks the URL. Its errors show only scheme and host.
func readURL(text string, allowPrivate bool) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, tasker.Errorf(tasker.Invalid, "the URL of the webhook cannot be read: it must be https://host/path")
	}
	fault := ""
	address, numeric := netip.ParseAddr(u.Hostname())
	switch {
	case u.Scheme != "https" && u.Scheme != "http":
		fault = "must begin with https://"
	case u.Hostname() == "":
		fault = "names no host"
	case u.User != nil:
		fault = "must hold no user and no password: give the webhook a secret, which signs"
	case u.Fragment != "":
		fault = "must have no fragment (#): it would not be sent"
	case !validPort(u.Port()):
		fault = "has an invalid port"
	case u.Scheme == "http" && !allowPrivate:
		fault = "must begin with https://, unless private addresses are allowed: everybody on the way could read the events"
	case numeric == nil && !allowPrivate && !public(address):
		fault = fmt.Sprintf("leads to %s, which is %v: allow private addresses if it is meant", address, errPrivate)
	}
	if fault != "" {
		return nil, tasker.Errorf(tasker.Invalid, "the URL of the webhook %s", fault)
	}
	return u, nil
}

func validPort(port string) bool {
	if port == "" {
		return true
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0
}

// scrubbedError replaces secrets in texts, which receivers may echo in errors.
func scrubbedError(u *url.URL, secrets string) *strings.Replacer {
	var words []string
	for secret := range strings.FieldsSeq(secrets) {
		words = append(words, secret, strings.TrimPrefix(secret, encodedSecret))
	}
	words = append(words, u.RawQuery)
	for _, values := range u.Query() {
		for _, value := range values {
			if len(value) >= valueLength {
				words = append(words, value, url.QueryEscape(value))
			}
		}
	}
	for part := range strings.SplitSeq(u.EscapedPath(), "/") {
		if len(part) >= tokenLength {
			plain, _ := url.PathUnescape(part) // it has been parsed before
			words = append(words, part, plain)
		}
	}
	slices.SortFunc(words, func(a, b string) int { return len(b) - len(a) }) // or a part of one could stay
	var pairs []string
	for _, word := range words {
		if word != "" {
			pairs = append(pairs, word, "[hidden]")
		}
	}
	return strings.NewReplacer(pairs...)
}

// newClient returns a client with strict time and size limits.
func newClient(o WebhookOptions) *http.Client {
	dialer := guardedDialer(o.Timeout)
	if o.AllowPrivate {
		dialer = &net.Dialer{Timeout: o.Timeout}
	}
	return httpclient.New(func(t *http.Transport) {
		t.Proxy = nil // it would connect where the guard does not see
		t.DialContext = dialer.DialContext
		t.HTTP2 = &http.HTTP2Config{
			MaxReceiveBufferPerConnection: mostBuffered, MaxReceiveBufferPerStream: mostBuffered,
			SendPingTimeout: o.Timeout, PingTimeout: o.Timeout,
		}
		t.DisableCompression = true       // a small answer must not become a large one
		t.TLSHandshakeTimeout = o.Timeout // connecting continues after the deadline of the event
		t.MaxResponseHeaderBytes = mostHeader
		t.MaxIdleConnsPerHost = 100 // as many as may be at work at once
		t.IdleConnTimeout = time.Minute
	})
}

// Name is webhook, unless the sink has another.
func (w *webhook) Name() string { return w.o.Name }

// Close closes idle connections; the others end with their event.
func (w *webhook) Close() error {
	w.client.CloseIdleConnections()
	return nil
}

// Emit posts the event.
func (w *webhook) Emit(ctx context.Context, e tasker.Event) error {
	body, kind, err := w.o.Form.encode(e, w.o, time.Now())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, w.o.Timeout, fmt.Errorf("no answer within %s", w.o.Timeout))
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.o.URL, bytes.NewReader(body))
	if err != nil {
		return tasker.Errorf(tasker.Internal, "the webhook's request cannot be made") // the cause quotes the URL
	}
	request.Header.Set("Content-Type", kind)
	w.setHeaders(request.Header, e.UUID.String(), body)
	response, err := w.client.Do(request)
	if err != nil {
		w.client.CloseIdleConnections() // with HTTP/2 a dead one would be used again
		return w.unreachable(ctx, err)
	}
	defer response.Body.Close()
	patience := time.AfterFunc(bodyPatience, cancel)
	defer patience.Stop()
	beginning, _ := io.ReadAll(io.LimitReader(response.Body, mostBody)) // as much as comes
	if response.StatusCode/100 == 2 {
		return nil
	}
	return w.answered(response, beginning)
}

// setHeaders sets the headers: who sends it, and that it is true.
func (w *webhook) setHeaders(h http.Header, id string, body []byte) {
	timestamp := strconv.FormatInt(time.Now().Unix(), 10)
	h.Set("User-Agent", "tasker/"+w.o.Version)
	h.Set("webhook-id", id)
	h.Set("webhook-timestamp", timestamp)
	if len(w.signers) > 0 {
		h.Set("webhook-signature", w.signers.sign(id, timestamp, body))
	}
}

// unreachable is the error for an event that got no answer.
func (w *webhook) unreachable(ctx context.Context, err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err // the wrapping shows the whole URL
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	hint := ""
	if errors.Is(err, errPrivate) {
		hint = ": allow private addresses if it is meant"
	}
	return &failure{err: &tasker.Error{
		Code:    tasker.Unavailable,
		Message: fmt.Sprintf("%s: %s%s", w.name, oneLine(w.hide.Replace(err.Error()), mostCause), hint),
	}}
}

// answered is the error for an answer other than 2xx.
func (w *webhook) answered(r *http.Response, beginning []byte) error {
	text := fmt.Sprintf("%s answered %d", w.name, r.StatusCode)
	if name := http.StatusText(r.StatusCode); name != "" {
		text += " " + name
	}
	if r.StatusCode/100 == 3 {
		text += ", and redirects are not followed: configure the address where it leads"
		if to, err := r.Location(); err == nil {
			text += oneLine(", at "+to.Scheme+"://"+to.Host, mostExcerpt)
		}
	}
	if excerpt := oneLine(w.hide.Replace(string(beginning)), mostExcerpt); excerpt != "" {
		text += ": " + excerpt
	}
	f := &failure{refused: refusedBy(r.StatusCode)}
	code := tasker.Unavailable
	if f.refused {
		code = tasker.Invalid
	}
	if r.StatusCode == http.StatusTooManyRequests || r.StatusCode == http.StatusServiceUnavailable {
		f.after = retryAfter(r.Header, time.Now())
	}
	f.err = &tasker.Error{Code: code, Message: text}
	return f
}

// refusedBy reports whether a status rejects the event itself, not the key or path.
func refusedBy(status int) bool {
	switch status {
	case http.StatusBadRequest, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType,
		http.StatusUnprocessableEntity:
		return true
	default:
		return false
	}
}

// retryAfter reads the header of that name, which has seconds or an instant. The
// instant is by the receiver's clock, which its answer shows, too.
func retryAfter(h http.Header, now time.Time) time.Duration {
	text := strings.TrimSpace(h.Get("Retry-After"))
	if seconds, err := strconv.ParseUint(text, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(min(seconds, uint64(longestWait/time.Second))) * time.Second
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	if theirs, err := http.ParseTime(h.Get("Date")); err == nil {
		now = theirs
	}
	return min(max(at.Sub(now), 0), longestWait)
}
