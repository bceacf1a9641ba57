package api

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/postgres"
)

// Empty lists are [], never null.
func init() { huma.DefaultArrayNullable = false }

const apiSummary = `Tasker runs tasks: graphs of steps that workers execute.

Every error is {"error": {"code", "message", "details"}}. Codes: INVALID 400, UNAUTHORIZED 401, FORBIDDEN 403,
NOT_FOUND 404, NOT_SUPPORTED 400, 405 and 415, CONFLICT and STALE_LEASE 409, TOO_LARGE 413, INTERNAL 500, UNAVAILABLE 503
(retry after Retry-After). The details of INVALID list all faults as {path, message}. Times are RFC 3339 in UTC. Unless it
listens on a loopback address, a server requires an API key in the header Authorization: Bearer. Objects in namespaces
for which the key has no permission are NOT_FOUND. Unknown keys and parameters are rejected. In request bodies null is the
same as an absent key, except for required keys; it is accepted even for unknown keys.`

// apiDescription contains the OpenAPI document and the schemas by which request bodies are validated.
type apiDescription struct {
	registry huma.Registry
	bodies   map[string]*huma.Schema // by pattern of the route
	claim    *huma.Schema            // of the claim that a report of results can contain
	document []byte

	requested map[*huma.Schema]bool // schemas of request bodies and their parts
}

// describeOnce returns the description, which all servers share.
var describeOnce = sync.OnceValue(func() *apiDescription {
	d := &apiDescription{registry: huma.NewMapRegistry(schemaPrefix, schemaName), bodies: map[string]*huma.Schema{}, requested: map[*huma.Schema]bool{}}
	d.document = d.describe((&server{}).routes())
	d.claim = d.registry.Schema(reflect.TypeFor[apiv1.ClaimSteps](), true, "")
	return d
})

// schemaNames maps the names of Go types to their names in the API where the two differ.
var schemaNames = map[string]string{
	"CancelBatch": "CancelledTasks", "CaseComparison": "CaseChanges", "CaseDistribution": "CaseSpread", "CaseGrouping": "CaseWhy", "CaseVariable": "CaseMask", "DryRun": "OperationDryRun",
	"DryRunRefusal": "OperationRefusal", "DryRunResult": "OperationResult", "NamespaceWeight": "Namespace",
	"Notification": "Message", "ReasonCount": "FactCount", "RelatedCase": "CaseElsewhere",
	"ResolutionTimes": "EntryTimes", "SinkState": "Sink", "StaleTask": "StalenessLine", "ValueCount": "CaseShare",
}

// schemaName returns the name of the schema of a Go type.
func schemaName(t reflect.Type, hint string) string {
	name := huma.DefaultSchemaNamer(t, hint)
	return cmp.Or(schemaNames[name], name)
}

// schemaPrefix is the prefix of references to schemas of the document.
const schemaPrefix = "#/components/schemas/"

// describe returns the OpenAPI document and fills d.bodies.
func (d *apiDescription) describe(routes []*route) []byte {
	doc := &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{
			Title: "Tasker", Version: "1", Description: apiSummary, License: &huma.License{Name: "MIT", Identifier: "MIT"},
		},
		Components: &huma.Components{Schemas: d.registry, SecuritySchemes: map[string]*huma.SecurityScheme{bearer: {
			Type: "http", Scheme: "bearer", Description: "An API key, or a token of the identity provider if one is configured. A server on a loopback address requires neither unless auth.mode is required.",
		}}},
	}
	failure := d.registry.Schema(reflect.TypeFor[apiv1.Error](), true, "")
	for _, rt := range slices.SortedFunc(slices.Values(routes), func(a, b *route) int {
		return cmp.Compare(a.Path+" "+a.Method, b.Path+" "+b.Method)
	}) {
		doc.AddOperation(d.describeOperation(rt, failure))
	}
	d.describeResponses(d.requested)
	d.allowNullPointers()
	plain, err := doc.MarshalJSON()
	if err != nil {
		panic(fmt.Sprintf("describe API: %v", err))
	}
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, plain, "", "  "); err != nil {
		panic(fmt.Sprintf("describe API: %v", err))
	}
	pretty.WriteByte('\n')
	return pretty.Bytes()
}

var pathParamPattern = regexp.MustCompile(`\{(\w+)\}`)

