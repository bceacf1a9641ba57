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
	// defaultTimeout limits one event, from name resolution to the response.
	defaultTimeout = 5 * time.Second

	// bodyTimeout limits reading a response body, which is used in errors only.
	bodyTimeout = time.Second

	maxBody    = 4 << 10 // read bytes of a response body
	maxExcerpt = 300     // bytes of it in an error
	maxCause   = 500     // bytes of a network error

	maxHeader   = 64 << 10 // bytes of response headers
	maxBuffered = 64 << 10 // receive window of HTTP/2; the minimum

	maxRetryAfter = time.Hour

	tokenLength = 16 // minimum length of a path segment that may be a secret
	valueLength = 6  // minimum length of a query value that may be a secret
)

// WebhookOptions configures a webhook. All fields but URL are optional.
type WebhookOptions struct {
	URL          string        // https, or also http with AllowPrivate
	Secret       string        // space-separated secrets, all of which sign; if empty, requests are not signed
	Timeout      time.Duration // of one event; default 5 s
	AllowPrivate bool          // allows private and local addresses
	Source       string        // source of the events; default tasker
	Version      string        // of this program, for the User-Agent
	Name         string        // of the sink; default webhook
	Form         Format        // default cloudevents
	Key          string        // routing key of the format pagerduty
	PublicURL    string        // of this installation, for links in messages
}

// webhook posts events to one URL.
type webhook struct {
	o       WebhookOptions
	client  *http.Client
	signers signers
	name    string // scheme and host; the rest of the URL may contain secrets
	hide    *strings.Replacer
}

// NewWebhook returns a sink that posts each event as CloudEvents JSON, or each notification in
// another format. If a secret is set, it signs requests according to Standard Webhooks. A 2xx
// response confirms an event. It does not follow redirects. Unless private addresses are allowed,
// it connects only to public addresses and only with TLS. It ignores proxy variables.
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
		return nil, tasker.Errorf(tasker.Invalid, "invalid webhook timeout %s: must be positive", o.Timeout)
	}
	o.URL = u.String()
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	o.Version = cmp.Or(o.Version, "dev")
	w := &webhook{
		o: o, client: newClient(o), signers: signers,
		name: u.Scheme + "://" + u.Host,
		hide: newErrorScrubber(u, o.Secret+" "+o.Key),
	}
	if o.Form == Alertmanager {
		return repeating{w}, nil
	}
	return w, nil
}

// repeating repeats ongoing alerts, because Alertmanager ends alerts that are not repeated.
type repeating struct{ *webhook }

// RepeatEvery returns one minute.
func (repeating) RepeatEvery() time.Duration { return alertEvery }

// Repeat posts the notification with a new end time.
func (r repeating) Repeat(ctx context.Context, e tasker.Event) error { return r.Emit(ctx, e) }

// readURL parses and validates the URL. Errors contain only scheme and host.
func readURL(text string, allowPrivate bool) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, tasker.Errorf(tasker.Invalid, "invalid webhook URL: must be https://host/path")
	}
	fault := ""
	address, numeric := netip.ParseAddr(u.Hostname())
	switch {
	case u.Scheme != "https" && u.Scheme != "http":
		fault = "must begin with https://"
	case u.Hostname() == "":
		fault = "must include a host"
	case u.User != nil:
		fault = "must not contain a user or password: set a secret for the webhook instead"
	case u.Fragment != "":
		fault = "must not contain a fragment (#), which would not be sent"
	case !isValidPort(u.Port()):
		fault = "has an invalid port"
	case u.Scheme == "http" && !allowPrivate:
		fault = "must begin with https:// unless private addresses are allowed, because the events would be unencrypted"
	case numeric == nil && !allowPrivate && !isPublic(address):
		fault = fmt.Sprintf("points to %s, which is %v: allow private addresses if this is "+
			"intended", address, errPrivate)
	}
	if fault != "" {
		return nil, tasker.Errorf(tasker.Invalid, "the webhook URL %s", fault)
	}
	return u, nil
}

func isValidPort(port string) bool {
	if port == "" {
		return true
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0
}

// newErrorScrubber returns a replacer that hides secrets in errors, because receivers may echo them
// in responses.
func newErrorScrubber(u *url.URL, secrets string) *strings.Replacer {
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
			plain, _ := url.PathUnescape(part) // cannot fail: the URL was parsed
			words = append(words, part, plain)
		}
	}
	slices.SortFunc(words, func(a, b string) int { return len(b) - len(a) }) // longest first, to replace them completely
	var pairs []string
	for _, word := range words {
		if word != "" {
			pairs = append(pairs, word, "[hidden]")
		}
	}
	return strings.NewReplacer(pairs...)
}

