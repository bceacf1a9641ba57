package web

import (
	"cmp"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
)

const weightPath = "/set-weight"

// newWeightForm is the form to set the weight of a namespace.
type weightForm struct {
	*server
	form

	Namespace, Weight string // as typed
}

func (s *server) newWeightForm(req *request) (*weightForm, error) {
	p := &weightForm{server: s, Namespace: strings.TrimSpace(req.FormValue("namespace")), Weight: strings.TrimSpace(req.FormValue("weight"))}
	p.form = req.newForm(form{page: "weight", title: "Weight of a namespace", nav: "Workers", Button: "Set the weight", Back: Root + "/workers"})
	weight, err := strconv.ParseFloat(p.Weight, 64)
	if err != nil {
		weight = 1
	}
	namespace := cmp.Or(p.Namespace, "NAMESPACE")
	p.Command = newCommand(req, []string{"namespace", "weight", namespace, strconv.FormatFloat(weight, 'f', -1, 64)},
		http.MethodPut, "/v1/namespaces/"+url.PathEscape(namespace), apiv1.SetNamespace{Weight: weight})
	return p, nil
}

func (p *weightForm) do(req *request) (*view, error) {
	if err := p.identify(req); err != nil {
		return nil, err
	}
	weight, err := strconv.ParseFloat(p.Weight, 64)
	if err != nil {
		return nil, tasker.Errorf(tasker.Invalid, "invalid weight %q: must be a number from 0.01 to 1000",
			truncate(p.Weight, 40))
	}
	_, err = p.Engine.SetNamespaceWeight(req.Context(), p.Namespace, weight, p.Actor)
	return &view{next: p.Back, note: "The weight of namespace " + p.Namespace + " is " + p.Weight + "."}, err
}
