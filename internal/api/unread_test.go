package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/api"
)

// silent readers take nothing of an answer that went well until they are told to.
type silent struct {
	*httptest.ResponseRecorder
	writing chan<- struct{}
	read    <-chan struct{}
	once    *sync.Once
}

func (s silent) Write(b []byte) (int, error) {
	if s.Code == http.StatusOK {
		s.once.Do(func() {
			s.writing <- struct{}{}
			<-s.read
		})
	}
	return s.ResponseRecorder.Write(b)
}

// A crowd is requests whose answers nobody reads before all are told to.
type crowd struct {
	*harness
	handler http.Handler
	writing chan struct{}
	read    chan struct{}
	all     sync.WaitGroup
}

// ofSilent is a crowd at an API with room for a MiB of answers.
func ofSilent(h *harness) *crowd {
	c := &crowd{harness: h, writing: make(chan struct{}), read: make(chan struct{})}
	c.handler = api.New(h.Context(), api.Options{DB: h.DB, Engine: h.Engine, DLQ: h.DLQ, MaxUnreadBytes: 1 << 20, InflightWait: 200 * time.Millisecond})
	return c
}

// begin sends a request, and returns when its answer is being written, or was refused.
func (c *crowd) begin(method, path, body string) (*httptest.ResponseRecorder, bool) {
	w := httptest.NewRecorder()
	done := make(chan struct{})
	r := httptest.NewRequestWithContext(c.Context(), method, path, strings.NewReader(body))
	r.Host = "127.0.0.1"
	r.Header.Set("Content-Type", "application/json")
	c.all.Go(func() {
		defer close(done)
		c.handler.ServeHTTP(silent{w, c.writing, c.read, &sync.Once{}}, r)
	})
	select {
	case <-c.writing:
		return nil, true
	case <-done:
		return w, false
	}
}

// end has all read their answers.
func (c *crowd) end() {
	close(c.read)
	c.all.Wait()
}

func (h *harness) largeTask() string {
	h.Helper()
	body := fmt.Sprintf(`{"namespace":"shop","name":"order","context":{"order":1,"a":%q}}`, strings.Repeat("x", 200<<10))
	return want[tasker.Task](h, http.StatusCreated, "POST", "/v1/tasks", body).UUID.String()
}

// TestUnreadResponsesAreBounded: whoever asks for large documents and reads none is
// refused, and small requests are served meanwhile.
func TestUnreadResponsesAreBounded(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(chain)
	task := h.largeTask()
	c := ofSilent(h)
	unread := 0
	for _, tt := range []struct {
		path string
		most int
	}{
		{"/v1/tasks/" + task, 5},              // beyond 64 KiB each has 136
		{"/v1/tasks/" + task + "/context", 7}, // workers are left a quarter
	} {
		for range 12 {
			refused, writing := c.begin("GET", tt.path, "")
			switch {
			case writing:
				unread++
			case refused.Code != http.StatusServiceUnavailable || refused.Header().Get("Retry-After") == "" || refused.Header().Get("ETag") != "":
				t.Fatalf("%s: %d %v %.300s", tt.path, refused.Code, refused.Header(), refused.Body)
			}
		}
		if unread > tt.most {
			t.Errorf("%s: %d answers of 200 KiB are held", tt.path, unread)
		}
	}
	if _, writing := c.begin("GET", "/v1/tasks/"+task+"/transitions", ""); !writing {
		t.Error("a small request was refused")
	}
	c.end()
	c.read, c.writing = make(chan struct{}), make(chan struct{})
	if _, writing := c.begin("GET", "/v1/tasks/"+task, ""); !writing {
		t.Error("the room is not given back")
	}
	c.end()
}

// A runCheck reader notes until when each piece of its answer is to be read.
type runCheck struct {
	*httptest.ResponseRecorder
	until []time.Time
}

func (r *runCheck) SetWriteDeadline(at time.Time) error {
	r.until = append(r.until, at)
	return nil
}

// TestEachResponseChunkHasADeadline, and not only the whole of it at some time.
func TestEachResponseChunkHasADeadline(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(chain)
	task := h.largeTask()
	w := &runCheck{ResponseRecorder: httptest.NewRecorder()}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/tasks/"+task+"/context", http.NoBody)
	r.Host = "127.0.0.1"
	ofSilent(h).handler.ServeHTTP(w, r)
	const pieces = 4 // of 200 KiB
	if w.Code != http.StatusOK || w.Body.Len() < 200<<10 || len(w.until) != 1+pieces {
		t.Fatalf("%d, %d bytes, deadlines %v", w.Code, w.Body.Len(), w.until)
	}
	for _, at := range w.until[1:] {
		if at.After(w.until[0].Add(-time.Minute)) {
			t.Errorf("a piece is to be read at %s, as the whole answer at %s", at, w.until[0])
		}
	}
}

// TestStepsThatCannotBeSentAreReleased: a claim for whose answer there is no room keeps
// no steps, and a report is answered without the next steps.
func TestStepsThatCannotBeSentAreReleased(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(chain)
	worker := h.worker()
	c := ofSilent(h)
	const tasks = 12
	for range tasks {
		h.largeTask()
	}
	unread := 0
	for writing := true; writing && unread < tasks; {
		var refused *httptest.ResponseRecorder
		if refused, writing = c.begin("POST", worker+"/claims", `{"max":1}`); writing {
			unread++
		} else if refused.Code != http.StatusServiceUnavailable {
			t.Fatalf("%d %.300s", refused.Code, refused.Body)
		}
	}
	var held int
	h.Must(h.Admin().QueryRow(h.Context(), `SELECT count(*) FROM tasker.workflow_steps WHERE state = 'in_progress'`).Scan(&held))
	if unread == tasks || held != unread {
		t.Errorf("%d claims of %d are being written, and the worker holds %d steps", unread, tasks, held)
	}
	w := httptest.NewRecorder()
	report := fmt.Sprintf(`{"results":[{"step_uuid":%q,"lease_token":"x","success":true}],"claim":{"max":1}}`, tasker.NewID())
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, worker+"/results", strings.NewReader(report))
	r.Host = "127.0.0.1"
	r.Header.Set("Content-Type", "application/json")
	c.handler.ServeHTTP(w, r)
	var answer apiv1.ReportAnswer
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != http.StatusOK || len(answer.Rejected) != 1 || len(answer.Steps) != 0 {
		t.Errorf("a report with a claim: %d, %v, %.300s", w.Code, err, w.Body)
	}
	c.end()
	got := want[apiv1.ClaimedSteps](h, http.StatusOK, "POST", worker+"/claims", map[string]any{"max": tasks})
	if len(got.Steps) != tasks-unread {
		t.Errorf("then %d steps are there, want %d", len(got.Steps), tasks-unread)
	}
}
