// Package endpoint describes each operation of the HTTP API once. The server derives its routes and
// the OpenAPI document from the descriptions, the client its requests, and tests the permission
// matrix.
package endpoint

import (
	"encoding/json"
	"net/http"
	"reflect"
	"time"

	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/overload"
)

// Description describes an operation of the API, without its types.
type Description struct {
	Method, Path string
	ID           string            // name in generated clients
	Needs        access.Permission // required permission
	Also         access.Permission // second required permission, if any
	Public       bool              // requires no authentication
	Anyone       bool              // requires authentication but no permission
	Class        overload.Class    // class of the request limits
	Tag          string
	Summary      string
	About        string        // who calls it and whether it is safe to repeat, unless the summary makes that clear
	Media        []string      // content types of the body; nil: JSON
	Statuses     []int         // of success; nil: 200, or 204 without an answer
	Gives        string        // content type of the answer; "": JSON
	MaxBody      int64         // 0: the limit of the server
	Wait         time.Duration // added to the time limit of a request
	Keyed        bool          // accepts the header Idempotency-Key
	Quiet        bool          // logged only at debug level
	Unmetered    bool          // bodies and answers do not count against the memory limits
	Repeatable   bool          // safe to repeat; GET always is
}

// None is the type of an absent query, body or answer.
type None struct{}

// Of describes an operation and its types: a struct with the query parameters (see package query),
// the body and the answer.
type Of[Query, Body, Answer any] Description

// Endpoint is a description with its types. A type is nil if the operation has none.
type Endpoint struct {
	Description

	Query, Body, Answer reflect.Type
}

// Describe returns the description with its types.
func (e Of[Query, Body, Answer]) Describe() Endpoint {
	return Endpoint{
		Description: Description(e), Query: typeOf[Query](), Body: typeOf[Body](), Answer: typeOf[Answer](),
	}
}

func typeOf[T any]() reflect.Type {
	t := reflect.TypeFor[T]()
	if t == reflect.TypeFor[None]() {
		return nil
	}
	return t
}

// Answers returns the type of the answer for each status of success. It is nil for a status
// without content.
func (e Endpoint) Answers() map[int]reflect.Type {
	statuses := e.Statuses
	switch {
	case statuses != nil:
	case e.Answer == nil:
		statuses = []int{http.StatusNoContent}
	default:
		statuses = []int{http.StatusOK}
	}
	out := map[int]reflect.Type{}
	for _, status := range statuses {
		out[status] = e.Answer
		if status == http.StatusNotModified {
			out[status] = nil
		}
	}
	return out
}

// Document is a bare JSON document, not an object of the API.
type Document = json.RawMessage

var (
	created     = []int{http.StatusCreated}
	createdOrOK = []int{http.StatusCreated, http.StatusOK}
	accepted    = []int{http.StatusAccepted}
	unchanged   = []int{http.StatusOK, http.StatusNotModified}
)

const (
	taskPath      = "/v1/tasks/{uuid}"
	stepPath      = taskPath + "/workflow_steps/{step}"
	workerPath    = "/v1/workers/{worker_uuid}"
	casePath      = "/v1/cases/{case_id}"
	incidentPath  = "/v1/incidents/{incident_id}"
	operationPath = "/v1/operations/{operation_uuid}"
	holdPath      = "/v1/holds/{hold_uuid}"
	schedulePath  = "/v1/schedules/{schedule_uuid}"
)
