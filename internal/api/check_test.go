package api

import (
	"reflect"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"

	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/payload"
)

// What a body costs of which every element is wrong does not grow with their number, and
// the elements behind a limit are only counted. It does not run beside other tests, as
// it counts allocations.
func TestInvalidBodyAllocatesLittle(t *testing.T) {
	registry := huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer)
	s := &server{apiDescription: &apiDescription{registry: registry}}
	heartbeat := registry.Schema(reflect.TypeFor[apiv1.Leases](), true, "")
	bulk := registry.Schema(reflect.TypeFor[[]apiv1.CreateTask](), true, "")
	const n = 20_000
	list := func(element string) string { return "[" + strings.Repeat(element+",", n-1) + element + "]" }
	allocs := func(schema *huma.Schema, doc string) float64 {
		return testing.AllocsPerRun(1, func() {
			faults, wellFormed := s.check(schema, []byte(doc), payload.Limits{Bytes: 1 << 30, Depth: bodyDepth, Keys: 1 << 30, Values: 1 << 30})
			if !wellFormed || len(faults) > maxFaults {
				t.Fatalf("%.60s: %d faults, well-formed %t", doc, len(faults), wellFormed)
			}
		})
	}
	for name, body := range map[string]struct {
		schema *huma.Schema
		doc    string
	}{
		"leases without properties":  {heartbeat, `{"leases":` + list(`{}`) + `}`},
		"tasks without properties":   {bulk, list(`{}`)},
		"tasks of unknown keys":      {bulk, list(`{"x":1}`)},
		"values of the wrong kind":   {bulk, list(`1`)},
		"one task with many unknown": {bulk, `[{` + strings.Trim(list(`"x":1`), "[]") + `}]`},
	} {
		if got := allocs(body.schema, body.doc); got > n/10 {
			t.Errorf("%s: %.0f allocations for %d elements", name, got, n)
		}
	}
	faults, _ := s.check(heartbeat, []byte(`{"leases":`+list(`{}`)+`}`), payload.Limits{Bytes: 1 << 30, Depth: bodyDepth, Keys: 1 << 30, Values: 1 << 30})
	if len(faults) != 1 || faults[0].Path != "leases" || !strings.Contains(faults[0].Message, "the limit is 1000") {
		t.Errorf("faults %+v", faults)
	}
}

// The list of faults is full in the middle of an object: what is missing still comes
// first, and nothing that is there is called missing.
func TestFullFaultListKeepsMissingFieldsFirst(t *testing.T) {
	t.Parallel()
	registry := huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer)
	schema := registry.Schema(reflect.TypeFor[apiv1.Lease](), true, "")
	doc := `{` + strings.Repeat(`"x":1,`, 2*maxFaults) + `"step_uuid":"0190a0b0-0000-7000-8000-000000000000"}`
	c := checker{registry: registry}
	c.checkValue(schema, payload.NewTolerantReader([]byte(doc)), "")
	if len(c.faults) != maxFaults || c.faults[0].Path != "lease_token" || c.faults[1].Path != "x" {
		t.Errorf("%d faults, first %+v", len(c.faults), c.faults[:min(2, len(c.faults))])
	}
}
