package overload

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"tasker.example/tasker/bench/internal/figures"
)

// FloodCommand is the argument that makes the program send the flood, in a separate process.
const FloodCommand = "send-flood"

// A flooding is the input of the process that sends the flood.
type flooding struct {
	URL       string
	Keys      []string      // API keys, used in turn
	PerSecond float64       // requests; 0 means a closed loop of callersAtOnce callers
	For       time.Duration // duration
	Bulk      int           // tasks per request
}

const (
	// callersAtOnce is the number of callers in a closed loop.
	callersAtOnce = 64
	// outstanding limits the unanswered requests. Beyond it no more are sent, as by clients with a
	// timeout.
	outstanding  = 4000
	floodTimeout = 10 * time.Second
	// perKey is the request rate of one key, below its limit.
	perKey = 800
)

// A Flood is the result of a flood.
type Flood struct {
	Wanted, Sent int
	ByStatus     map[int]int // 0 means no response
	P50MS, P99MS float64     // of served requests
	RefusedP99MS float64
	AllSayWhen   bool // all refusals had Retry-After
}

// SendFlood reads a flooding, sends it and writes a [Flood].
func SendFlood(ctx context.Context, in io.Reader, out io.Writer) error {
	var f flooding
	if err := json.NewDecoder(in).Decode(&f); err != nil {
		return err
	}
	s := &sender{flooding: f, idle: make(chan *connection, outstanding)}
	for _, key := range f.Keys {
		path, all := "/v1/tasks", body
		if f.Bulk > 1 {
			path, all = "/v1/tasks/bulk", "["+strings.Repeat(body+",", f.Bulk-1)+body+"]"
		}
		s.requests = append(s.requests, fmt.Appendf(nil, request, path, strings.TrimPrefix(f.URL, "http://"), key, len(all), all))
	}
	s.result.ByStatus, s.result.AllSayWhen = map[int]int{}, true
	s.begun = time.Now()
	if f.PerSecond == 0 {
		s.closed(ctx)
	} else {
		s.open(ctx)
	}
	return json.NewEncoder(out).Encode(s.conclude())
}

// A sender sends a flood.
type sender struct {
	flooding
	requests [][]byte // raw request of each key
	idle     chan *connection
	begun    time.Time

	mu                sync.Mutex
	result            Flood
	accepted, refused []time.Duration
}

// closed sends requests in a closed loop.
func (s *sender) closed(ctx context.Context) {
	var all sync.WaitGroup
	for n := range callersAtOnce {
		all.Go(func() {
			for time.Since(s.begun) < s.For && ctx.Err() == nil {
				s.create(ctx, s.requests[n%len(s.requests)])
			}
		})
	}
	all.Wait()
	s.result.Wanted = s.result.Sent
}

// open sends requests at a fixed rate, regardless of the responses.
func (s *sender) open(ctx context.Context) {
	var all sync.WaitGroup
	room := make(chan struct{}, outstanding)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ctx.Err() == nil; <-tick.C {
		passed := time.Since(s.begun)
		for due := int(min(passed, s.For).Seconds() * s.PerSecond); n < due; n++ {
			select {
			case room <- struct{}{}:
				all.Go(func() {
					defer func() { <-room }()
					s.create(ctx, s.requests[n%len(s.requests)])
				})
			default: // too many are outstanding
			}
		}
		if passed >= s.For {
			s.result.Wanted = n
			break
		}
	}
	all.Wait()
}

const body = `{"namespace": "` + floodSpace + `", "name": "one", "context": {"order": 4711, "customer": "c-1", "lines": [{"sku": "a-1", "count": 2}]}}`

const request = "POST %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"

// A connection is a raw connection to the server. net/http would take more CPU time than the server
// on the same machine.
type connection struct {
	net.Conn
	answers *bufio.Reader
}

func (s *sender) connect(ctx context.Context) (*connection, error) {
	select {
	case c := <-s.idle:
		return c, nil
	default:
	}
	c, err := (&net.Dialer{Timeout: floodTimeout}).DialContext(ctx, "tcp", strings.TrimPrefix(s.URL, "http://"))
	if err != nil {
		return nil, err
	}
	return &connection{c, bufio.NewReaderSize(c, 2<<10)}, nil
}

