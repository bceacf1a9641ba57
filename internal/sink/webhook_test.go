package sink

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/httpclient"
)

// webhookTo returns a sink for a receiver on this machine.
func webhookTo(t *testing.T, o WebhookOptions) Sink {
	t.Helper()
	o.AllowPrivate = true
	s, err := NewWebhook(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// receive starts a receiver that has read the whole request before it answers.
func receive(t *testing.T, answer func(http.ResponseWriter, *http.Request, []byte)) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(reading(t, answer))
	t.Cleanup(server.Close)
	return server
}

func reading(t *testing.T, answer func(http.ResponseWriter, *http.Request, []byte)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("read the request: %v", err)
		}
		answer(w, r, body)
	}
}

// receiveTLS is receive with a certificate that the sink trusts.
func receiveTLS(t *testing.T, h2 bool, o WebhookOptions, answer func(http.ResponseWriter, *http.Request, []byte)) Sink {
	t.Helper()
	server := httptest.NewUnstartedServer(reading(t, answer))
	server.EnableHTTP2 = h2
	server.StartTLS()
	t.Cleanup(server.Close)
	o.URL = server.URL
	s := webhookTo(t, o)
	trusting := server.Client().Transport.(*http.Transport).TLSClientConfig
	s.(*webhook).client.Transport.(httpclient.Transport).RoundTripper.(*http.Transport).TLSClientConfig = trusting.Clone()
	return s
}

