package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/payload"
)

// Limits of a body as a whole. The documents within have their own, which the
// engine knows and which are narrower.
const (
	bodyDepth  = tasker.MaxDocumentDepth + 8 // what is around a document
	bodyKeys   = 200_000                     // a thousand tasks
	bodyValues = 1_000_000
	maxFaults  = 50 // listed at once
)

const jsonMedia = "application/json"

// read decodes the body into v, or says all that is wrong with it.
func (x *request) read(v any) error {
	doc, _, err := x.body()
	if err != nil {
		return err
	}
	limits := payload.Limits{Bytes: len(doc), Depth: bodyDepth, Keys: bodyKeys, Values: bodyValues}
	faults, wellFormed := x.server.check(x.route.schema, doc, limits)
	switch {
	case !wellFormed:
		return tasker.Errorf(tasker.Invalid, "the body is not JSON: %s", faults[0]).WithDetails(faults)
	case len(faults) > 0:
		return invalidBody(faults)
	}
	if err := json.Unmarshal(doc, v); err != nil {
		return tasker.Errorf(tasker.Invalid, "the body does not fit: %v", err)
	}
	return nil
}

func invalidBody(faults []tasker.Fault) error {
	more := ""
	if len(faults) > 1 {
		more = fmt.Sprintf(", and %d more (see details)", len(faults)-1)
	}
	return tasker.Errorf(tasker.Invalid, "the body is not valid: %s%s", faults[0], more).WithDetails(faults)
}

// body reads the body and returns it with its content type.
func (x *request) body() (doc []byte, media string, err error) {
	if media, err = x.media(); err != nil {
		return nil, "", err
	}
	limit := x.route.maxBody
	if x.r.ContentLength > limit {
		return nil, "", x.tooLarge()
	}
	connection := http.NewResponseController(x.w)
	deadline, _ := x.ctx.Deadline()
	_ = connection.SetReadDeadline(deadline) // an httptest recorder has none
	body := http.MaxBytesReader(x.w, x.r.Body, limit)
	doc, err = x.readAll(body)
	if err == nil {
		// It would end a claim that waits. When the body broke off it stays, or
		// net/http would wait for the rest.
		_ = connection.SetReadDeadline(time.Time{})
	}
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, "", x.tooLarge()
	case errors.Is(err, errNoRoom):
		return nil, "", x.noRoom(body)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, "", refusal{http.StatusRequestTimeout, tasker.Errorf(tasker.Unavailable,
			"the body did not arrive within %s", x.route.timeout)}
	case err != nil:
		return nil, "", tasker.Errorf(tasker.Invalid, "the body broke off: %w", err)
	case len(bytes.TrimSpace(doc)) == 0:
		return nil, "", tasker.Errorf(tasker.Invalid, "the body is empty; %s is expected", strings.Join(x.route.accepts(), " or "))
	}
	return doc, media, nil
}

func (x *request) tooLarge() error {
	return tasker.Errorf(tasker.TooLarge, "the body has more than %d bytes, which is the limit of this path; send less at once", x.route.maxBody)
}

func (rt *route) accepts() []string {
	if rt.media == nil {
		return []string{jsonMedia}
	}
	return rt.media
}

// media returns the content type of the body.
func (x *request) media() (string, error) {
	given := x.r.Header.Get("Content-Type")
	media, params, err := mime.ParseMediaType(given)
	if err != nil || !slices.Contains(x.route.accepts(), media) {
		return "", tasker.Errorf(tasker.Unsupported, "Content-Type %q is not understood here; send %s",
			shorten(given), strings.Join(x.route.accepts(), " or "))
	}
	if set := params["charset"]; set != "" && !strings.EqualFold(set, "utf-8") {
		return "", tasker.Errorf(tasker.Unsupported, "charset %q is not understood; send utf-8", shorten(set))
	}
	if coding := x.r.Header.Get("Content-Encoding"); coding != "" && coding != "identity" {
		return "", tasker.Errorf(tasker.Unsupported, "Content-Encoding %q is not understood; send the body as it is", shorten(coding))
	}
	return media, nil
}

// requestKey returns the key under which the same request is recognised when it is
// sent again.
func (x *request) requestKey() string { return x.r.Header.Get("Idempotency-Key") }

// id returns a UUID of the path.
func (x *request) id(name string) (tasker.ID, error) {
	text := x.r.PathValue(name)
	id, err := parseID(text)
	if err != nil {
		return id, tasker.Errorf(tasker.Invalid, "%s in the path must be a UUID such as 0192f0c1-7a3e-7c4d-9b1e-2f5a6c7d8e9f, not %q",
			name, shorten(text)).WithDetails([]tasker.Fault{{Path: name, Message: "must be a UUID"}})
	}
	return id, nil
}

var errNoUUID = errors.New("must be a UUID such as 0192f0c1-7a3e-7c4d-9b1e-2f5a6c7d8e9f")

// parseID reads a UUID in the one form that we write ourselves.
func parseID(text string) (tasker.ID, error) {
	if len(text) != len("00000000-0000-0000-0000-000000000000") {
		return tasker.ID{}, errNoUUID
	}
	id, err := uuid.Parse(text)
	if err != nil {
		return tasker.ID{}, errNoUUID
	}
	return id, nil
}

// word returns a text of the path.
func (x *request) word(name string) (string, error) {
	text := x.r.PathValue(name)
	const most = 128
	if wrong := textFault(text, most); wrong != "" {
		return "", tasker.Errorf(tasker.Invalid, "%s in the path %s", name, wrong).
			WithDetails([]tasker.Fault{{Path: name, Message: wrong}})
	}
	return text, nil
}

// textFault says what is wrong with a short text of the path or the query.
func textFault(s string, most int) string {
	switch {
	case !utf8.ValidString(s) || strings.ContainsRune(s, 0):
		return "has a NUL or is not valid UTF-8"
	case utf8.RuneCountInString(s) > most:
		return fmt.Sprintf("has %d characters; %d is the limit", utf8.RuneCountInString(s), most)
	}
	return ""
}

// given returns an optional document of a body, with null as good as none.
func given(doc json.RawMessage) json.RawMessage {
	if string(bytes.TrimSpace(doc)) == "null" {
		return nil
	}
	return doc
}