// ask sends a request and reads the response.
func (c *connection) ask(request []byte) (status int, again bool, err error) {
	if err = c.SetDeadline(time.Now().Add(floodTimeout)); err != nil {
		return 0, false, err
	}
	if _, err = c.Write(request); err != nil {
		return 0, false, err
	}
	line, err := c.answers.ReadSlice('\n')
	if err != nil || len(line) < len("HTTP/1.1 200") {
		return 0, false, errors.Join(err, errors.New("this is no answer"))
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, false, err
	}
	length := 0
	for {
		line, err = c.answers.ReadSlice('\n')
		if err != nil {
			return 0, false, err
		}
		if len(line) <= len("\r\n") {
			break
		}
		if value, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return 0, false, err
			}
		}
		again = again || bytes.HasPrefix(line, []byte("Retry-After: "))
	}
	_, err = c.answers.Discard(length)
	return status, again, err
}

// create sends one request.
func (s *sender) create(ctx context.Context, request []byte) {
	at := time.Now()
	status, again := 0, false
	c, err := s.connect(ctx)
	if err == nil {
		if status, again, err = c.ask(request); err == nil {
			s.idle <- c
		} else {
			status = 0
			_ = c.Close()
		}
	}
	took := time.Since(at)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.result.Sent++
	s.result.ByStatus[status]++
	switch status {
	case http.StatusCreated:
		s.accepted = append(s.accepted, took)
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		s.refused = append(s.refused, took)
		s.result.AllSayWhen = s.result.AllSayWhen && again
	}
}

func (s *sender) conclude() Flood {
	if len(s.accepted) > 0 {
		s.result.P50MS, s.result.P99MS = figures.Quantile(s.accepted, 0.5), figures.Quantile(s.accepted, 0.99)
	}
	if len(s.refused) > 0 {
		s.result.RefusedP99MS = figures.Quantile(s.refused, 0.99)
	}
	return s.result
}

// lowPriority runs a program with idle priority: SCHED_IDLE in its own session where available,
// otherwise the highest nice value.
const lowPriority = `if command -v chrt >/dev/null && command -v setsid >/dev/null; then
	exec setsid --wait sh -c 'echo 19 2>/dev/null >/proc/self/autogroup; exec chrt --idle 0 "$0" "$@"' "$0" "$@"
fi
exec nice -n 19 "$0" "$@"`

// send sends a flood from another process with low priority.
func (s *server) send(ctx context.Context, f flooding) (result Flood, err error) {
	self, err := os.Executable()
	if err != nil {
		return result, err
	}
	f.URL = s.url
	told, err := json.Marshal(f)
	if err != nil {
		return result, err
	}
	c := exec.CommandContext(ctx, "sh", "-c", lowPriority, self, "overload", FloodCommand)
	var out, problem bytes.Buffer
	c.Stdin, c.Stdout, c.Stderr = bytes.NewReader(told), &out, &problem
	if err := c.Run(); err != nil {
		return result, errors.Join(err, errors.New(problem.String()))
	}
	err = json.Unmarshal(out.Bytes(), &result)
	return result, err
}

// capacityTime is the duration of the capacity measurement.
const capacityTime = 15 * time.Second

// capacity returns how many create requests, of bulk tasks each, the server handles per second.
func (s *server) capacity(ctx context.Context, bulk int) (float64, error) {
	key, err := s.keys(ctx, "capacity", 10)
	if err != nil {
		return 0, err
	}
	got, err := s.send(ctx, flooding{Keys: key, For: capacityTime, Bulk: bulk})
	if err != nil {
		return 0, err
	}
	if got.ByStatus[http.StatusCreated] == 0 {
		return 0, fmt.Errorf("no create was served: %v", got.ByStatus)
	}
	return float64(got.ByStatus[http.StatusCreated]) / capacityTime.Seconds(), nil
}

// flood sends create requests at a rate.
func (s *server) flood(ctx context.Context, perSecond float64, d time.Duration, bulk int) (Flood, error) {
	keys, err := s.keys(ctx, "flood", int(perSecond/perKey)+1)
	if err != nil {
		return Flood{}, err
	}
	return s.send(ctx, flooding{Keys: keys, PerSecond: perSecond, For: d, Bulk: bulk})
}

// keys creates API keys for the namespace of the flood.
func (s *server) keys(ctx context.Context, name string, n int) ([]string, error) {
	list := make([]string, n)
	for i := range list {
		var err error
		if list[i], err = s.key(ctx, fmt.Sprint(name, "-", i), "developer@"+floodSpace); err != nil {
			return nil, err
		}
	}
	return list, nil
}