func TestAReceiverGetsTheWholeEvent(t *testing.T) {
	noLeaks(t)
	const raw, encoded = "a-secret-of-the-receiver", "dGhlIG5ldyBzZWNyZXQ="
	e := event(9, "dlq.entry.created\r\nX-Injected: yes")
	got := make(chan *http.Request, 1)
	var body []byte
	server := receive(t, func(w http.ResponseWriter, r *http.Request, b []byte) {
		body = b
		got <- r
		w.WriteHeader(http.StatusAccepted)
	})
	s := webhookTo(t, WebhookOptions{URL: server.URL + "/in?key=geheim", Secret: "whsec_" + encoded + "  " + raw, Source: "here", Version: "1.2"})
	if err := s.Emit(t.Context(), e); err != nil || s.Name() != "webhook" {
		t.Fatal(err)
	}
	r := <-got
	want, err := CloudEvent(e, "here")
	if err != nil || string(body) != string(want) {
		t.Errorf("body = %s", body)
	}
	for name, value := range map[string]string{
		"Content-Type": "application/cloudevents+json", "User-Agent": "tasker/1.2", "Webhook-Id": e.UUID.String(), "X-Injected": "",
	} {
		if r.Header.Get(name) != value {
			t.Errorf("%s = %q", name, r.Header.Get(name))
		}
	}
	if r.Method != http.MethodPost || r.URL.String() != "/in?key=geheim" {
		t.Errorf("%s %s", r.Method, r.URL)
	}

	// As a receiver computes it, from nothing but the request and its secret.
	timestamp := r.Header.Get("webhook-timestamp")
	var sent int64
	if _, err := fmt.Sscan(timestamp, &sent); err != nil || time.Since(time.Unix(sent, 0)).Abs() > time.Hour {
		t.Errorf("timestamp %q: %v", timestamp, err)
	}
	var signatures []string
	for _, secret := range []string{"the new secret", raw} {
		mac := hmac.New(sha256.New, []byte(secret))
		fmt.Fprintf(mac, "%s.%s.%s", r.Header.Get("webhook-id"), timestamp, body)
		signatures = append(signatures, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	if h := r.Header.Get("webhook-signature"); h != strings.Join(signatures, " ") {
		t.Errorf("signature = %q", h)
	}
}

// TestTheSignatureOfTheSpecification has the values that other implementations of
// Standard Webhooks test against.
func TestTheSignatureOfTheSpecification(t *testing.T) {
	s, err := newSigners("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	got := s.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", []byte(`{"test": 2432232314}`))
	if want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestWithoutASecretThereIsNoSignature(t *testing.T) {
	noLeaks(t)
	server := receive(t, func(w http.ResponseWriter, r *http.Request, _ []byte) {
		if _, ok := r.Header["Webhook-Signature"]; ok {
			w.WriteHeader(http.StatusTeapot)
		}
	})
	if err := webhookTo(t, WebhookOptions{URL: server.URL}).Emit(t.Context(), event(1, "x")); err != nil {
		t.Error(err)
	}
}

func TestWhatAnswersMean(t *testing.T) {
	noLeaks(t)
	answer := func(status int, header ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			for i := 0; i < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(status)
			fmt.Fprintf(w, "no\x1b[31m\n\n way: %s %s", r.URL, "s3cret")
		}
	}
	const refused, unavailable = tasker.Invalid, tasker.Unavailable
	const date, later, earlier = "Wed, 04 Mar 2026 04:00:00 GMT", "Wed, 04 Mar 2026 04:01:30 GMT", "Wed, 04 Mar 2026 03:00:00 GMT"
	for _, tt := range []struct {
		name   string
		answer http.HandlerFunc
		want   tasker.Code
		after  time.Duration
		says   string
	}{
		{"200", answer(200), "", 0, ""},
		{"201", answer(201), "", 0, ""},
		{"299", answer(299), "", 0, ""},
		{"304", answer(304), unavailable, 0, "responded with 304 Not Modified"},
		{"302", answer(302, "Location", "http://127.0.0.1:1/inside?token=geheim"), unavailable, 0, "redirects are not followed: configure the address where it leads, at http://127.0.0.1:1:"},
		{"307", answer(307, "Location", "/elsewhere"), unavailable, 0, "redirects are not followed"},
		{"400", answer(400), refused, 0, "responded with 400 Bad Request: no way: /hook?[hidden] [hidden]"},
		{"401", answer(401), unavailable, 0, "401 Unauthorized"},
		{"404", answer(404), unavailable, 0, "404 Not Found"},
		{"408", answer(408), unavailable, 0, "408"},
		{"410", answer(410, "Retry-After", "10"), unavailable, 0, "410"},
		{"413", answer(413), refused, 0, "413"},
		{"422", answer(422), refused, 0, "422"},
		{"425", answer(425), unavailable, 0, "425"},
		{"429", answer(429), unavailable, 0, "429"},
		{"429 with seconds", answer(429, "Retry-After", " 90 "), unavailable, 90 * time.Second, "429"},
		{"429 with many seconds", answer(429, "Retry-After", "99999999999999999999999"), unavailable, time.Hour, "429"},
		{"429 with words", answer(429, "Retry-After", "soon"), unavailable, 0, "429"},
		{"429 with less than nothing", answer(429, "Retry-After", "-5"), unavailable, 0, "429"},
		{"429 with an instant", answer(429, "Retry-After", later, "Date", date), unavailable, 90 * time.Second, "429"},
		{"503 with an instant", answer(503, "Retry-After", later, "Date", date), unavailable, 90 * time.Second, "503"},
		{"503 with one that has passed", answer(503, "Retry-After", earlier, "Date", date), unavailable, 0, "503"},
		{"503 with one far away", answer(503, "Retry-After", "Fri, 31 Dec 9999 23:59:59 GMT", "Date", date), unavailable, time.Hour, "503"},
		{"500", answer(500, "Retry-After", "10"), unavailable, 0, "500 Internal Server Error: no"},
		{"599", answer(599), unavailable, 0, "responded with 599: no"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := httptest.NewServer(tt.answer)
			defer server.Close()
			s := webhookTo(t, WebhookOptions{URL: server.URL + "/hook?token=geheimnis", Secret: "s3cret"})
			err := s.Emit(t.Context(), event(1, "dlq.entry.created"))
			if tasker.CodeOf(err) != tt.want || IsRefused(err) != (tt.want == refused) || RetryAfter(err) != tt.after {
				t.Errorf("%v: refused %v, after %s", err, IsRefused(err), RetryAfter(err))
			}
			if err == nil {
				return
			}
			if text := err.Error(); !strings.Contains(text, tt.says) || strings.Contains(text, "geheim") || strings.Contains(text, "s3cret") ||
				strings.ContainsAny(text, "\x1b\n") {
				t.Errorf("error %q, want %q", text, tt.says)
			}
		})
	}
}

func TestARedirectIsNotFollowed(t *testing.T) {
	noLeaks(t)
	var inside atomic.Int32
	target := receive(t, func(http.ResponseWriter, *http.Request, []byte) { inside.Add(1) })
	for _, status := range []int{301, 302, 303, 307, 308} {
		server := receive(t, func(w http.ResponseWriter, r *http.Request, _ []byte) { http.Redirect(w, r, target.URL, status) })
		if err := webhookTo(t, WebhookOptions{URL: server.URL}).Emit(t.Context(), event(1, "x")); err == nil ||
			IsRefused(err) {
			t.Errorf("%d: %v", status, err)
		}
	}
	if inside.Load() != 0 {
		t.Error("the redirect was followed")
	}
}

func TestPrivateAddressesAreNotConnectedTo(t *testing.T) {
	noLeaks(t)
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	t.Setenv("https_proxy", "http://127.0.0.1:1")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var connections atomic.Int32
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			connections.Add(1)
			_ = conn.Close()
		}
	})
	_, port, _ := net.SplitHostPort(l.Addr().String())
	for _, host := range []string{"localhost", "LOCALHOST.", "2130706433", "0x7f000001", "0177.0.0.1", "127.1"} {
		s, err := NewWebhook(WebhookOptions{URL: "https://" + net.JoinHostPort(host, port) + "/?token=geheim"})
		if err != nil {
			t.Fatal(err)
		}
		err = s.Emit(t.Context(), event(1, "x"))
		if tasker.CodeOf(err) != tasker.Unavailable || IsRefused(err) || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s: %v", host, err)
		}
		if host == "localhost" && !strings.Contains(err.Error(), "not a public internet address: allow private addresses") {
			t.Errorf("%s: %v", host, err)
		}
		_ = s.Close()
	}
	_ = l.Close()
	all.Wait()
	if n := connections.Load(); n > 0 {
		t.Errorf("connected %d times", n)
	}
}

