package postgres

import (
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// What a context, a result or an error has is not told by the selection of an operation either.
func TestTheSelectionOfAnOperationHidesPayloads(t *testing.T) {
	t.Parallel()
	given := []tasker.AttributeFilter{{Name: "customer", Value: "4711"}}
	for payloads, want := range map[string]string{"shop": "4711 gone", "": access.Hidden + " " + access.Hidden} {
		o := tasker.Operation{Namespaces: []string{"shop"}, Selection: tasker.OperationSelection{Filter: tasker.InvestigationFilter{Text: "gone", Attributes: given}}}
		scope := access.Scope{}
		if payloads != "" {
			scope = access.NamespaceScope(payloads)
		}
		redactOperation(access.WithPayloadScope(t.Context(), scope), &o)
		if f := o.Selection.Filter; f.Attributes[0].Value+" "+f.Text != want {
			t.Errorf("with payloads of %q it is %+v, want %s", payloads, f, want)
		}
	}
	if given[0].Value != "4711" {
		t.Error("the selection itself is changed")
	}
}
