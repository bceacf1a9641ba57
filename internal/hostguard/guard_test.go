package hostguard_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/hostguard"
)

func TestWhoMaySpeakToTheServer(t *testing.T) {
	for _, tt := range []struct {
		name   string
		guard  *hostguard.Guard
		host   string
		header string // of a POST: name and value
		want   int
	}{
		{"this machine", &hostguard.Guard{LoopbackOnly: true}, "127.0.0.1:8080", "", 0},
		{"this machine, by IPv6", &hostguard.Guard{LoopbackOnly: true}, "[::1]:8080", "", 0},
		{"this machine, by name", &hostguard.Guard{LoopbackOnly: true}, "LOCALHOST.", "", 0},
		{"another name", &hostguard.Guard{LoopbackOnly: true}, "evil.example", "", 421},
		{"an address of the network", &hostguard.Guard{LoopbackOnly: true}, "192.168.0.7", "", 421},
		{"a name that is allowed", &hostguard.Guard{LoopbackOnly: true, AllowedHosts: []string{"tasker.example"}}, "Tasker.Example:443", "", 0},
		{"any name, for others", &hostguard.Guard{}, "whatever.example", "", 0},
		{"for others, a name that is allowed", &hostguard.Guard{AllowedHosts: []string{"tasker.example"}}, "tasker.example", "", 0},
		{"for others, another name", &hostguard.Guard{AllowedHosts: []string{"tasker.example"}}, "evil.example", "", 421},
		{"for others, an address", &hostguard.Guard{AllowedHosts: []string{"tasker.example"}}, "10.1.2.3:8080", "", 0},
		{"a page of another site", &hostguard.Guard{}, "tasker.example", "Sec-Fetch-Site: cross-site", 403},
		{"a page of ours", &hostguard.Guard{}, "tasker.example", "Sec-Fetch-Site: same-origin", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
			r.Host = tt.host
			if tt.header != "" {
				r.Header.Set("Sec-Fetch-Site", tt.header[len("Sec-Fetch-Site: "):])
			}
			status, err := tt.guard.Check(r)
			if status != tt.want || (err == nil) != (tt.want == 0) || err != nil && tasker.CodeOf(err) != tasker.Forbidden {
				t.Errorf("%d, %v; want %d", status, err, tt.want)
			}
		})
	}
}