func TestURLsThatAreRefused(t *testing.T) {
	for address, says := range map[string]string{
		"":                                    "must begin with https://",
		"file:///etc/passwd":                  "must begin with https://",
		"gopher://example.com/geheim":         "must begin with https://",
		"https:///geheim":                     "must include a host",
		"https:geheim":                        "must include a host",
		"http://example.com/geheim":           "must begin with https:// unless",
		"https://user:geheim@example.com/":    "must not contain a user or password",
		"https://geheim@example.com/":         "must not contain a user or password",
		"https://example.com/#geheim":         "must not contain a fragment",
		"https://example.com:99999/geheim":    "port",
		"https://example.com:0/geheim":        "port",
		"https://example.com:x/geheim":        "invalid webhook URL",
		"https://exa mple.com/geheim":         "invalid webhook URL",
		"https://127.0.0.1/geheim":            "points to 127.0.0.1",
		"https://[::1]/geheim":                "points to ::1",
		"https://[::ffff:169.254.169.254]/":   "not a public internet address",
		"https://10.1.2.3:8443/geheim?geheim": "points to 10.1.2.3",
	} {
		_, err := NewWebhook(WebhookOptions{URL: address})
		if tasker.CodeOf(err) != tasker.Invalid || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%q: %v", address, err)
		}
	}
	if _, err := NewWebhook(WebhookOptions{URL: "https://example.com", Secret: "ok whsec_geheim!"}); tasker.CodeOf(err) != tasker.Invalid ||
		strings.Contains(err.Error(), "geheim") || !strings.Contains(err.Error(), "secret 2") {
		t.Errorf("a secret that is not base64: %v", err)
	}
	if _, err := NewWebhook(WebhookOptions{URL: "https://example.com", Timeout: -1}); tasker.CodeOf(err) != tasker.Invalid {
		t.Errorf("a negative timeout: %v", err)
	}
	if s, err := NewWebhook(WebhookOptions{URL: "https://example.com/hook?a=b"}); err != nil || s.Close() != nil {
		t.Errorf("a good one: %v", err)
	}
}