func newClient(o WebhookOptions) *http.Client {
	dialer := guardedDialer(o.Timeout)
	if o.AllowPrivate {
		dialer = &net.Dialer{Timeout: o.Timeout}
	}
	return httpclient.New(func(t *http.Transport) {
		t.Proxy = nil // the guard cannot check connections of a proxy
		t.DialContext = dialer.DialContext
		t.HTTP2 = &http.HTTP2Config{
			MaxReceiveBufferPerConnection: maxBuffered, MaxReceiveBufferPerStream: maxBuffered,
			SendPingTimeout: o.Timeout, PingTimeout: o.Timeout,
		}
		t.DisableCompression = true       // limits the size of a response
		t.TLSHandshakeTimeout = o.Timeout // a handshake outlives the deadline of the event
		t.MaxResponseHeaderBytes = maxHeader
		t.MaxIdleConnsPerHost = 100 // the maximum number of concurrent events
		t.IdleConnTimeout = time.Minute
	})
}

// Name returns the configured name or "webhook".
func (w *webhook) Name() string { return w.o.Name }

// Close closes idle connections; active ones end with their event.
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
	ctx, cancel := context.WithTimeoutCause(ctx, w.o.Timeout, fmt.Errorf("no response within %s", w.o.Timeout))
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.o.URL, bytes.NewReader(body))
	if err != nil {
		return tasker.Errorf(tasker.Internal, "cannot create the webhook request") // err contains the URL
	}
	request.Header.Set("Content-Type", kind)
	w.setHeaders(request.Header, e.UUID.String(), body)
	response, err := w.client.Do(request)
	if err != nil {
		w.client.CloseIdleConnections() // HTTP/2 would reuse a dead connection
		return w.newUnreachableError(ctx, err)
	}
	defer response.Body.Close()
	timer := time.AfterFunc(bodyTimeout, cancel)
	defer timer.Stop()
	beginning, _ := io.ReadAll(io.LimitReader(response.Body, maxBody)) // a partial body suffices
	if response.StatusCode/100 == 2 {
		return nil
	}
	return w.checkResponse(response, beginning)
}

// setHeaders sets User-Agent and the Standard Webhooks headers.
func (w *webhook) setHeaders(h http.Header, id string, body []byte) {
	timestamp := strconv.FormatInt(time.Now().Unix(), 10)
	h.Set("User-Agent", "tasker/"+w.o.Version)
	h.Set("webhook-id", id)
	h.Set("webhook-timestamp", timestamp)
	if len(w.signers) > 0 {
		h.Set("webhook-signature", w.signers.sign(id, timestamp, body))
	}
}

// newUnreachableError converts err, which occurred because no response arrived, to an error that
// contains no secrets.
func (w *webhook) newUnreachableError(ctx context.Context, err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err // url.Error contains the whole URL
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	hint := ""
	if errors.Is(err, errPrivate) {
		hint = ": allow private addresses if this is intended"
	}
	return &failure{err: &tasker.Error{
		Code:    tasker.Unavailable,
		Message: fmt.Sprintf("%s: %s%s", w.name, toOneLine(w.hide.Replace(err.Error()), maxCause), hint),
	}}
}

// checkResponse returns the error for a response other than 2xx.
func (w *webhook) checkResponse(r *http.Response, beginning []byte) error {
	text := fmt.Sprintf("%s responded with %d", w.name, r.StatusCode)
	if name := http.StatusText(r.StatusCode); name != "" {
		text += " " + name
	}
	if r.StatusCode/100 == 3 {
		text += ", and redirects are not followed: configure the address where it leads"
		if to, err := r.Location(); err == nil {
			text += toOneLine(", at "+to.Scheme+"://"+to.Host, maxExcerpt)
		}
	}
	if excerpt := toOneLine(w.hide.Replace(string(beginning)), maxExcerpt); excerpt != "" {
		text += ": " + excerpt
	}
	f := &failure{refused: isRefusalStatus(r.StatusCode)}
	code := tasker.Unavailable
	if f.refused {
		code = tasker.Invalid
	}
	if r.StatusCode == http.StatusTooManyRequests || r.StatusCode == http.StatusServiceUnavailable {
		f.after = parseRetryAfter(r.Header, time.Now())
	}
	f.err = &tasker.Error{Code: code, Message: text}
	return f
}

// isRefusalStatus reports whether a status means that the event itself is rejected, rather than the
// key or the path.
func isRefusalStatus(status int) bool {
	return slices.Contains([]int{
		http.StatusBadRequest, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType,
		http.StatusUnprocessableEntity,
	}, status)
}

// parseRetryAfter parses the Retry-After header, in seconds or as a time. The time is relative to
// the receiver's clock in the Date header.
func parseRetryAfter(h http.Header, now time.Time) time.Duration {
	text := strings.TrimSpace(h.Get("Retry-After"))
	if seconds, err := strconv.ParseUint(text, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(min(seconds, uint64(maxRetryAfter/time.Second))) * time.Second
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	if theirs, err := http.ParseTime(h.Get("Date")); err == nil {
		now = theirs
	}
	return min(max(at.Sub(now), 0), maxRetryAfter)
}