func (d *apiDescription) describeOperation(rt *route, failure *huma.Schema) *huma.Operation {
	op := &huma.Operation{
		Method: rt.Method, Path: rt.Path, OperationID: rt.ID, Tags: []string{rt.Tag}, Summary: rt.Summary, Description: rt.About,
		Responses: map[string]*huma.Response{"default": {Description: "Error", Content: newContent(failure, jsonMedia)}},
	}
	for _, found := range pathParamPattern.FindAllStringSubmatch(rt.Path, -1) {
		schema := &huma.Schema{Type: huma.TypeString}
		if regexp.MustCompile(`uuid$`).MatchString(found[1]) {
			schema.Format = "uuid"
		}
		op.Parameters = append(op.Parameters, &huma.Param{Name: found[1], In: "path", Required: true, Schema: schema})
	}
	for _, p := range rt.params {
		schema := paramSchema(p)
		if p.MaxItems > 0 {
			schema = &huma.Schema{Type: huma.TypeArray, Items: schema, MaxItems: &p.MaxItems}
		}
		op.Parameters = append(op.Parameters, &huma.Param{Name: p.Name, In: "query", Description: p.Doc, Schema: schema})
	}
	if rt.Keyed {
		most := postgres.MaxRequestKey
		op.Parameters = append(op.Parameters, &huma.Param{
			Name: "Idempotency-Key", In: "header", Schema: &huma.Schema{Type: huma.TypeString, MaxLength: &most},
			Description: "A key of your choice for this request. A repeated request with the same key is not applied again. Keys are kept for a week.",
		})
	}
	if rt.Body != nil {
		schema := d.registry.Schema(bodyType(rt.Body), true, "")
		if schema.Type == huma.TypeArray {
			least, most := 1, engine.MaxBulk
			schema.MinItems, schema.MaxItems = &least, &most
		}
		d.allowNulls(schema, d.requested)
		d.bodies[rt.pattern()] = schema
		op.RequestBody = &huma.RequestBody{Required: true, Content: newContent(schema, rt.acceptedMedia()...)}
	}
	rt.describeAccess(op, failure)
	for status, body := range rt.Answers() {
		answer := &huma.Response{Description: http.StatusText(status)}
		if body != nil {
			answer.Content = newContent(d.registry.Schema(body, true, ""), cmp.Or(rt.Gives, jsonMedia))
		}
		op.Responses[strconv.Itoa(status)] = answer
	}
	return op
}

// bodyType returns the type that describes a body of type t.
func bodyType(t reflect.Type) reflect.Type {
	if t == reflect.TypeFor[apiv1.StepAction]() {
		return reflect.TypeFor[stepAction]()
	}
	return t
}

const bearer = "bearer"

// describeAccess documents how a route authenticates callers and which permissions it requires.
func (rt *route) describeAccess(op *huma.Operation, failure *huma.Schema) {
	op.Security = []map[string][]string{} // explicitly none
	if rt.Public {
		return
	}
	op.Security = append(op.Security, map[string][]string{bearer: {}})
	op.Responses["401"] = &huma.Response{
		Description: "The API key is missing, unknown, revoked or expired", Content: newContent(failure, jsonMedia),
		Headers: map[string]*huma.Param{"WWW-Authenticate": {Schema: &huma.Schema{Type: huma.TypeString}}},
	}
	if rt.Anyone {
		return
	}
	needs := "the permission " + string(rt.Needs)
	if rt.Also != "" {
		needs = "the permissions " + string(rt.Needs) + " and " + string(rt.Also)
	}
	op.Description = strings.TrimSpace(op.Description + " Needs " + needs + ".")
	op.Responses["403"] = &huma.Response{Description: "The API key lacks " + needs, Content: newContent(failure, jsonMedia)}
}

// allowNulls makes all optional properties of a request body nullable, in the document and in
// validation.
func (d *apiDescription) allowNulls(schema *huma.Schema, seen map[*huma.Schema]bool) {
	for schema.Ref != "" {
		schema = d.registry.SchemaFromRef(schema.Ref)
	}
	if seen[schema] {
		return
	}
	seen[schema] = true
	for name, property := range schema.Properties {
		d.allowNulls(property, seen)
		if !slices.Contains(schema.Required, name) {
			allowNull(schema, name)
		}
	}
	if schema.Items != nil {
		d.allowNulls(schema.Items, seen)
	}
	for _, one := range schema.OneOf {
		d.allowNulls(one, seen)
	}
}

// allowNullPointers makes properties nullable that responses can encode as null: pointers and
// optional strings without omitempty.
func (d *apiDescription) allowNullPointers() {
	for name, schema := range d.registry.Map() {
		for _, f := range reflect.VisibleFields(d.registry.TypeFromRef(schemaPrefix + name)) {
			property, omitted, _ := strings.Cut(f.Tag.Get("json"), ",")
			if omitted == "" && (f.Type.Kind() == reflect.Pointer || isOptionalString(f.Type)) {
				allowNull(schema, property)
			}
		}
	}
}

// isOptionalString reports whether t is a string type that JSON represents as null if it is empty.
func isOptionalString(t reflect.Type) bool {
	if t.Kind() != reflect.String {
		return false
	}
	doc, err := json.Marshal(reflect.Zero(t).Interface())
	return err == nil && string(doc) == "null"
}

// allowNull makes a property nullable, in its type and its enum.
func allowNull(schema *huma.Schema, name string) {
	property := schema.Properties[name]
	switch {
	case property == nil || len(property.AnyOf) > 0:
	case property.Ref != "":
		schema.Properties[name] = &huma.Schema{
			Description: property.Description, AnyOf: []*huma.Schema{{Ref: property.Ref}, {Type: "null"}},
		}
	case property.Type != "":
		property.Nullable = true
		if len(property.Enum) > 0 && !slices.Contains(property.Enum, nil) {
			property.Enum = append(property.Enum, nil)
		}
	}
}

func newContent(s *huma.Schema, media ...string) map[string]*huma.MediaType {
	all := map[string]*huma.MediaType{}
	for _, m := range media {
		all[m] = &huma.MediaType{Schema: s}
	}
	return all
}