func TestAReceiverThatHangs(t *testing.T) {
	noLeaks(t)
	handler := func(_ http.ResponseWriter, r *http.Request, _ []byte) {
		<-r.Context().Done()
		panic(http.ErrAbortHandler) // an answer would reach a client that is about to close its connection
	}
	o := WebhookOptions{Timeout: 200 * time.Millisecond}
	o.URL = receive(t, handler).URL + "/?token=geheim"
	sinks := map[string]Sink{"HTTP/1.1": webhookTo(t, o), "TLS": receiveTLS(t, false, o, handler), "HTTP/2": receiveTLS(t, true, o, handler)}
	for name, s := range sinks {
		err := s.Emit(t.Context(), event(1, "x"))
		if tasker.CodeOf(err) != tasker.Unavailable || IsRefused(err) || !strings.Contains(err.Error(), "no response within 200ms") ||
			strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := sinks["TLS"].Emit(ctx, event(1, "x")); err == nil || !strings.Contains(err.Error(), "context canceled") {
		t.Errorf("cancelled: %v", err)
	}
}

func TestAReceiverThatTakesTheConnectionAndNoMore(t *testing.T) {
	noLeaks(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, scheme := range []string{"http://", "https://"} {
		s := webhookTo(t, WebhookOptions{URL: scheme + l.Addr().String(), Timeout: 100 * time.Millisecond})
		if err := s.Emit(t.Context(), event(1, "x")); tasker.CodeOf(err) != tasker.Unavailable || IsRefused(err) {
			t.Errorf("%s: %v", scheme, err)
		}
	}
}

// flooded is how much a receiver can put on its way before it notices that
// nobody reads it: the buffers of the operating system and of HTTP/2.
const flooded = 32 << 20

// endless answers a status, and then with 1 GB, or with one byte now and then for
// as long as the other side stays.
func endless(status int, drip bool, written *atomic.Int64, ended chan<- struct{}) func(http.ResponseWriter, *http.Request, []byte) {
	return func(w http.ResponseWriter, r *http.Request, _ []byte) {
		defer func() { ended <- struct{}{} }()
		w.WriteHeader(status)
		chunk := []byte(strings.Repeat("x", 64<<10))
		if drip {
			chunk = chunk[:1]
		}
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for drip || written.Load() < 1<<30 {
			n, err := w.Write(chunk)
			written.Add(int64(n))
			if err == nil {
				err = http.NewResponseController(w).Flush()
			}
			if err != nil {
				return
			}
			if !drip {
				continue
			}
			select {
			case <-tick.C:
			case <-r.Context().Done():
				return
			}
		}
	}
}

func TestAnswersWithoutEnd(t *testing.T) {
	noLeaks(t)
	for _, drip := range []bool{true, false} {
		for _, h2 := range []bool{true, false} {
			for _, status := range []int{200, 500} {
				t.Run(fmt.Sprintf("drip %v, HTTP/2 %v, status %d", drip, h2, status), func(t *testing.T) {
					var written atomic.Int64
					ended := make(chan struct{}, 1)
					s := receiveTLS(t, h2, WebhookOptions{Timeout: time.Minute}, endless(status, drip, &written, ended))
					err := s.Emit(t.Context(), event(1, "x"))
					if (err == nil) != (status == 200) || IsRefused(err) || (err != nil && len(err.Error()) > 500) {
						t.Error(err)
					}
					<-ended // because we have hung up
					if n := written.Load(); n > flooded {
						t.Errorf("the receiver could send %d bytes", n)
					}
				})
			}
		}
	}
}

// A receiver that answers 101 and leaves the connection open does not keep a sink of any form.
func TestSwitchingProtocolsFailsAnEvent(t *testing.T) {
	noLeaks(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		connection, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer connection.Close()
		fmt.Fprint(connection, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")
		_, _ = io.Copy(io.Discard, connection) // until the sink closes it
	}))
	t.Cleanup(server.Close)
	for _, form := range forms {
		s := webhookTo(t, WebhookOptions{URL: server.URL, Form: form, Key: "k", Timeout: time.Minute})
		if err := s.Emit(t.Context(), aMessage(tasker.CaseOpenedTopic)); tasker.CodeOf(err) != tasker.Unavailable || IsRefused(err) || !strings.Contains(err.Error(), "101 Switching Protocols") {
			t.Errorf("%s: %v", form, err)
		}
	}
}

// TestAHeadWithoutEnd is about a receiver that speaks no HTTP to the end.
func TestAHeadWithoutEnd(t *testing.T) {
	noLeaks(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var written int
	var all sync.WaitGroup
	all.Go(func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		all.Go(func() { _, _ = io.Copy(io.Discard, conn) })
		n, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\n")
		for err == nil && written < 1<<30 {
			written += n
			n, err = io.WriteString(conn, "X-More: "+strings.Repeat("x", 1000)+"\r\n")
		}
	})
	s := webhookTo(t, WebhookOptions{URL: "http://" + l.Addr().String(), Timeout: time.Minute})
	if err := s.Emit(t.Context(), event(1, "x")); tasker.CodeOf(err) != tasker.Unavailable || len(err.Error()) > 1000 {
		t.Error(err)
	}
	_ = l.Close()
	all.Wait()
	if written > flooded {
		t.Errorf("the receiver could send %d bytes", written)
	}
}

func TestAReceiverThatCannotBeReached(t *testing.T) {
	noLeaks(t)
	plain := receive(t, func(http.ResponseWriter, *http.Request, []byte) {})
	stranger := httptest.NewUnstartedServer(http.NotFoundHandler()) // its certificate is not trusted
	stranger.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	stranger.StartTLS()
	defer stranger.Close()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for address, says := range map[string]string{
		gone.URL + "/?token=geheim":                                         "connection refused",
		stranger.URL + "/?token=geheim":                                     "certificate",
		strings.Replace(plain.URL, "http:", "https:", 1) + "/?token=geheim": "HTTP response to HTTPS client",
		"http://no-such-host.invalid/?token=geheim":                         "no-such-host.invalid",
	} {
		err := webhookTo(t, WebhookOptions{URL: address}).Emit(t.Context(), event(1, "x"))
		if tasker.CodeOf(err) != tasker.Unavailable || IsRefused(err) || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestConnectionsAreUsedAgain(t *testing.T) {
	noLeaks(t)
	for _, h2 := range []bool{false, true} {
		var mu sync.Mutex
		remotes := map[string]bool{}
		s := receiveTLS(t, h2, WebhookOptions{}, func(w http.ResponseWriter, r *http.Request, _ []byte) {
			mu.Lock()
			defer mu.Unlock()
			remotes[r.RemoteAddr] = true
			if r.ProtoMajor != map[bool]int{false: 1, true: 2}[h2] {
				t.Errorf("HTTP/2 %v: %s", h2, r.Proto)
			}
			fmt.Fprint(w, strings.Repeat("ok", 1000))
		})
		for i := range int64(5) {
			if err := s.Emit(t.Context(), event(i, "x")); err != nil {
				t.Error(err)
			}
		}
		if len(remotes) != 1 {
			t.Errorf("HTTP/2 %v: %d connections for 5 events", h2, len(remotes))
		}
	}
}

func TestWhatIsHidden(t *testing.T) {
	u, err := url.Parse("https://hooks.example/services/T000/aVeryLongToken%2FofTheReceiver?sig=a%26bcdef&v=1")
	if err != nil {
		t.Fatal(err)
	}
	h := newErrorScrubber(u, "one whsec_dHdv oneMore")
	for text, want := range map[string]string{
		"POST /services/T000/aVeryLongToken%2FofTheReceiver?sig=a%26bcdef&v=1": "POST /services/T000/[hidden]?[hidden]",
		"sig a&bcdef and a%26bcdef, v 1":                                       "sig [hidden] and [hidden], v 1",
		"one oneMore whsec_dHdv dHdv":                                          "[hidden] [hidden] [hidden] [hidden]",
	} {
		if got := h.Replace(text); got != want {
			t.Errorf("%q became %q", text, got)
		}
	}
}
